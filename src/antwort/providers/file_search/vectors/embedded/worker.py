"""The process that owns the embedded database. It is run as a program, by embedded.py, and imports little of ours.

The library holds the interpreter's lock for as long as a call takes, so a call on a thread would stop the whole server.
Here it stops this process only. Requests come on standard input and are answered in order on standard output, each as
MessagePack after its length in four bytes. When the input ends, because the server has ended in whatever way, so does
the process.
"""

import os
import shutil
import struct
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import qdrant_edge as edge

from antwort.providers.file_search.vectors.embedded.folder import FolderLock, InPlace
from antwort.providers.file_search.vectors.embedded.keywords import (
    LANGUAGES,
    STEMMED,
    KeywordScope,
    KeywordSearch,
    language_of_field,
    rarest,
    stemmed_as,
    text_field,
    text_index,
)
from antwort.providers.file_search.vectors.embedded.open_collections import (
    FLAGS,
    INDEXES,
    KINDS,
    NUMBERS,
    TEXTS,
    MissingError,
    OpenCollection,
    OpenCollections,
    attribute_path,
    config,
)

JSON = dict[str, Any]  # that of the facade would bring the whole of it into this process

_SMALL, _SMALL_TEXTS = 500, 100_000
"""Points of a collection without indexes, and bytes of their texts, at most.

With so few a filter and a search by words are quick, and each index makes opening it slow.
"""
_LOCK_SECONDS = 3.0
"""How long to wait for the process of a server that has just ended."""
_ALL = 1_000_000
_VACUUM = 2000
"""Points deleted after which the space they take is given back; one that is replaced leaves nothing behind."""
_UNREACHABLE = frozenset('"\\')
"""Characters that no path can have."""
_COUNTED = ("file_id", "text_bytes")
_NEW = ".new"
_OLD = ".old"
"""What is being created, and what is being deleted: neither is a collection."""


class DatabaseWorker:
    """Does what it is asked, one thing after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collections = OpenCollections(folder)
        self._keywords = KeywordSearch()
        self._stale: dict[str, int] = {}
        self._calls: dict[str, Callable[..., Any]] = {
            "collections": self.collections,
            "count": self.count,
            "counts": self.counts,
            "create": self.create,
            "delete": self.delete,
            "dimensions": self.dimensions,
            "drop": self.drop,
            "fetch": self.fetch,
            "health": lambda: None,
            "search": self.search,
            "set_attributes": self.set_attributes,
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
        self._collections.close()

    def collections(self) -> list[str]:
        """Return the names of collections."""
        return sorted(path.name for path in self._folder.iterdir() if path.is_dir() and not path.suffix)

    def create(self, name: str, dimensions: int) -> None:
        """Create a collection: it appears whole or not at all."""
        unfinished, final = self._folder / f"{name}{_NEW}", self._folder / name
        if final.exists():
            return
        shutil.rmtree(unfinished, ignore_errors=True)
        shard = edge.EdgeShard.create(str(unfinished), config(dimensions))
        shard.flush()
        shard.close()
        (unfinished / "dimensions").write_text(str(dimensions))
        unfinished.rename(final)

    def drop(self, name: str) -> None:
        """Delete a collection."""
        self._collections.close_one(name)
        self._keywords.forget(name)
        self._stale.pop(name, None)
        old = self._folder / f"{name}{_OLD}"
        if (self._folder / name).exists():
            shutil.rmtree(old, ignore_errors=True)
            (self._folder / name).rename(old)
            shutil.rmtree(old)

    def dimensions(self, name: str) -> int | None:
        """Return the length of vectors."""
        return self._collections.dimensions(name)

    def upsert(
        self, name: str, points: Sequence[tuple[str, list[float], JSON]], fields: Sequence[str], last: bool
    ) -> None:
        """Write points. They outlive this process at once, and the machine after the last part.

        The fields get an index when the collection is no longer small; so do attributes.
        """
        found = self._collections.get(name)
        for _, vector, _ in points:
            _check(found, vector)
        self._keywords.forget(name)  # there is more to come before it is written
        payloads = [_by_kind(_by_language(payload)) for _, _, payload in points]
        written = [edge.Point(id_, vector, payload) for (id_, vector, _), payload in zip(points, payloads, strict=True)]
        found.shard.update(edge.UpdateOperation.upsert_points(written))
        if found.indexed or not _is_small(found.shard):
            if not found.indexed.issuperset(fields):
                everything, _ = found.shard.scroll(
                    edge.ScrollRequest(limit=_ALL, with_payload=[*sorted(KINDS), STEMMED])
                )
                payloads = [point.payload or {} for point in everything]
            _index(found, [*fields, *(path for payload in payloads for path in _paths(payload))])
        if last:
            self._written(name, found, 0)

    def delete(self, name: str, condition: JSON) -> None:
        """Delete points."""
        found, wanted = self._collections.get(name), _filter(condition)
        gone = found.shard.count(edge.CountRequest(filter=wanted))
        found.shard.update(edge.UpdateOperation.delete_points_by_filter(wanted))
        self._written(name, found, gone)

    def set_attributes(self, name: str, condition: JSON, payload: JSON) -> None:
        """Replace the attributes of points."""
        found, payload = self._collections.get(name), {kind: {} for kind in KINDS} | _by_kind(payload)
        found.shard.update(edge.UpdateOperation.set_payload_by_filter(_filter(condition), payload))
        self._set_language(found, _filter(condition), stemmed_as(payload["attributes"]))
        if found.indexed:
            _index(found, _paths(payload))
        self._written(name, found, 0)

    def fetch(self, name: str, condition: JSON, fields: list[str]) -> list[tuple[str, JSON]]:
        """Return points."""
        request = edge.ScrollRequest(limit=_ALL, filter=_filter(condition), with_payload=fields)
        points, _ = self._collections.get(name).shard.scroll(request)
        return [(str(point.id), point.payload or {}) for point in points]

    def search(self, name: str, condition: JSON, wish: JSON) -> list[list[tuple[str, float, JSON]]]:
        """Search by vector, by text, or by both; return points with their scores for each."""
        opened, where = self._collections.get(name), _filter(condition)
        vector, text, limit, fields = wish["vector"], wish["text"], wish["limit"], wish["fields"]

        def asked(query: Any, condition: edge.Filter = where, scale: float = 1.0) -> list[tuple[str, float, JSON]]:
            points = opened.shard.query(edge.QueryRequest(limit, query=query, filter=condition, with_payload=fields))
            return [(str(point.id), scale * point.score, point.payload or {}) for point in points]

        found = []
        if vector is not None:
            _check(opened, vector)
            found.append(asked(edge.Query.Nearest(vector)))
        if text is not None and "text" in opened.indexed:
            worded = [
                asked(edge.TextQuery(field, text), condition, scale)
                for field, condition, scale in _fields_of_words(opened, where)
            ]
            found.append(sorted(chain(*worded), key=lambda one: -one[1])[:limit])
        elif text is not None:
            own = KeywordScope(name, repr(wish["scope"]), _filter(wish["scope"]))
            scored = self._keywords.search(
                opened.shard, own, None if condition == wish["scope"] else where, text, limit
            )
            known = {id_: payload for id_, _, payload in found[0]} if found else {}
            known |= _payloads(opened.shard, [id_ for id_, _ in scored if id_ not in known], fields)
            found.append([(id_, score, known[id_]) for id_, score in scored if id_ in known])
        return found

    def counts(self, scopes: list[tuple[str, JSON]]) -> list[tuple[int, int, int]]:
        """Count in many collections; there is nothing in one that is not there."""
        found = []
        for name, condition in scopes:
            try:
                found.append(self.count(name, condition))
            except MissingError:
                found.append((0, 0, 0))
        return found

    def count(self, name: str, condition: JSON) -> tuple[int, int, int]:
        """Count points that have a text, files and bytes."""
        found, wanted = self._collections.get(name), _filter(condition)
        if not found.indexed.issuperset(_COUNTED):
            few, _ = found.shard.scroll(edge.ScrollRequest(limit=_ALL, filter=wanted, with_payload=list(_COUNTED)))
            told = [point.payload or {} for point in few]
            sizes = [one["text_bytes"] for one in told]
            return len(list(filter(None, sizes))), len({one["file_id"] for one in told}), sum(sizes)
        chunks = found.shard.count(edge.CountRequest(filter=wanted))
        files, texts = (
            found.shard.facet(edge.FacetRequest(field, limit=_ALL, exact=True, filter=wanted)) for field in _COUNTED
        )
        empty = sum(hit.count for hit in texts.hits if int(hit.value) == 0)
        return chunks - empty, len(files.hits), sum(int(hit.value) * hit.count for hit in texts.hits)

    def _set_language(self, found: OpenCollection, wanted: edge.Filter, language: str) -> None:
        """Have the words of points read in another language, if they are of another one than before."""
        points, _ = found.shard.scroll(edge.ScrollRequest(limit=_ALL, filter=wanted, with_payload=["text", STEMMED]))
        for point in points:
            payload = point.payload or {}
            if payload.get(STEMMED, "") != language:
                new = {STEMMED: language, text_field(language): payload.get("text", "")}
                found.shard.update(edge.UpdateOperation.set_payload([point.id], new))
                if found.indexed:
                    _index(found, _paths(new))

    def _written(self, name: str, found: OpenCollection, gone: int) -> None:
        self._keywords.forget(name)
        found.shard.flush()
        self._stale[name] = self._stale.get(name, 0) + gone
        if self._stale[name] >= _VACUUM:
            del self._stale[name]
            found.shard.optimize()
        self._collections.weigh(name)


def _by_language(payload: JSON) -> JSON:
    """Return a payload with its text once more, if it is of a language that is stemmed in a way of its own."""
    language = stemmed_as(payload["attributes"])
    return payload | {STEMMED: language, text_field(language): payload["text"]} if language else payload


def _fields_of_words(opened: OpenCollection, where: edge.Filter) -> list[tuple[str, edge.Filter, float]]:
    """Return where the words of texts are looked for: for each language its field, a condition and a scale of scores.

    Each index knows only how rare a word is among the texts of its language. The scale makes the rarest words of all
    of them count the same, as they would in one.
    """
    languages = [language for language in LANGUAGES if text_field(language) in opened.indexed]
    if not languages:
        return [("text", where, 1.0)]
    most = rarest(opened.shard.count(edge.CountRequest()))
    others = edge.Filter(must=[where], must_not=[_stemmed(language) for language in languages])
    found = [("text", others, 1.0)]
    for language in languages:
        few = opened.shard.count(edge.CountRequest(filter=edge.Filter(must=[_stemmed(language)])))
        found.append((text_field(language), edge.Filter(must=[where, _stemmed(language)]), most / rarest(few)))
    return found


def _stemmed(language: str) -> edge.FieldCondition:
    return edge.FieldCondition(STEMMED, match=edge.MatchValue(language))


def _payloads(shard: edge.EdgeShard, ids: Sequence[str], fields: list[str]) -> dict[str, JSON]:
    points = shard.retrieve([uuid.UUID(one) for one in ids], with_payload=fields, with_vector=False) if ids else []
    return {str(point.id): point.payload or {} for point in points}


def _is_small(shard: edge.EdgeShard) -> bool:
    if shard.info().points_count > _SMALL:
        return False
    few, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, with_payload=["text_bytes"]))
    return sum(int((point.payload or {}).get("text_bytes", 0)) for point in few) <= _SMALL_TEXTS


def _check(found: OpenCollection, vector: Sequence[float]) -> None:
    if len(vector) != found.dimensions:
        raise ValueError(f"expected dim: {found.dimensions}, got {len(vector)}")


def _index(found: OpenCollection, fields: Sequence[str]) -> None:
    """Give fields that have none an index, as far as there may be more: else a filter reads points from the disk."""
    for field in fields:
        if field not in found.indexed and len(found.indexed) < INDEXES:
            found.shard.update(edge.UpdateOperation.create_field_index(field, _schema(field)))
            found.indexed.add(field)


def _schema(field: str) -> Any:
    if field == "tenant":
        return edge.KeywordIndexParams(is_tenant=True)
    if (language := language_of_field(field)) is not None:
        return text_index(language)
    if field == "text_bytes":
        return edge.IntegerIndexParams(lookup=True, range=False)
    return edge.PayloadSchemaType.Float if field.startswith(f"{NUMBERS}.") else edge.PayloadSchemaType.Keyword


def _by_kind(payload: JSON) -> JSON:
    """Return a payload with its attributes once more, apart by kind, so that each can have an index of its kind.

    The library also takes true and false in a condition for numbers; as texts it cannot.
    """
    kinds: JSON = {}
    for key, value in payload["attributes"].items():
        if _UNREACHABLE.isdisjoint(key):  # no path leads to such a key, and no filter either
            kind = _kind(value)
            kinds.setdefault(kind, {})[key] = str(value) if kind == FLAGS else value
    return payload | kinds


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return FLAGS
    return TEXTS if isinstance(value, str) else NUMBERS


def _paths(payload: JSON) -> list[str]:
    """Return the fields of a payload that have an index when its collection is no longer small."""
    language = payload.get(STEMMED)
    words = [STEMMED, text_field(language)] if language else []
    return [*words, *(attribute_path(kind, key) for kind in sorted(KINDS & payload.keys()) for key in payload[kind])]


def _filter(condition: Mapping[str, Any]) -> edge.Filter:
    """Read a filter as Qdrant's REST API writes it."""
    must, should, must_not = (
        [_condition(part) for part in condition[kind]] if kind in condition else None
        for kind in ("must", "should", "must_not")
    )
    return edge.Filter(must, should, must_not)


def _condition(part: Mapping[str, Any]) -> Any:
    if "range" in part:
        return edge.FieldCondition(_moved(part["key"], NUMBERS), range=edge.RangeFloat(**part["range"]))
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


class _FolderLostError(Exception):
    """The folder is not ours any more."""


def _serve(folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

    def send(value: JSON) -> None:
        body = encoder.encode(value)
        answers.write(struct.pack(">I", len(body)) + body)
        answers.flush()

    lock = FolderLock(folder)
    if not lock.take(_LOCK_SECONDS):
        send({"error": "locked"})
        return
    changing = InPlace(folder)
    worker = DatabaseWorker(folder)
    with changing.held():
        worker.tidy()
    send({"value": "ready"})
    while len(head := requests.read(4)) == 4:
        request = requests.read(struct.unpack(">I", head)[0])
        if not lock.is_held():
            send({"ended": "its folder was removed, or replaced, while it was in use"})
            raise _FolderLostError
        with changing.held():
            answer = worker.answer(decoder.decode(request))
        send(answer)
    with changing.held():
        worker.close()


if __name__ == "__main__":
    os.umask(0o077)  # the library makes files with whole texts in them, for any user to read
    try:
        _serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the server was killed and waits for no answer
        os._exit(0)  # at once: Python would try to write it again, and complain
    except _FolderLostError:
        os._exit(0)  # at once: what is still open would be written into a folder that may be another's
