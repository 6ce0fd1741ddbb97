"""What holds for every test."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test work in an empty folder of its own: an app without a data folder makes one where it stands."""
    monkeypatch.chdir(tmp_path)
