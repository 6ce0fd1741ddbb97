"""What a part of a large JSON value costs, where all of the value must be read: beside reading it with `json.loads`."""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from antwort import Antwort, Context
from antwort.config import Config
from antwort.context.values import Place
from antwort.providers.variables import VariablesProvider
from benchmarks.measure import Row

BAR = 2.0
"""How often the CPU time of `json.loads` a part may take."""
SIZE, FULL_SIZE = 4, 77
"""Megabytes of a value."""
METHOD = """\
JSON: `store_get` with a path, of values in SQLite, all of which must be read: the last element of an array, or a member
that nothing has. Each beside `json.loads` of the same bytes, which are in memory; CPU time of the process, median of
the ratios of 5 rounds, in which they take turns."""
ROUNDS = 5
SHAPES: Mapping[str, Callable[[int], str]] = {
    "records": lambda number: f'{{"id":{number},"name":"n{number}","tags":["a","b"]}}',
    "numbers": str,
    "texts": lambda number: json.dumps({"id": number, "text": 'Some words, "quoted" ones, and a line.\n' * 20}),
    "tables": lambda number: json.dumps({"id": number, "rows": [[number, row] for row in range(10_000)]}),
}
Work = Callable[[], Awaitable[object]]


def json_rows(*, full: bool, rounds: int = ROUNDS, size: int | None = None) -> list[Row]:
    """Measure parts of values of several shapes."""
    size = size or (FULL_SIZE if full else SIZE) * 1_000_000
    documents = {shape: array(element, size) for shape, element in SHAPES.items()}
    gc.freeze()  # what is there already is not looked through again before each measurement
    with TemporaryDirectory() as folder:
        return asyncio.run(_rows(Path(folder), rounds, documents))


async def _rows(folder: Path, rounds: int, documents: Mapping[str, tuple[bytes, int]]) -> list[Row]:
    rows: list[Row] = []
    async with Antwort(Config(data_dir=folder, providers={}), providers=[VariablesProvider()]) as app:
        for shape, (document, count) in documents.items():
            await app.values.write(Place("bench"), shape, _once(document), kind="json")
            for what, path in (("the last element", f"$[{count - 1}]"), ("a member that none has", "$[*].rare")):
                arguments = json.dumps({"key": shape, "json_path": path})

                async def part(arguments: str = arguments) -> object:
                    return await app.registry.execute("store_get", arguments, Context("bench"))

                async def loads(document: bytes = document) -> object:
                    return await asyncio.to_thread(json.loads, document)

                ratio = statistics.median([await _cpu(part) / await _cpu(loads) for _ in range(rounds)])
                rows.append(Row(f"json: {what} of {shape}, beside json.loads", ratio, "times", BAR))
    return rows


def array(element: Callable[[int], str], size: int) -> tuple[bytes, int]:
    """Return an array of so many bytes, and how many elements it has."""
    made: list[str] = []
    length = 0
    while length < size:
        made.append(element(len(made)))
        length += len(made[-1]) + 1
    return f"[{','.join(made)}]".encode(), len(made)


async def _cpu(work: Work) -> float:
    gc.collect()
    started = time.process_time()
    await work()
    return time.process_time() - started


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
