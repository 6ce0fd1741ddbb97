"""Parts of JSON documents are those that `json.loads` has, whatever the document; what is behind them is not read."""

import json
import math
import os
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from antwort.app import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.context.values import Place
from antwort.context.variables import Variable
from antwort.providers.variables import VariablesProvider, json_scanner
from antwort.providers.variables.json_grammar import EVERY, Step, parse_path
from antwort.providers.variables.json_scanner import JsonScanner, NotJsonError
from antwort.storage.streamed_values import StreamedValues

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
DOCUMENTS = 6000 if FULL else 250
MEGABYTES = 77 if FULL else 8
PIECE = 2**20
"""Bytes that the store reads at once."""
NAMES = ["a", "b", "name", "ü", "", 'q"', "s/", "x\ny"]


# --- the same as json.loads ------------------------------------------------------------------------------------------


class Members(list[tuple[str, Any]]):
    """An object, with all members that it has, also of the same name."""


def loaded(document: bytes) -> Any:
    """Read a document, however long its numbers are."""
    return json.loads(document, object_pairs_hook=Members, parse_int=str, parse_float=str, parse_constant=str)


def parts_of(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    """Find in Python what a path means: of members with the same name it is the first."""
    if not steps:
        yield value
        return
    step, *rest = steps
    if isinstance(value, Members):
        fitting = value if step is EVERY else [one for one in value if one[0] == step][:1]
        for _, member in fitting:
            yield from parts_of(member, rest)
    elif isinstance(value, list) and isinstance(step, range):
        for element in value[step.start : min(step.stop, len(value))]:
            yield from parts_of(element, rest)


class Documents:
    """Makes documents of all kinds, with a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def space(self) -> str:
        return self.random.choice(["", "", "", " ", "\n  ", "\t\r\n"])

    def string(self, text: str) -> str:
        if self.random.random() < 0.2:
            return '"' + "".join(f"\\u{ord(sign):04x}" for sign in text if ord(sign) < 0x10000) + '"'
        return json.dumps(text, ensure_ascii=self.random.random() < 0.5)

    def scalar(self) -> str:
        choose = self.random
        kinds: list[Callable[[], str]] = [
            lambda: str(choose.randrange(-1000, 10**6)),
            lambda: "9" * choose.randrange(1, 60) + choose.choice(["", ".5", "e400", "E-2"]),
            lambda: choose.choice(["null", "true", "false", "NaN", "Infinity", "-Infinity", "-0", "1e999"]),
            lambda: self.string("".join(choose.choices('a"\\ü{}[],: \n/€😀', k=choose.randrange(12)))),
            lambda: self.string("x" * choose.randrange(300)),
            lambda: choose.choice(['"\\ud800"', '"\\/"', '"\\ud83d\\ude00"', '"[{"']),
        ]
        return choose.choice(kinds)()

    def value(self, depth: int) -> str:
        kind = self.random.random()
        if depth <= 0 or kind < 0.3:
            return self.scalar()
        if kind < 0.35:
            deep = self.random.randrange(1, 40)
            return "[" * deep + self.value(depth - 3) + "]" * deep
        count = self.random.choice([0, 1, 2, 3, 12 if depth < 3 else 4])
        comma = f"{self.space()},{self.space()}"
        if kind < 0.65:
            return f"[{self.space()}{comma.join(self.value(depth - 1) for _ in range(count))}{self.space()}]"
        members = [self.member(depth) for _ in range(count)]
        return f"{{{self.space()}{comma.join(members)}{self.space()}}}"

    def member(self, depth: int) -> str:
        name = self.random.choice(NAMES) if self.random.random() < 0.8 else f"name {self.random.randrange(99)}"
        return f"{self.string(name)}{self.space()}:{self.space()}{self.value(depth - 1)}"

    def document(self) -> bytes:
        return f"{self.space()}{self.value(5)}{self.space()}".encode()

    def spoiled(self, document: bytes) -> bytes:
        """Do something to a document that may well make it none."""
        choose = self.random
        at = choose.randrange(len(document) + 1)
        junk = choose.choice(
            [b",", b"]", b"}", b"[", b"{", b'"', b":", b"\\", b"x", b"\xff", b"\xc3", b"\0", b"01", b"'"]
        )
        kinds: list[Callable[[], bytes]] = [
            lambda: document[:at],
            lambda: document + junk,
            lambda: document[:at] + junk + document[at:],
            lambda: document[:at] + document[at + 1 :],
            lambda: document[:at] + bytes([choose.randrange(256)]) + document[at + 1 :],
        ]
        return choose.choice(kinds)()

    def size(self, document: bytes) -> int:
        """Choose the size of pieces, of which there are not too many."""
        return max(self.random.choice([1, 5, 40, 10**6]), len(document) // 100)

    def path(self, value: Any) -> list[Step]:
        """Make a path, most often of something that is there."""
        choose, steps = self.random, list[Step]()
        for _ in range(choose.randrange(4)):
            if choose.random() < 0.15:
                steps.append(EVERY)
                value = value[0][1] if isinstance(value, Members) and value else value
            elif isinstance(value, Members) and value:
                name, value = choose.choice(value)
                steps.append(name)
            elif isinstance(value, list) and value and not isinstance(value, Members):
                start = choose.randrange(len(value))
                steps.append(range(start, start + choose.randrange(1, 4)))
                value = value[start]
            else:
                others: list[Step] = [*NAMES, range(1), range(1, 3)]
                steps.append(choose.choice(others))
        return steps


def fed(document: bytes, steps: Sequence[Step], size: int) -> JsonScanner:
    scanner = JsonScanner(steps, 10**6)
    for start in range(0, len(document), size):
        if not scanner.feed(document[start : start + size]):
            return scanner
    scanner.end()
    return scanner


@pytest.fixture(params=[2**16, 64, 7], ids=["as it is", "small", "tiny"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let windows be small, so that little is in one window and much is entered."""
    monkeypatch.setattr(json_scanner, "_WINDOW", request.param)
    monkeypatch.setattr(json_scanner, "_PATIENCE", request.param)
    return int(request.param)


def test_parts_are_those_that_json_loads_has(window: int) -> None:
    made, tried = Documents(1), 0
    for _ in range(DOCUMENTS // 3):
        document = made.document()
        if len(document) > 100 * window:  # whoever keeps all of it looks at it again with each window
            continue
        value = loaded(document)
        for steps in ([], made.path(value), made.path(value)):
            scanner = fed(document, steps, made.size(document))
            tried += 1
            assert [loaded(part) for part in scanner.found] == list(parts_of(value, steps)), (document, steps)
            assert not scanner.is_cut
    assert tried > DOCUMENTS // 3


@pytest.mark.usefixtures("window")
def test_what_is_no_json_for_json_loads_is_none_here() -> None:
    made, refused = Documents(2), 0
    for _ in range(DOCUMENTS // 3):
        document = made.spoiled(made.document())
        size = made.size(document)
        try:
            value = loaded(document)
        except ValueError:
            refused += 1
            with pytest.raises(NotJsonError):
                fed(document, ["\1"], size)  # all of it is read
            continue
        steps = made.path(value)
        assert [loaded(part) for part in fed(document, steps, size).found] == list(parts_of(value, steps)), document
    assert refused > DOCUMENTS // 10


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "it ends too early, after 0 bytes"),
        (b" \n", "it ends too early, after 2 bytes"),
        (b'{"a":1', "it ends too early, after 6 bytes"),
        (b'["abc', "it ends too early, after 5 bytes"),
        (b"[1] 2", "more stands behind its end, at byte 4"),
        (b"[1,]", "a value is missing, at byte 3"),
        (b"[1,,2]", "a value is missing, at byte 3"),
        (b'{"a" 1}', "':' is missing, at byte 5"),
        (b"{1:2}", "the name of a member is missing, at byte 1"),
        (b"[1}", "',' is missing, at byte 2"),
        (b"[01]", "at byte"),
        ('["ü", 1 2]'.encode(), "at byte"),
        (b'["\xff"]', "it is not in UTF-8"),
        (b"[" * 200_000, "more than 10,000 brackets are open"),
    ],
)
def test_why_something_is_no_json_is_told(document: bytes, why: str) -> None:
    with pytest.raises(NotJsonError) as told:
        fed(document, ["\1"], 10**6)
    assert why in str(told.value)


def test_numbers_and_depth_have_no_limits_that_documents_reach() -> None:
    digits, deep = b"9" * 10_000, b"[" * 5000 + b"]" * 5000
    document = b'{"deep":' + deep + b',"long":' + digits + b',"nan":NaN,"big":1e999,"last":1}'
    for name, part in (("long", digits), ("nan", b"NaN"), ("big", b"1e999"), ("last", b"1")):
        assert fed(document, [name], 1000).found == [part]
    assert math.isnan(json.loads(fed(document, ["nan"], 10).found[0]))


def test_deep_documents_are_read_wherever_they_are_deep() -> None:
    deep = b'{"a":' * 1500 + b"1" + b',"b":[2]}' * 1500
    document = b"[" + b",".join([b"[" * 1500 + b"1" + b"]" * 1500] * 5) + b"," + deep + b",3]"
    assert fed(document, [range(6, 7)], 2**20).found == [b"3"]
    assert fed(document, [range(5, 6), "b", range(1)], 2**20).found == [b"2"]
    with pytest.raises(NotJsonError, match="too many brackets"):  # as it is a RecursionError of json.loads
        fed(document, [range(1)], 2**20)


def test_of_members_with_the_same_name_the_first_is_meant_wherever_they_stand() -> None:
    twice = '{"a":1,"b":{"c":2,"c":3},"a":4}'
    assert fed(twice.encode(), ["a"], 5).found == [b"1"]
    assert fed(f"[{twice},{twice}]".encode(), [EVERY, "b", "c"], 100).found == [b"2", b"2"]
    assert fed(twice.encode(), [EVERY], 3).found == [b"1", b'{"c":2,"c":3}', b"4"]


# --- how much is read ------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[int], str]] = {
    "records": lambda number: f'{{"id":{number},"name":"n{number}","tags":["a","b"]}}',
    "numbers": str,
    "strings": lambda number: f'"text {number}"',
    "tables": lambda number: json.dumps({"id": number, "rows": [[number, row] for row in range(10_000)]}),
}


def elements(shape: str, size: int) -> bytes:
    """Return an array of so many bytes."""
    made, length, number = list[str](), 0, 0
    while length < size:
        made.append(SHAPES[shape](number))
        length, number = length + len(made[-1]) + 1, number + 1
    return f"[{','.join(made)}]".encode()


@pytest.fixture(scope="module")
def documents() -> dict[str, bytes]:
    return {shape: elements(shape, MEGABYTES * 10**6 // 4) for shape in SHAPES}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Antwort]:
    async with Antwort(Config(data_dir=tmp_path, providers={}), providers=[VariablesProvider()]) as app:
        yield app


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the pieces of values that were read."""
    sizes: list[int] = []
    original = StreamedValues.read

    async def counting(
        self: StreamedValues, variable: Variable, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for piece in original(self, variable, start, end):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(StreamedValues, "read", counting)
    return sizes


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize(
    ("head", "tail", "path", "part"),
    [
        ("", "", "$[10:12]", '[{"id":10,"name":"n10","tags":["a","b"]},{"id":11,"name":"n11","tags":["a","b"]}]'),
        ("", "", "$[10:12].name", '["n10","n11"]'),
        ("", "", "$[10].tags[1]", "b"),
        ("", "", "$[1:3].tags[0:1]", '["a","a"]'),
        ('{"first":1,"items":', "}", "$.items[10:12].id", "[10,11]"),
        ('{"first":1,"items":', "}", "$.first", "1"),
        ('{"items":{"all":', "}}", "$.items.all[3].name", "n3"),
    ],
)
async def test_nothing_behind_the_part_is_read(
    app: Antwort, read: list[int], documents: dict[str, bytes], head: str, tail: str, path: str, part: str
) -> None:
    document = head.encode() + documents["records"] + tail.encode()
    await app.values.write(Place("t"), "doc", one(document), kind="json")
    result = await app.registry.execute("store_get", json.dumps({"key": "doc", "json_path": path}), Context("t"))
    assert result.output == part
    assert len(document) > 2 * PIECE - 200_000
    assert read == [PIECE]


@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_a_large_document_is_in_reach_and_little_of_it_in_memory(
    documents: dict[str, bytes], shape: str
) -> None:
    document = documents[shape]
    whole = json.loads(document)
    last = len(whole) - 1
    scanner = JsonScanner(parse_path(f"$[{last}]"), 10**7)
    memory = 0
    tracemalloc.start()
    try:
        for start in range(0, len(document), PIECE):
            assert scanner.feed(document[start : start + PIECE]) or start + PIECE >= len(document)
            memory = max(memory, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert [json.loads(part) for part in scanner.found] == [whole[last]]
    assert memory < 5 * PIECE


async def test_what_is_no_json_is_told_with_its_key(app: Antwort) -> None:
    await app.values.write(Place("t"), "doc", one(b'{"a": 1, "b": oops}'), kind="json")

    async def called(name: str, **arguments: Any) -> str:
        return (await app.registry.execute(name, json.dumps({"key": "doc", **arguments}), Context("t"))).output

    assert await called("store_get", json_path="$.a") == "1"
    assert await called("store_get", json_path="$.c") == "'doc' is no valid JSON: Expecting value, at byte 14."
    assert json.loads(await called("store_summarize"))["structure"] == "no valid JSON: Expecting value, at byte 14"
