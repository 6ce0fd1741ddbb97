"""The embedded model computes with integers, and says what the one of the package says."""

import importlib
from pathlib import Path
from typing import Any

import numpy
import pytest
import tokenizers

from antwort.providers.file_search.embedding import network
from antwort.providers.file_search.embedding.minilm import MODEL, TOKENIZER, MiniLM
from antwort.providers.file_search.embedding.network import (
    INPUT,
    OUTPUT,
    UnknownNetworkError,
    has_exact_products,
    integer_network,
)

TEXTS = (
    "Where is the harbour?",
    "The keeper of the lighthouse wrote in his log that the fog had lifted by noon.",
    "def area(radius: float) -> float:\n    return 3.14159 * radius ** 2\n",
    "Der Leuchtturm steht seit 1871 auf der Klippe über dem Hafen.",
    "Invoice KX-1259: 14 crates of oranges, 3 of lemons; due on 4 May. " * 12,
    "灯台は港の入り口に立っている。",
    "x",
)


@pytest.fixture(scope="module")
def model() -> bytes:
    return MODEL.find().read_bytes()


@pytest.fixture(scope="module")
def tokens() -> list[list[int]]:
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER.find()))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [tokenizer.encode(text).ids for text in TEXTS]


def session(content: bytes) -> Any:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def unit(vector: Any) -> Any:
    return vector / numpy.linalg.norm(vector)


@pytest.fixture(scope="module")
def shipped(model: bytes, tokens: list[list[int]]) -> list[Any]:
    """The vectors of the network as the package has it."""
    plain = session(model)
    found = []
    for ids in tokens:
        given = numpy.array([ids], dtype=numpy.int64)
        ones = {"attention_mask": numpy.ones_like(given), "token_type_ids": numpy.zeros_like(given)}
        found.append(unit(plain.run(["last_hidden_state"], {"input_ids": given, **ones})[0][0].mean(axis=0)))
    return found


@pytest.mark.parametrize("exact", [True, False], ids=["8 bits", "7 bits"])
def test_the_network_of_integers_says_what_the_shipped_one_says(
    model: bytes, tokens: list[list[int]], shipped: list[Any], *, exact: bool
) -> None:
    if exact and not has_exact_products():
        exact = False  # this processor saturates, and is never given such a network
    integers = session(integer_network(model, numpy, exact=exact))
    vectors = [unit(integers.run([OUTPUT], {INPUT: numpy.array([ids], dtype=numpy.int64)})[0][0]) for ids in tokens]
    likeness = [float(ours @ theirs) for ours, theirs in zip(vectors, shipped, strict=True)]
    assert min(likeness) > 0.97
    assert sum(likeness) / len(likeness) > 0.99
    nearest = [max(range(len(shipped)), key=lambda other: float(ours @ shipped[other])) for ours in vectors]
    assert nearest == [*range(len(shipped))]


def test_no_product_of_the_network_is_one_of_floats(model: bytes) -> None:
    made = integer_network(model, numpy, exact=True)
    kinds = [
        bytes(value).decode() for graph in fields(made, 7) for node in fields(graph, 1) for value in fields(node, 4)
    ]
    assert kinds.count("DynamicQuantizeMatMul") == 24
    assert not {"MatMul", "Gemm"} & set(kinds)


def fields(message: Any, number: int) -> list[Any]:
    return [value for found, value in network._fields(message) if found == number]


async def test_texts_have_unit_vectors_that_know_what_is_alike() -> None:
    model = MiniLM(threads=1)
    try:
        ships, vessels, cakes = await model.embed(
            ["A ship left the harbour.", "The vessel sailed out of port.", "Mix flour and butter for the cake."]
        )
    finally:
        await model.close()
    assert sum(number * number for number in ships) == pytest.approx(1, abs=1e-5)
    assert numpy.dot(ships, vessels) > 0.5 > numpy.dot(ships, cakes) + 0.2


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01\x02", b"\x3a\x02\x12\x00"], ids=["nothing", "garbage", "no weights"]
)
def test_what_is_not_the_model_is_refused(content: bytes) -> None:
    with pytest.raises(UnknownNetworkError):
        integer_network(content, numpy, exact=True)


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("aarch64", None, True),
        ("arm64", None, True),
        ("x86_64", "flags : avx2 avx512f avx512_vnni", True),
        ("x86_64", "flags : avx2 avx_vnni", True),
        ("x86_64", "flags : avx2", False),
        ("AMD64", None, False),
    ],
)
def test_all_8_bits_are_for_processors_that_do_not_saturate(
    machine: str, flags: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "cpuinfo"
    if flags is not None:
        known.write_text(flags)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(network, "_PROCESSORS", known)
    assert has_exact_products() is expected
