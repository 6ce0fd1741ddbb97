"""The file of a backup, and what others may have made of it."""

import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from antwort.errors import ConfigError
from antwort.storage.archive import ArchivedPart, ArchiveWriter, opened_archive
from antwort.storage.in_place import filled_parts

MEBI = 1 << 20


def ignore(_what: str, _done: int) -> None:
    """Take no note of what is told."""


def written(path: Path, parts: dict[str, Path]) -> list[ArchivedPart]:
    with path.open("wb") as file, closing(ArchiveWriter(file, {"antwort": "0"}, ignore)) as writer:
        for name, part in parts.items():
            writer.add_file(name, part)
        writer.finish()
    return writer.parts


def unpacked(path: Path, folder: Path | None) -> list[ArchivedPart]:
    with opened_archive(path, ignore) as archive:
        return archive.unpack(folder, None)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = tmp_path / "part"
    path.write_bytes(os.urandom(100_000))
    return path


@pytest.fixture
def archive(tmp_path: Path, part: Path) -> Path:
    path = tmp_path / "archive.tar.gz"
    written(path, {"data/one": part, "data/folder/two": part})
    return path


def test_parts_come_back_as_they_were(tmp_path: Path, part: Path, archive: Path) -> None:
    part.chmod(0o640)
    os.utime(part, (1, 1_700_000_000))
    archive.unlink()
    parts = written(archive, {"data/one": part, "data/ünï\udcff": part})
    assert unpacked(archive, None) == parts
    assert unpacked(archive, tmp_path / "new") == parts
    back = tmp_path / "new" / "data" / "one"
    assert back.read_bytes() == part.read_bytes()
    about = back.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_mtime) == (0o640, 1_700_000_000)
    assert (tmp_path / "new" / "data" / "ünï\udcff").exists()


def test_holes_are_left_out_and_come_back(tmp_path: Path) -> None:
    sparse, end, empty = (tmp_path / name for name in ("sparse", "end", "empty"))
    with sparse.open("wb") as file:
        for place in (3 * MEBI, 700 * MEBI):
            file.seek(place)
            file.write(b"something")
        file.truncate(900 * MEBI)
    with end.open("wb") as file:
        file.write(b"a beginning")
        file.seek(200 * MEBI)
        file.write(b"an end")
    with empty.open("wb") as file:
        file.truncate(900 * MEBI)
    path = tmp_path / "archive"
    parts = written(path, {"data/sparse": sparse, "data/end": end, "data/empty": empty})
    assert path.stat().st_size < MEBI
    assert unpacked(path, tmp_path / "new") == parts
    for original in (sparse, end, empty):
        back = tmp_path / "new" / "data" / original.name
        assert back.stat().st_size == original.stat().st_size
        assert back.stat().st_blocks * 512 < MEBI
        with original.open("rb") as one, back.open("rb") as two:
            size = original.stat().st_size
            places = set(filled_parts(one.fileno(), size)) | set(filled_parts(two.fileno(), size))
            for start, length in places:
                assert os.pread(one.fileno(), length, start) == os.pread(two.fileno(), length, start)


def test_a_file_that_is_cut_off_meanwhile_is_filled_up_and_told(tmp_path: Path, part: Path) -> None:
    def cut(_what: str, _done: int) -> None:
        os.truncate(part, 10)

    part.write_bytes(b"x" * MEBI)
    path = tmp_path / "archive"
    with path.open("wb") as file, closing(ArchiveWriter(file, {"antwort": "0"}, cut)) as writer:
        writer.add_file("data/one", part)
        writer.finish()
    assert writer.changed == ["data/one"]
    unpacked(path, tmp_path / "new")
    assert (tmp_path / "new" / "data" / "one").stat().st_size == MEBI


@pytest.mark.parametrize("tenth", range(10))
def test_an_archive_that_is_cut_off_is_refused_wherever_that_is(tmp_path: Path, archive: Path, tenth: int) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) * tenth // 10])
    with pytest.raises(ConfigError, match="is damaged, cut off"):
        unpacked(archive, tmp_path / "new")


@pytest.mark.parametrize("last", range(1, 9))
def test_its_last_bytes_are_needed_too(archive: Path, last: int) -> None:
    archive.write_bytes(archive.read_bytes()[:-last])
    with pytest.raises(ConfigError, match="is damaged, cut off"):
        unpacked(archive, None)


@pytest.mark.parametrize("place", [0.01, 0.2, 0.4, 0.6, 0.8, 0.99])
def test_a_byte_that_is_another_is_found(archive: Path, place: float) -> None:
    content = bytearray(archive.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged, cut off|was changed"):
        unpacked(archive, None)


Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


def rewritten(path: Path, change: Change) -> None:
    """Write an archive anew, with other members and right sums of the whole."""
    with tarfile.open(path, "r:gz") as tar:
        members = []
        for info in tar:
            file = tar.extractfile(info)
            members.append((info, b"" if file is None else file.read()))
    change(members)
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def member(name: str, kind: bytes = tarfile.REGTYPE, **attributes: Any) -> Change:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info = tarfile.TarInfo(name)
        info.type = kind
        for key, value in attributes.items():
            setattr(info, key, value)
        members.insert(1, (info, b""))

    return change


def other_content(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[1]
    members[1] = (info, b"!" + content[1:])


def no_end(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.pop()


def no_part(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.pop(2)


def no_beginning(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.pop(0)


def after_the_end(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.insert(1, members.pop())


def another_form(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[0]
    members[0] = (info, json.dumps({**json.loads(content), "format": 2}).encode())


def no_json(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[0] = (members[0][0], b"[]")


def overlapping(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info = tarfile.TarInfo("data/odd")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"}
    text = b"3\n4\n4\n0\n4\n10\n0\n"
    members.insert(1, (info, text + bytes(512 - len(text)) + b"12345678"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (member("data/link", tarfile.SYMTYPE, linkname="/etc"), "neither a file nor a folder"),
        (member("data/link", tarfile.LNKTYPE, linkname="data/one"), "neither a file nor a folder"),
        (member("data/device", tarfile.CHRTYPE, devmajor=1, devminor=3), "neither a file nor a folder"),
        (member("data/disk", tarfile.BLKTYPE), "neither a file nor a folder"),
        (member("data/pipe", tarfile.FIFOTYPE), "neither a file nor a folder"),
        (member("data/../../escaped"), "does not lie where"),
        (member("/escaped"), "does not lie where"),
        (member("../escaped"), "does not lie where"),
        (member("data//escaped"), "does not lie where"),
        (member("data/./escaped"), "does not lie where"),
        (member("data/..", tarfile.DIRTYPE), "does not lie where"),
        (member("elsewhere/file"), "does not lie where"),
        (member("data"), "in the wrong place"),
        (member("data/" + "d/" * 300 + "deep"), "in the wrong place"),
        (member("data/" + ("n" * 100 + "/") * 40 + "long"), "in the wrong place"),
        (member("data/one"), "there twice"),
        (member("data/extra"), "is not what it was"),
        (other_content, "is not what it was"),
        (no_end, "its end is missing"),
        (no_part, "is not what it was"),
        (no_beginning, "does not begin"),
        (after_the_end, "in the wrong place"),
        (another_form, "Install the newer version"),
        (no_json, "is no object"),
        (overlapping, "parts that overlap"),
    ],
)
def test_what_was_changed_is_refused_and_writes_nowhere_else(
    tmp_path: Path, archive: Path, change: Change, told: str
) -> None:
    rewritten(archive, change)
    before = set(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=told):
        unpacked(archive, tmp_path / "inner" / "new")
    assert set(tmp_path.iterdir()) <= before | {tmp_path / "inner"}
    assert [path.name for path in (tmp_path / "inner").glob("*")] in ([], ["new"])
    assert not list(tmp_path.rglob("escaped"))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path, archive: Path) -> None:
    before = set(tmp_path.iterdir())
    assert [part.name for part in unpacked(archive, None)] == ["data/one", "data/folder/two"]
    assert set(tmp_path.iterdir()) == before


def test_what_is_none_is_told(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"text", gzip.compress(b"text"), gzip.compress(b"")]):
        path = tmp_path / str(number)
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="none of 'antwort backup'"):
            unpacked(path, None)
