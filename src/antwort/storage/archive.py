"""The file of a backup: a tar.gz that says first what it is of, and last what its parts are and their sums.

It is written and read in one go, so that it may be as large as it likes. What it says of itself is not trusted: a part
is an ordinary file or a folder in one of the rooms, never a link, a device, or something that lies elsewhere.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from msgspec import Struct
from typing_extensions import override

from antwort.errors import ConfigError
from antwort.storage.in_place import FilledPart, filled_parts
from antwort.types import JSON

Tell = Callable[[str, int], None]
"""Is told what is being done, and of how many bytes it is done."""

FORMAT = 1
ROOMS = ("data", "database", "keys")
"""Folders of an archive: the data folder; the database; keys that are kept elsewhere."""
_HEAD, _MANIFEST = "antwort-backup.json", "manifest.json"
_LEVEL = 3
"""How hard it is tried to make it small: more than this takes several times as long for a few percent."""
_PIECE = 1 << 18
_HOLE = 1 << 16
"""Bytes of holes in a file, so that it is worth while to leave them out."""
_LONGEST_HEAD, _LONGEST_MANIFEST = 1 << 20, 1 << 30
_LONGEST, _DEEPEST = 3000, 200
"""Bytes and folders of a path. Code makes longer ones, which could not be brought back to a folder with a longer name,
nor deleted with ease."""
_MODE = 0o1777
"""What is kept of the rights of a file: nobody gets those of its owner by running it."""


class ArchivedPart(Struct, frozen=True):
    """A file in an archive."""

    name: str
    size: int
    sha256: str
    """Of a file with holes it is that of what is between them, each part after its place and length."""


class OwnersOfParts(Struct, frozen=True):
    """Whose the files are: the server's become those of its new user; others, as of code in the sandbox, stay."""

    before: int
    """Whose the data folder was."""
    uid: int
    gid: int
    """Whose it is now."""


def is_beyond(name: str) -> bool:
    """Tell whether the path of a part is so long that it is in no archive."""
    return len(os.fsencode(name)) > _LONGEST or name.count("/") > _DEEPEST


class ArchiveWriter:
    """Writes an archive. Whoever has made one closes it."""

    def __init__(self, file: BinaryIO, head: JSON, tell: Tell) -> None:
        self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file)
        self._tar = tarfile.TarFile.open(mode="w|", fileobj=self._packed, format=tarfile.PAX_FORMAT, bufsize=_PIECE)
        self._tell = tell
        self._done = 0
        self.parts: list[ArchivedPart] = []
        self.changed: list[str] = []
        """Parts that became shorter while they were read, and are filled up."""
        self._add_json(_HEAD, {"format": FORMAT, **head})

    def add_folder(self, name: str, about: os.stat_result) -> None:
        """Add a folder; what is in it is added for itself."""
        info = _info(name, about)
        info.type = tarfile.DIRTYPE
        self._tar.addfile(info)

    def add_file(self, name: str, path: Path, about: os.stat_result | None = None) -> None:
        """Add a file as it is now; FileNotFoundError if it is gone. It has the owner and the times that are given."""
        with open(path, "rb", buffering=0, opener=_unlinked) as file:
            found = os.fstat(file.fileno())
            size = found.st_size
            filled = list(filled_parts(file.fileno(), size))
            info, start = _info(name, about or found), b""
            taken = sum(length for _, length in filled)
            if size - taken < _HOLE:
                filled, taken = [(0, size)], size
            else:
                start = _as_sparse(info, filled, size)
            info.size = len(start) + taken
            read = _ReadPart(file, start, filled, lambda done: self._tell(name, self._done + done))
            self._tar.addfile(info, read)
        self._done += taken
        if read.is_short:
            self.changed.append(name)
        self.parts.append(ArchivedPart(name, size, read.sha256()))

    def finish(self) -> None:
        """Add what all parts are; without that it is none."""
        parts = [{"name": part.name, "size": part.size, "sha256": part.sha256} for part in self.parts]
        self._add_json(_MANIFEST, {"parts": parts})

    def close(self) -> None:
        """End it; the file is not closed."""
        try:
            self._tar.close()
        finally:
            self._packed.close()

    def _add_json(self, name: str, value: JSON) -> None:
        text = json.dumps(value, indent=1).encode()
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(text), 0o600, int(time.time())
        self._tar.addfile(info, io.BytesIO(text))


def _as_sparse(info: tarfile.TarInfo, filled: Sequence[FilledPart], size: int) -> bytes:
    """Have a file written without its holes, in the form that GNU tar has for that; return what comes before it."""
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": info.name,
        "GNU.sparse.realsize": str(size),
    }
    where = "".join(f"{start}\n{length}\n" for start, length in (*filled, (size, 0)))
    text = f"{len(filled) + 1}\n{where}".encode()
    return text + bytes(-len(text) % tarfile.BLOCKSIZE)


def _placed(start: int, length: int) -> bytes:
    """Return what is summed up before a part of a file that has holes."""
    return b"%d+%d\n" % (start, length)


class _ReadPart(io.RawIOBase):
    """A file that is read up to the size it had, and summed up; what somebody cuts off meanwhile is read as zeros."""

    def __init__(self, file: BinaryIO, start: bytes, filled: Sequence[FilledPart], tell: Callable[[int], None]) -> None:
        self._file = file
        self._start = start
        self._filled = iter(filled)
        self._is_sparse = bool(start)
        self._left = 0
        self._done = 0
        self._tell = tell
        self._sum = hashlib.sha256()
        self.is_short = False

    @override
    def read(self, size: int = -1) -> bytes:
        """Return some bytes: all that are asked for, unless these are the last."""
        pieces = []
        while size and (piece := self._piece(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _piece(self, size: int) -> bytes:
        if self._start:
            piece, self._start = self._start[:size], self._start[size:]
            return piece
        while not self._left:
            part = next(self._filled, None)
            if part is None:
                return b""
            if self._is_sparse:
                self._sum.update(_placed(*part))
            self._file.seek(part[0])
            self._left = part[1]
        wanted = min(size, self._left)
        piece = self._file.read(wanted)
        if not piece:
            self.is_short = True
            piece = bytes(wanted)
        self._left -= len(piece)
        self._done += len(piece)
        self._sum.update(piece)
        self._tell(self._done)
        return piece

    def sha256(self) -> str:
        """Return the sum of what was read."""
        return self._sum.hexdigest()


def _info(name: str, about: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = about.st_mode & _MODE, int(about.st_mtime)
    info.uid, info.gid = about.st_uid, about.st_gid
    return info


def _unlinked(path: str, flags: int) -> int:
    """Open a file that is no link; who opens a pipe would wait for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


# --- reading ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened_archive(path: Path, tell: Tell) -> Iterator["ArchiveReader"]:
    """Open an archive; one that is damaged, cut off or none at all is a ConfigError, here and while it is read."""
    try:
        with (
            path.open("rb") as file,
            gzip.GzipFile(fileobj=file, mode="rb") as packed,
            tarfile.open(fileobj=packed, mode="r|", bufsize=_PIECE) as tar,
        ):
            yield ArchiveReader(tar, packed, path, lambda name: tell(name, file.tell()))
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"The archive is damaged, cut off, or none of 'antwort backup' ({reason}). Use another one.",
            where=str(path),
        ) from error


class ArchiveReader:
    """Reads an archive from its beginning to its end."""

    def __init__(self, tar: tarfile.TarFile, packed: gzip.GzipFile, path: Path, tell: Callable[[str], None]) -> None:
        self._tar = tar
        self._packed = packed
        self._path = path
        self._tell = tell
        self._parts: list[ArchivedPart] = []
        self.head = self._read_head()

    def _read_head(self) -> JSON:
        member = self._tar.next()
        if member is None or member.name != _HEAD:
            raise ValueError("it does not begin with what it is of")
        head = self._read_json(member, _LONGEST_HEAD)
        if int(head["format"]) > FORMAT:
            raise ConfigError(
                f"The archive is of antwort {head['antwort']}, and has a form that this version does not know. "
                "Install the newer version that wrote it.",
                where=str(self._path),
            )
        return head

    def unpack(self, folder: Path | None, owners: OwnersOfParts | None) -> list[ArchivedPart]:
        """Write all parts into a folder, or none if there is no folder, and compare their sums; return the parts.

        What is written may only be used when this returns: only the end of an archive says what its parts should be.
        """
        folders: list[tuple[tarfile.TarInfo, Path]] = []
        manifest: JSON | None = None
        while (member := self._tar.next()) is not None:
            vars(self._tar)["members"].clear()  # older Pythons remember all of them
            if member.name == _MANIFEST:
                manifest = self._read_json(member, _LONGEST_MANIFEST)
                continue
            self._check(member, is_late=manifest is not None)
            if member.isdir():
                if folder is not None:
                    (folder / member.name).mkdir(mode=0o700, parents=True, exist_ok=True)
                    folders.append((member, folder / member.name))
            else:
                self._parts.append(self._unpack(member, folder, owners))
        while self._packed.read(_PIECE):  # the sum of the whole is at its end
            pass
        self._compare(manifest)
        for info, path in reversed(folders):  # the inner ones first: what is written to them changes the outer ones
            _give(path, info, owners)
        return self._parts

    def _check(self, member: tarfile.TarInfo, *, is_late: bool) -> None:
        names = member.name.split("/")
        if member.type not in {tarfile.REGTYPE, tarfile.DIRTYPE}:
            raise self._refusal(member, "is neither a file nor a folder")
        if names[0] not in ROOMS or "\0" in member.name or any(name in {"", ".", ".."} for name in names):
            raise self._refusal(member, "does not lie where parts of a backup lie")
        if is_late or is_beyond(member.name) or (len(names) == 1 and not member.isdir()):
            raise self._refusal(member, "is in the wrong place")

    def _refusal(self, member: tarfile.TarInfo, why: str) -> ConfigError:
        return ConfigError(
            f"The archive was not made by 'antwort backup', or was changed: {member.name!r} {why}. Nothing was "
            "restored.",
            where=str(self._path),
        )

    def _unpack(self, member: tarfile.TarInfo, folder: Path | None, owners: OwnersOfParts | None) -> ArchivedPart:
        with contextlib.ExitStack() as closing:
            file = None
            if folder is not None:
                path = folder / member.name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    file = closing.enter_context(open(path, "xb", opener=_new))
                except FileExistsError:
                    raise self._refusal(member, "is there twice") from None
                file.truncate(member.size)
            total = self._copy(member, file)
        if folder is not None:
            _give(folder / member.name, member, owners)
        return ArchivedPart(member.name, member.size, total)

    def _copy(self, member: tarfile.TarInfo, file: BinaryIO | None) -> str:
        """Copy a member into a file, if there is one, and return the sum of what is in it."""
        source, total = self._tar.extractfile(member), hashlib.sha256()
        if source is None:
            raise self._refusal(member, "is no file")
        at, sparse = 0, cast("list[FilledPart] | None", member.sparse)
        for start, length in [(0, member.size)] if sparse is None else sparse[:-1]:
            if not at <= start <= start + length <= member.size:
                raise self._refusal(member, "has parts that overlap")
            for _ in self._pieces(source, start - at):  # a hole, which can only be read
                pass
            if sparse is not None:
                total.update(_placed(start, length))
            if file is not None:
                file.seek(start)
            for piece in self._pieces(source, length):
                total.update(piece)
                self._tell(member.name)
                if file is not None:
                    file.write(piece)
            at = start + length
        return total.hexdigest()

    @staticmethod
    def _pieces(source: IO[bytes], length: int) -> Iterator[bytes]:
        """Yield so much of a member, piece by piece."""
        while length:
            piece = source.read(min(_PIECE, length))
            if not piece:
                raise EOFError("it is cut off")
            length -= len(piece)
            yield piece

    def _compare(self, manifest: JSON | None) -> None:
        if manifest is None:
            raise EOFError("its end is missing")
        said = {part["name"]: (part["size"], part["sha256"]) for part in manifest["parts"]}
        found = {part.name: (part.size, part.sha256) for part in self._parts}
        wrong = sorted(name for name in said.keys() | found.keys() if said.get(name) != found.get(name))
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not what it was, or is not there")

    def _read_json(self, member: tarfile.TarInfo, most: int) -> JSON:
        source = self._tar.extractfile(member) if member.size <= most else None
        if source is None:
            raise ValueError(f"{member.name} is no file of a backup")
        value = json.loads(source.read())
        if not isinstance(value, dict):
            raise TypeError(f"{member.name} is no object")
        return value


def _new(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _give(path: Path, info: tarfile.TarInfo, owners: OwnersOfParts | None) -> None:
    """Give a part the owner, the rights and the time that it had."""
    if owners is not None:
        is_own = info.uid == owners.before
        os.chown(path, owners.uid if is_own else info.uid, owners.gid if is_own else info.gid)
    path.chmod(info.mode & _MODE)
    os.utime(path, (info.mtime, info.mtime))
