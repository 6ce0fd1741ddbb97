"""Collections of the embedded database that are open, as many as there is room for. Its own process imports this."""

import os
import resource
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import qdrant_edge as edge

INDEXES = 64
"""Fields of a collection that have an index, at most."""
TEXTS, NUMBERS, FLAGS = "texts", "numbers", "flags"
KINDS = {TEXTS, NUMBERS, FLAGS}
"""Where attributes are once more, by kind."""
_MOST = 4000
"""Collections open at a time, if there is room: each takes a thread and a file."""
_NO_LIMIT = 1_000_000


class MissingError(Exception):
    """There is no such collection."""


@dataclass(slots=True)
class OpenCollection:
    """A collection that is open: what it is, and what it takes."""

    shard: edge.EdgeShard
    dimensions: int
    indexed: set[str]
    costs: tuple[int, int, int]


class OpenCollections:
    """Opens collections and keeps them open.

    Opening is what takes long, and a search may be over all stores of a tenant: closing one to open the next, each time
    anew, would make it a hundred times as slow.
    """

    def __init__(self, folder: Path, limits: tuple[int, int, int] | None = None) -> None:
        self._folder = folder
        self._open: OrderedDict[str, OpenCollection] = OrderedDict()
        self._limits = limits or _limits()
        self._broken: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The collections that are open; those that were not used for longest come first."""
        return list(self._open)

    def dimensions(self, name: str) -> int | None:
        """Return the length of a collection's vectors."""
        path = self._folder / name / "dimensions"
        return int(path.read_text()) if path.exists() else None

    def get(self, name: str) -> OpenCollection:
        """Return a collection, and open it if it is not; MissingError if there is none."""
        found = self._open.pop(name, None)
        if found is not None:
            self._open[name] = found  # behind all others: it was used last
            return found
        dimensions = self.dimensions(name)
        if dimensions is None:
            raise MissingError
        path = self._folder / name
        try:
            shard = edge.EdgeShard.load(str(path))  # as it was created; told how, it would write that to the disk anew
        except Exception:
            if name in self._broken:
                raise
            self._broken.add(name)
            self.close()  # there may be less room than it seemed
            shard = edge.EdgeShard.load(str(path))
        self._broken.discard(name)
        indexed = {_spelled(field) for field in shard.info().payload_schema}
        self._open[name] = found = OpenCollection(shard, dimensions, indexed, _costs(path))
        self._make_room()
        return found

    def weigh(self, name: str) -> None:
        """Look what a collection takes since it was written to."""
        self._open[name].costs = _costs(self._folder / name)
        self._make_room()

    def close_one(self, name: str) -> None:
        """Close a collection, if it is open."""
        if (found := self._open.pop(name, None)) is not None:
            found.shard.close()

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].shard.close()

    def _make_room(self) -> None:
        """Close those that were not used for longest if all of them take too much."""
        taken = [sum(kind) for kind in zip(*(one.costs for one in self._open.values()), strict=True)]
        while len(self._open) > 1 and any(one > most for one, most in zip(taken, self._limits, strict=True)):
            _, oldest = self._open.popitem(last=False)
            oldest.shard.close()
            taken = [one - less for one, less in zip(taken, oldest.costs, strict=True)]


def config(dimensions: int) -> edge.EdgeConfig:
    """Return how a collection is kept."""
    # No graph: building one stops every search for seconds, and a scan is exact and quick for what this is made for.
    return edge.EdgeConfig(
        # Cold: else opening reads all of a file of 32 MB, however little is in it.
        vectors=edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine, memory=edge.Memory.Cold),
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=0),
        max_search_threads=1,
    )


def _limits() -> tuple[int, int, int]:
    """Return how many collections may be open, with how many memory maps, and bytes: a part of what there is.

    Where a process has no more of something, the library fails in the middle of things.
    """
    soft, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    except (OSError, ValueError):  # not every system gives as much as it says
        files = soft
    tasks = _number("/sys/fs/cgroup/pids.max", _NO_LIMIT)
    maps = _number("/proc/sys/vm/max_map_count", 65_530)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = min(memory, _number("/sys/fs/cgroup/memory.max", memory))
    return min(_MOST, tasks // 2, files // 2 if files > 0 else _MOST), maps // 2, memory // 4


def _number(path: str, default: int) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # not this kind of system, or no limit
        return default


def _costs(path: Path) -> tuple[int, int, int]:
    """Return what an open collection takes: itself, about one map for each file, and memory.

    Of indexes the library reads whole files when it opens them, holes too, most of which are tens of megabytes.
    """
    maps = size = 0
    for folder, _, files in os.walk(path):
        maps += len(files)
        if not folder.startswith(f"{path}/wal"):
            whole = "/payload_index/" in folder
            for file in files:
                with suppress(FileNotFoundError):  # the library may be tidying up
                    found = Path(folder, file).stat()
                    size += found.st_size if whole else found.st_blocks * 512
    return 1, maps, size


def attribute_path(kind: str, key: str) -> str:
    """Return where an attribute is."""
    return f'{kind}."{key}"'


def _spelled(field: str) -> str:
    """Return a path as we write it; the library leaves out quotes that it does not need."""
    kind, _, key = field.partition(".")
    return attribute_path(kind, key.strip('"')) if kind in KINDS else field
