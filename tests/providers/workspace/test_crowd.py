"""Many calls at once, of as many conversations: those that wait for their turn take nothing of the disk."""

import asyncio
import shutil
from pathlib import Path

import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context

CALLS = 30


@pytest.mark.parametrize(
    ("provider", "function", "arguments"),
    [
        ("workspace", "shell", {"command": "echo own"}),
        ("workspace", "write_file", {"path": "f", "content": "own"}),
        ("code_interpreter", "code_interpreter", {"code": "print('own')"}),
    ],
)
async def test_calls_that_wait_do_not_need_room_on_the_disk_yet(
    tmp_path: Path, provider: str, function: str, arguments: dict[str, str]
) -> None:
    room = shutil.disk_usage(tmp_path).free // (CALLS // 2)  # for half of the calls, of which two are made at a time
    settings = {"concurrency": 2, "max_bytes": room, "max_file_bytes": 1 << 20}
    config = Config.model_validate(
        {"data_dir": tmp_path / "data", "providers": {provider: {"enabled": True, "settings": settings}}}
    )
    async with Antwort(config, backend=None) as app:
        results = await asyncio.gather(
            *(app.registry.execute(function, arguments, Context("t", conversation_id=f"c{n}")) for n in range(CALLS))
        )
    assert [result.output for result in results if result.is_error] == []
