"""What folders may still write is claimed before they do, and no tenant claims all of it."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from antwort.errors import ServiceUnavailableError
from antwort.sandbox.claims import RESERVE, Claims


@pytest.fixture
def stack() -> contextlib.ExitStack:
    return contextlib.ExitStack()


def claiming(claims: Claims, place: Path, stack: contextlib.ExitStack) -> Callable[[str, float], bool]:
    """Return what claims a part of what is free for a folder of a tenant, and tells whether it could."""
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize - RESERVE

    def claim(folder: str, part: float) -> bool:
        path = place / folder
        path.mkdir(parents=True)
        try:
            stack.enter_context(claims.claimed(path, lambda: int(free * part), lambda: 0))
        except ServiceUnavailableError:
            return False
        return True

    return claim


def test_a_tenant_that_claims_in_many_folders_leaves_room_for_others(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    with stack:
        claim = claiming(Claims(several=True), tmp_path, stack)
        assert sum(claim(f"greedy/{number}", 0.1) for number in range(20)) == 7
        assert claim("other/0", 0.1)
        assert claim("other/1", 0.1)


def test_a_tenant_that_is_alone_claims_all_and_one_folder_may_be_as_large(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    with stack:
        claim = claiming(Claims(), tmp_path, stack)
        assert sum(claim(f"alone/{number}", 0.15) for number in range(20)) == 6
    with stack:
        claim = claiming(Claims(several=True), tmp_path, stack)
        assert claim("first/0", 0.9)
        assert not claim("first/1", 0.05)
        assert claim("second/0", 0.05)


def test_who_works_in_one_folder_at_once_claims_it_once(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    claims, folder = Claims(several=True), tmp_path / "tenant" / "folder"
    folder.mkdir(parents=True)
    disk = os.statvfs(tmp_path)
    most = int((disk.f_bavail * disk.f_frsize - RESERVE) * 0.7)
    with stack:
        for _ in range(3):
            stack.enter_context(claims.claimed(folder, lambda: most, lambda: 0))
