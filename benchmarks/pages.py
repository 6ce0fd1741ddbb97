"""What a large document costs: CPU time and time of 200 pages, beside a plain script with the same model.

Run by itself, it takes other counts of pages, and another release beside this one, by its interpreter:

python -m benchmarks.pages --pages 1000
python -m benchmarks.pages --beside /path/to/another/.venv/bin/python
"""

import argparse
import importlib
import os
import sqlite3
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openai import OpenAI

from antwort.providers.file_search.embedding.minilm import DIMENSIONS, MODEL, TOKENIZER, TOKENS
from benchmarks.gateway import ANTWORT, TIMES
from benchmarks.ingestion import CONFIG, documents
from benchmarks.measure import BenchmarkError, Row, positive
from benchmarks.processes import running

PAGES = 200
CHARACTERS = 2300
"""Of a page: 500 tokens or so."""
MOST = 10_000
"""Pages that the time of is projected."""
SETTLED = 3.0
"""Seconds after which a server that has just started does nothing more."""
LOOKS = 0.5
PATIENCE = 3600.0
BAR = 0.35
"""What a document may cost, in passes of the model as it is shipped, in floating-point numbers, over its tokens."""
METHOD = f"""\
Pages: one Markdown file of {PAGES} pages, each of {CHARACTERS:,} characters of the documents of the other parts, about
500 tokens of the embedded model; the server as it is shipped, on all cores, which starts its worker and loads the model
meanwhile. CPU time is that of the server and of all processes that it has started. The plain script cuts the same text
every 256 tokens, embeds each piece with the network as its package ships it, on one core, and writes into SQLite."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a document has cost."""

    cpu: float
    seconds: float


def pages_rows(pages: int = PAGES, beside: str | None = None) -> list[Row]:
    """Ingest one document with this release, with a plain script, and with another release if one is named."""
    text = document(pages)
    tokens = len(_tokenizer().encode(text).ids)
    own = ingested(ANTWORT, text)
    plain = embedded_plainly(text)
    thousands = tokens / 1000
    rows = [
        Row(f"{pages} pages: tokens", tokens, "tokens"),
        Row(f"{pages} pages: CPU time for 1,000 tokens", own.cpu / thousands, "s"),
        Row(f"{pages} pages: the same of a plain script", plain.cpu / thousands, "s"),
        Row(f"{pages} pages: CPU time, of that of the plain script", own.cpu / plain.cpu, TIMES, BAR),
        Row(f"{pages} pages: until they can be found", own.seconds, "s"),
        Row(f"{pages} pages: {MOST:,} at this pace", own.seconds * MOST / pages / 60, "min"),
    ]
    if beside is not None:
        other = ingested((beside, "-m", "antwort"), text)
        rows += [
            Row(f"{pages} pages, the other release: CPU time for 1,000 tokens", other.cpu / thousands, "s"),
            Row(f"{pages} pages, the other release: until they can be found", other.seconds, "s"),
            Row(f"{pages} pages: CPU time, of that of the other release", own.cpu / other.cpu, TIMES, 1 / 5),
            Row(f"{pages} pages: time, of that of the other release", own.seconds / other.seconds, TIMES, 1 / 8),
        ]
    return rows


def document(pages: int) -> str:
    """Return a document of so many pages."""
    texts, found = documents(14), ""
    while len(found) < pages * CHARACTERS:
        found += next(texts)
    return found[: pages * CHARACTERS]


def ingested(command: Sequence[str], text: str) -> Cost:
    """Have a server make a document searchable."""
    with TemporaryDirectory(prefix="antwort-pages-") as name:
        folder = Path(name)
        (folder / "antwort.yaml").write_text(CONFIG)
        serve = (*command, "serve", "--port", "0", "--data-dir", str(folder / "data"))
        with running(serve, core=None, cwd=folder) as server:
            url = f"http://127.0.0.1:{server.port}/v1"
            with OpenAI(base_url=url, api_key="none", timeout=60) as client:
                store = client.vector_stores.create(name="measured").id
                file = client.files.create(file=("document.md", text.encode()), purpose="assistants").id
                time.sleep(SETTLED)
                cpu, started = server.cpu_seconds(), time.monotonic()
                found = client.vector_stores.files.create(store, file_id=file)
                while found.status == "in_progress" and time.monotonic() - started < PATIENCE:
                    time.sleep(LOOKS)
                    found = client.vector_stores.files.retrieve(file, vector_store_id=store)
                if found.status != "completed":
                    raise BenchmarkError(f"the document is {found.status}: {found.last_error}")
                return Cost(server.cpu_seconds() - cpu, time.monotonic() - started)


def embedded_plainly(text: str) -> Cost:
    """Cut a text, embed the pieces and write them down, as a script of a page would."""
    numpy, onnx = importlib.import_module("numpy"), importlib.import_module("onnxruntime")
    options = onnx.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with TemporaryDirectory(prefix="antwort-plain-") as name:
        cpu, started = time.process_time(), time.monotonic()
        session = onnx.InferenceSession(MODEL.read(MODEL.find()), options, providers=["CPUExecutionProvider"])
        inputs = [one.name for one in session.get_inputs()]
        kept = sqlite3.connect(Path(name) / "plain.db")
        kept.execute("CREATE TABLE chunks (text TEXT, vector BLOB)")
        whole = _tokenizer(TOKENS).encode(text)
        for piece in (whole, *whole.overflowing):
            ids = numpy.array([piece.ids], dtype=numpy.int64)
            given = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
            vector = session.run(None, {name: given[name] for name in inputs})[0].reshape(-1, DIMENSIONS).mean(axis=0)
            start, end = piece.offsets[1][0], piece.offsets[-2][1]
            kept.execute("INSERT INTO chunks VALUES (?, ?)", (text[start:end], vector.astype("float32").tobytes()))
        kept.commit()
        kept.close()
        return Cost(time.process_time() - cpu, time.monotonic() - started)


def _tokenizer(most: int | None = None) -> Any:
    found = importlib.import_module("tokenizers").Tokenizer.from_str(TOKENIZER.read(TOKENIZER.find()).decode())
    found.no_padding()
    found.no_truncation()
    if most is not None:
        found.enable_truncation(most)
    return found


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--pages", type=positive, default=PAGES, help="pages of the document")
    parser.add_argument("--beside", metavar="PYTHON", help="the interpreter of another release")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    print(textwrap.fill(METHOD, 120))
    for row in pages_rows(given.pages, given.beside):
        print(f"{row.what:70}  {row.shown:>16}  {row.bar_shown} {row.verdict}")


if __name__ == "__main__":
    main()
