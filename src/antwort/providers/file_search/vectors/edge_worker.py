"""The process that owns the embedded database. It is run as a program, by embedded.py, and imports nothing of ours.

The library holds the interpreter's lock for as long as a call takes, so a call on a thread would stop the whole server.
Here it stops this process only. Requests come on standard input and are answered in order on standard output, each as
MessagePack after its length in four bytes. When the input ends, because the server has ended in whatever way, so does
the process.
"""

import fcntl
import os
import shutil
import struct
import sys
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import qdrant_edge as edge

__all__ = ["Worker"]

JSON = dict[str, Any]

_OPEN = 32
"""Collections open at a time: each takes a few megabytes and two threads."""
_LOCK_SECONDS = 3.0
"""How long to wait for the process of a server that has just ended."""
_ALL = 1_000_000
_VACUUM = 2000
"""Points replaced or deleted after which the space they take is given back."""
_INDEXES = 64
"""Fields of a collection that have an index, at most."""
_TEXTS, _NUMBERS, _FLAGS = "texts", "numbers", "flags"
_KINDS = {_TEXTS, _NUMBERS, _FLAGS}
"""Where attributes are once more, by kind."""
_NEW = ".new"
_OLD = ".old"
"""What is being created, and what is being deleted: neither is a collection."""


class MissingError(Exception):
    """There is no such collection."""


class Worker:
    """Does what it is asked, one thing after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: OrderedDict[str, tuple[edge.EdgeShard, int]] = OrderedDict()
        self._stale: dict[str, int] = {}
        self._indexed: dict[str, set[str]] = {}
        self._calls: dict[str, Callable[..., Any]] = {
            "collections": self.collections,
            "count": self.count,
            "create": self.create,
            "delete": self.delete,
            "dimensions": self.dimensions,
            "drop": self.drop,
            "health": lambda: None,
            "search": self.search,
            "upsert": self.upsert,
        }

    def answer(self, request: Sequence[Any]) -> JSON:
        """Answer a request: the name of a call and its arguments."""
        name, *arguments = request
        try:
            return {"value": self._calls[name](*arguments)}
        except MissingError:
            return {"missing": True}
        except Exception as error:  # noqa: BLE001 - the library has no errors of its own; the other side tells them apart
            return {"error": str(error) or type(error).__name__}

    def tidy(self) -> None:
        """Remove what a crash left half created or half deleted."""
        for path in self._folder.iterdir():
            if path.suffix in {_NEW, _OLD}:
                shutil.rmtree(path)

    def close(self) -> None:
        """Close everything."""
        while self._shards:
            self._shards.popitem()[1][0].close()

    def collections(self) -> list[str]:
        """Return the names of collections."""
        return sorted(path.name for path in self._folder.iterdir() if path.is_dir() and not path.suffix)

    def create(self, name: str, dimensions: int, fields: Sequence[str]) -> None:
        """Create a collection: it appears whole or not at all."""
        place, final = self._folder / f"{name}{_NEW}", self._folder / name
        if final.exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        shard = edge.EdgeShard.create(str(place), _config(dimensions))
        for field in fields:
            shard.update(edge.UpdateOperation.create_field_index(field, _index(field)))
        shard.flush()
        shard.close()
        (place / "dimensions").write_text(str(dimensions))
        place.rename(final)

    def drop(self, name: str) -> None:
        """Delete a collection."""
        if (found := self._shards.pop(name, None)) is not None:
            found[0].close()
        self._stale.pop(name, None)
        self._indexed.pop(name, None)
        old = self._folder / f"{name}{_OLD}"
        if (self._folder / name).exists():
            shutil.rmtree(old, ignore_errors=True)
            (self._folder / name).rename(old)
            shutil.rmtree(old)

    def dimensions(self, name: str) -> int | None:
        """Return the length of vectors."""
        place = self._folder / name / "dimensions"
        return int(place.read_text()) if place.exists() else None

    def upsert(self, name: str, points: Sequence[tuple[str, list[float], JSON]], last: bool) -> None:
        """Write points. They outlive this process at once, and the machine after the last part."""
        shard, wanted = self._shard(name)
        for _, vector, _ in points:
            if len(vector) != wanted:
                raise ValueError(f"expected dim: {wanted}, got {len(vector)}")
        payloads = [_by_kind(payload) for _, _, payload in points]
        self._index_attributes(name, shard, payloads)
        written = [edge.Point(id_, vector, payload) for (id_, vector, _), payload in zip(points, payloads, strict=True)]
        shard.update(edge.UpdateOperation.upsert_points(written))
        if last:
            self._written(name, shard, 0)

    def delete(self, name: str, condition: JSON) -> None:
        """Delete points."""
        shard, _ = self._shard(name)
        wanted = _filter(condition)
        gone = shard.count(edge.CountRequest(filter=wanted))
        shard.update(edge.UpdateOperation.delete_points_by_filter(wanted))
        self._written(name, shard, gone)

    def search(self, name: str, condition: JSON, wish: JSON) -> list[list[tuple[str, float, JSON]]]:
        """Search by vector, by text, or by both; return points with their scores for each."""
        shard, wanted = self._shard(name)
        queries: list[Any] = []
        if (vector := wish["vector"]) is not None:
            if len(vector) != wanted:
                raise ValueError(f"expected dim: {wanted}, got {len(vector)}")
            queries.append(edge.Query.Nearest(vector))
        if wish["text"] is not None:
            queries.append(edge.TextQuery("text", wish["text"]))
        where = _filter(condition)
        found = (
            shard.query(edge.QueryRequest(wish["limit"], query=query, filter=where, with_payload=wish["fields"]))
            for query in queries
        )
        return [[(str(point.id), point.score, point.payload or {}) for point in points] for points in found]

    def count(self, name: str, condition: JSON) -> tuple[int, int, int]:
        """Count points, files and bytes."""
        shard, _ = self._shard(name)
        wanted = _filter(condition)
        chunks = shard.count(edge.CountRequest(filter=wanted))
        files = shard.facet(edge.FacetRequest("file_id", limit=_ALL, exact=True, filter=wanted))
        sizes = shard.facet(edge.FacetRequest("text_bytes", limit=_ALL, exact=True, filter=wanted))
        return chunks, len(files.hits), sum(int(hit.value) * hit.count for hit in sizes.hits)

    def _index_attributes(self, name: str, shard: edge.EdgeShard, payloads: Sequence[JSON]) -> None:
        """Give attributes that are new an index: without one a filter reads every point from the disk."""
        known = self._indexed.setdefault(name, {_spelled(field) for field in shard.info().payload_schema})
        for payload in payloads:
            for kind in _KINDS & payload.keys():
                for key in payload[kind]:
                    path = _path(kind, key)
                    if path not in known and len(known) < _INDEXES:
                        schema = edge.PayloadSchemaType.Float if kind == _NUMBERS else edge.PayloadSchemaType.Keyword
                        shard.update(edge.UpdateOperation.create_field_index(_path(kind, key), schema))
                        known.add(path)

    def _shard(self, name: str) -> tuple[edge.EdgeShard, int]:
        """Open a collection, and close the one that was not used for longest if too many are open."""
        found = self._shards.pop(name, None)
        if found is None:
            dimensions = self.dimensions(name)
            if dimensions is None:
                raise MissingError
            found = edge.EdgeShard.load(str(self._folder / name), _config(dimensions)), dimensions
        self._shards[name] = found
        while len(self._shards) > _OPEN:
            self._shards.popitem(last=False)[1][0].close()
        return found

    def _written(self, name: str, shard: edge.EdgeShard, gone: int) -> None:
        shard.flush()
        self._stale[name] = self._stale.get(name, 0) + gone
        if self._stale[name] >= _VACUUM:
            del self._stale[name]
            shard.optimize()


def _config(dimensions: int) -> edge.EdgeConfig:
    # No graph: building one stops every search for seconds, and a scan is exact and quick for what this is made for.
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine),
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=0),
        max_search_threads=2,
    )


def _index(field: str) -> Any:
    if field == "tenant":
        return edge.KeywordIndexParams(is_tenant=True)
    if field == "text":
        return edge.TextIndexParams(
            tokenizer=edge.TokenizerType.Word,
            lowercase=True,
            stopwords=edge.Language.English,
            stemmer=edge.SnowballParams(edge.SnowballLanguage.English),
            scoring=True,
        )
    if field == "text_bytes":
        return edge.IntegerIndexParams(lookup=True, range=False)
    return edge.PayloadSchemaType.Keyword


def _by_kind(payload: JSON) -> JSON:
    """Return a payload with its attributes once more, apart by kind, so that each can have an index of its kind.

    The library also takes true and false in a condition for numbers; as texts it cannot.
    """
    kinds: JSON = {}
    for key, value in payload["attributes"].items():
        if '"' not in key:  # no path leads to such a key, and no filter either
            kind = _kind(value)
            kinds.setdefault(kind, {})[key] = str(value) if kind == _FLAGS else value
    return payload | kinds


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return _FLAGS
    return _TEXTS if isinstance(value, str) else _NUMBERS


def _spelled(field: str) -> str:
    """Return a path as we write it; the library leaves out quotes that it does not need."""
    kind, _, key = field.partition(".")
    return _path(kind, key.strip('"')) if kind in _KINDS else field


def _path(kind: str, key: str) -> str:
    return f'{kind}."{key}"'


def _filter(condition: Mapping[str, Any]) -> edge.Filter:
    """Read a filter as Qdrant's REST API writes it."""
    must, should, must_not = (
        [_condition(part) for part in condition[kind]] if kind in condition else None
        for kind in ("must", "should", "must_not")
    )
    return edge.Filter(must, should, must_not)


def _condition(part: Mapping[str, Any]) -> Any:
    if "range" in part:
        return edge.FieldCondition(_moved(part["key"], _NUMBERS), range=edge.RangeFloat(**part["range"]))
    if "match" in part:
        value = part["match"]["value"]
        key = _moved(part["key"], _kind(value))
        return edge.FieldCondition(key, match=edge.MatchValue(str(value) if isinstance(value, bool) else value))
    if "has_id" in part:
        return edge.HasIdCondition({uuid.UUID(one) for one in part["has_id"]})
    return _filter(part)


def _moved(path: str, kind: str) -> str:
    """Return where an attribute of a kind is."""
    return path.replace("attributes", kind, 1) if path.startswith("attributes.") else path


def _locked(folder: Path) -> bool:
    """Take the folder for this process; it is given back when the process ends."""
    handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        else:
            return True


def _serve(folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

    def send(value: JSON) -> None:
        body = encoder.encode(value)
        answers.write(struct.pack(">I", len(body)) + body)
        answers.flush()

    folder.mkdir(parents=True, exist_ok=True)
    if not _locked(folder):
        send({"error": "locked"})
        return
    worker = Worker(folder)
    worker.tidy()
    send({"value": "ready"})
    while len(head := requests.read(4)) == 4:
        send(worker.answer(decoder.decode(requests.read(struct.unpack(">I", head)[0]))))
    worker.close()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
