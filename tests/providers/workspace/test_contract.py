import base64
from typing import Any, ClassVar

from antwort.providers.workspace import Workspace
from antwort.testing import ProviderContract
from antwort.testing.script_server import point

PICTURE = base64.b64encode(point("red")).decode()


class TestWorkspace(ProviderContract):
    provider = Workspace
    calls: ClassVar[dict[str, Any]] = {
        "shell": {"command": f"echo {{canary}}; echo {PICTURE} | base64 -d > red.png"},
        "view_image": {"path": "red.png"},
        "write_file": {"path": "notes.txt", "content": "what {canary} wrote"},
        "read_file": {"path": "notes.txt"},
        "edit_file": {"path": "notes.txt", "edits": [{"search": "wrote", "replace": "said"}]},
    }
