from typing import Any, ClassVar

from antwort.providers.workspace import Workspace
from antwort.testing import ProviderContract


class TestWorkspace(ProviderContract):
    provider = Workspace
    calls: ClassVar[dict[str, Any]] = {
        "shell": {"command": "echo {canary}"},
        "write_file": {"path": "notes.txt", "content": "what {canary} wrote"},
        "read_file": {"path": "notes.txt"},
        "edit_file": {"path": "notes.txt", "edits": [{"search": "wrote", "replace": "said"}]},
    }
