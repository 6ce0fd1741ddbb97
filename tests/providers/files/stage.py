"""The shipped app with the files API, and two tenants before it."""

import contextlib
from pathlib import Path
from typing import Any

from openai.types import FileObject
from tests.http.sdk import Served, served_provider

KEYS = {"a": "key-of-a-0123456789", "b": "key-of-b-0123456789"}
TENANTS = {"api_keys": [{"id": tenant, "key": key, "tenant": tenant} for tenant, key in KEYS.items()]}


def staged(tmp_path: Path, **sections: Any) -> contextlib.AbstractContextManager[Served]:
    """Serve the app."""
    return served_provider(tmp_path, "files", [], {"sections": sections})


def keep(stage: Served, data: bytes = b"Hello.", name: str = "a.txt", **options: Any) -> FileObject:
    """Upload a file with the SDK."""
    return stage.client().files.create(file=(name, data), **{"purpose": "user_data", **options})


def kept(tmp_path: Path) -> list[str]:
    """Return the names of what is on the disk."""
    return sorted(path.name for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file())


def form(*parts: tuple[str, bytes], end: bytes = b"--xyz--\r\n") -> dict[str, Any]:
    """Return a form written by hand, field by field; what a field's name is followed by belongs to its header."""
    body = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="%s\r\n\r\n%s\r\n' % (name.encode(), data)
        for name, data in parts
    )
    return {"content": body + end, "headers": {"content-type": "multipart/form-data; boundary=xyz"}}
