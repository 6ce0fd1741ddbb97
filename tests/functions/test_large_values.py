"""However large one value is: what is written of it at once, while nobody else has a turn, is little."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_core import to_json

from antwort import FunctionRegistry
from antwort.errors import FunctionError
from antwort.functions import output
from antwort.functions.output import Stop, answer_text, as_text, may_take_long, short_text

LONG = 10**4000
TOO_LONG = 10**5000


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of what is written at once."""
    lengths: list[int] = []

    def counted(value: Any, **options: Any) -> bytes:
        text = to_json(value, **options)
        lengths.append(len(text))
        return text

    monkeypatch.setattr(output, "to_json", counted)
    return lengths


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("wrapped", [lambda value: value, lambda value: [1, value], lambda value: {"a": value}])
def test_bytes_are_written_piece_by_piece(
    written: list[int], kind: type[bytes | bytearray], wrapped: Callable[[Any], Any]
) -> None:
    text = 'é"x\n' * 200_000
    value = wrapped(kind(text.encode()))
    assert short_text(value, 1000) is None
    assert json.loads(as_text(value, stop=Stop())) == wrapped(text)
    assert json.loads(answer_text(value, Stop())) == wrapped(text)
    assert max(written) < 200_000
    assert len(as_text(value, 1000, Stop())) < 1100


@pytest.mark.parametrize(
    "value",
    [LONG, [LONG] * 300, [1.5, None, LONG] * 1000, {"a": [[LONG] * 20] * 20}, {LONG + n: n for n in range(100)}],
)
def test_integers_of_many_digits_are_written_a_few_at_once(written: list[int], value: Any) -> None:
    short_text(value, 1000)
    assert as_text(value, stop=Stop()) == to_json(value).decode()
    assert answer_text(value, Stop()) == to_json(value).decode()
    assert max(written) < 10 * 4010


@pytest.mark.parametrize(
    "value",
    [
        TOO_LONG,
        -TOO_LONG,
        [TOO_LONG],
        [1, 2, TOO_LONG] * 1000,
        [1.5, None, TOO_LONG],
        {"a": {"b": TOO_LONG}},
        {TOO_LONG: 1},
        (number for number in [TOO_LONG]),
    ],
    ids=["one", "negative", "list", "long list", "mixed", "inside", "key", "generator"],
)
async def test_an_integer_that_is_too_long_to_be_written_is_an_error_that_says_so(
    written: list[int], value: Any
) -> None:
    registry = FunctionRegistry(timeout=60)

    @registry.register
    async def large() -> Any:
        """Return a large number."""
        return value

    result = await registry.execute("large", {})
    assert result.is_error
    assert "an integer of more than 4,300 digits; return it as text" in result.output
    assert max(written, default=0) < 10_000


def test_an_answer_with_an_integer_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 4,300 digits"):
        answer_text({"a": [TOO_LONG]}, Stop())


def test_bytes_that_are_no_text_are_an_error_that_says_so() -> None:
    with pytest.raises(FunctionError, match="returned a bytes, which cannot be written as JSON: its bytes are no text"):
        as_text(b"x" * 100_000 + b"\xff", stop=Stop())
    with pytest.raises(FunctionError, match="returned a bytes, which cannot be written as JSON"):
        as_text(b"\xff", stop=Stop())


def test_a_value_with_large_integers_may_take_long() -> None:
    assert may_take_long(TOO_LONG)
    assert may_take_long({"a": [LONG] * 10})
    assert not may_take_long(LONG)
    assert not may_take_long([2**63] * 1000)
