"""Values and errors as text for a model: of any size, without holding up others, within bounds where there are none.

What is written at once is small, so that other threads get their turn; in between it can be stopped. Of a text that is
too long only head and tail are kept, and an iterator is not read for ever.
"""

import codecs
import contextlib
import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import override

from antwort.errors import FunctionError
from antwort.observability import Redactor, text_of
from antwort.web.answers import check_numbers

NOTHING = "(no output)"
_READ = 8
"""How many times the limit of the text an iterator is read for."""
_UNLIMITED = 100_000
"""The limit that an iterator is read by if the text has none."""
_BATCH = 1000
_SMALL = 1000
"""How many values are written at once."""
_SMALL_TEXT = 50_000
"""How many characters are."""
_LARGEST_BITS = (10**4300).bit_length()
"""Bits of the largest integer. Python writes no larger ones either: the time grows with the square of the length."""
_PLAIN_BITS = 64
"""Bits of an integer that takes no time to write."""
_BITS = 16
"""Bits of a larger one that take as long as a small value."""
_LOOKED_AT = 2000
"""How many values a route may answer with before it is taken for a large answer."""
_DEPTH = 200
_SCALARS = frozenset({int, float, bool, type(None)})
_SIZED = (list, tuple, set, frozenset, deque)
_UNREAD = '"[… the rest was not read …]"'


class StoppedError(Exception):
    """Nobody waits for the text any more."""


class _UnwritableError(ValueError):
    """Says why a value cannot be written."""


class Stop:
    """Tells a thread that nobody waits for it any more."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


def encodable(text: str) -> str:
    """Return a plain `str` without lone surrogates: nobody downstream can encode those, nor a subclass of `str`."""
    text = str.__str__(text)
    return text if text.isascii() else text.encode(errors="replace").decode()


def capped(text: str, limit: int) -> str:
    """Cut the middle out of a text that is too long, keeping head and tail and saying how much is missing."""
    text = str.__str__(text)  # the methods of a subclass may do anything
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return _cut(text[:head], text[len(text) - (limit - head) :], len(text))


def _cut(head: str, tail: str, length: int) -> str:
    left_out = length - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} of {length:,} characters left out …]\n{tail}"


def short_text(value: Any, limit: int) -> str | None:
    """Write a value that takes no time to write; None if it might."""
    if isinstance(value, str):
        return encodable(capped(value, limit))
    if value is None:
        return NOTHING
    return capped(_json(value), limit) if _is_small(value) else None


def as_text(value: Any, limit: int | None = None, stop: Stop | None = None) -> str:
    """Write a handler's value as text: strings as they are, anything else as JSON; FunctionError if it cannot be.

    Give it a `stop` on a thread of its own: then it can be stopped, and lets others have their turn.
    """
    if isinstance(value, str):
        return encodable(value if limit is None else capped(value, limit))
    if value is None:
        return NOTHING
    writer = _CappedWriter(limit, stop)
    try:
        writer.write(value, 0)
    except RecursionError as error:
        raise _unwritable(value, "it is nested too deeply, or contains itself") from error
    except _UnwritableError as error:
        raise _unwritable(value, str(error)) from error
    return writer.text()


class _CappedWriter:
    """Collects text, of which it keeps head and tail if there is a limit."""

    def __init__(self, limit: int | None, stop: Stop | None, json: Callable[[Any], str] | None = None) -> None:
        self._json = json or _json
        self._on_a_thread = stop is not None
        self._stop = stop or Stop()
        self._readable = _READ * (limit or _UNLIMITED)
        self._limit = limit
        self._pieces: deque[str] = deque()
        self._head = ""
        self._kept = 0
        self._length = 0

    def text(self) -> str:
        rest = "".join(self._pieces)
        if self._limit is None or self._length <= self._limit:
            return self._head + rest
        head = self._limit * 2 // 3
        tail = self._limit - head
        if len(self._head) + len(rest) == self._length:  # nothing was dropped so far
            return capped(self._head + rest, self._limit)
        return _cut(self._head[:head], rest[len(rest) - tail :], self._length)

    def write(self, value: Any, depth: int) -> None:
        if depth > _DEPTH:
            raise RecursionError
        if self._stop.asked:
            raise StoppedError
        if _is_small(value):
            self._add(self._json(value))
        elif isinstance(value, str):
            value = str.__str__(value)
            self._write_text(value[start : start + _SMALL_TEXT] for start in range(0, len(value), _SMALL_TEXT))
        elif isinstance(value, bytes | bytearray) and len(value) > _SMALL_TEXT:
            self._write_text(_decoded(value))
        elif isinstance(value, int):
            self._add(self._json(_writable(value)))
        elif isinstance(value, dict):
            self._write_members(value.items(), depth, sized=type(value) is dict)
        elif isinstance(value, _SIZED):
            self._write_elements(value, depth, sized=type(value) in _SIZED)
        else:
            self._write_other(value, depth)

    def _write_other(self, value: Any, depth: int) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and not _has_own_form(value):
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            self._write_members(fields, depth, sized=True)
        elif isinstance(value, Generator):
            with contextlib.closing(value):  # it may hold something that it gives back at its end
                self._write_elements(value, depth, sized=False)
        elif isinstance(value, Iterator):
            self._write_elements(value, depth, sized=False)
        else:
            self._add(self._json(value))

    def _write_text(self, pieces: Iterable[str]) -> None:
        self._add('"')
        for piece in pieces:
            self._let_others_in()
            self._add(self._json(piece)[1:-1])
        self._add('"')

    def _let_others_in(self) -> None:
        if self._stop.asked:
            raise StoppedError
        if self._on_a_thread:
            time.sleep(0)  # others, the event loop before all, are let in at once

    def _write_members(self, members: Iterable[tuple[Any, Any]], depth: int, *, sized: bool) -> None:
        self._add("{")
        for n, (key, value) in enumerate(members):
            if not sized and self._length > self._readable:
                self._add(f"{',' if n else ''}{_UNREAD}:null")
                break
            if isinstance(key, int):
                _writable(key)
            self._add(f"{',' if n else ''}{self._json({key: 0})[1:-2]}")
            self.write(value, depth + 1)
        self._add("}")

    def _write_elements(self, values: Iterable[Any], depth: int, *, sized: bool) -> None:
        self._add("[")
        elements = iter(values)
        first = True
        while batch := self._batch(elements, sized=sized):
            self._let_others_in()
            if _are_small(batch):
                self._add(f"{'' if first else ','}{self._json(batch)[1:-1]}")
            else:
                for n, element in enumerate(batch):
                    self._add("" if first and n == 0 else ",")
                    self.write(element, depth + 1)
            first = False
            if not sized and self._length > self._readable:
                self._add(f",{_UNREAD}")
                break
        self._add("]")

    def _batch(self, elements: Iterator[Any], *, sized: bool) -> list[Any]:
        if sized:
            return list(itertools.islice(elements, _BATCH))
        batch: list[Any] = []
        size = 0
        for element in elements:  # one by one: a slow iterator can be stopped between two of them
            batch.append(element)
            size += len(element) if isinstance(element, str) else 1
            if self._stop.asked:
                raise StoppedError
            if len(batch) == _BATCH or size > _SMALL_TEXT:
                break
        return batch

    def _add(self, text: str) -> None:
        self._length += len(text)
        limit = self._limit
        if limit is None:
            self._pieces.append(text)
            return
        if not self._pieces and len(self._head) < limit:
            self._head += text
            return
        self._pieces.append(text)
        self._kept += len(text)
        while self._kept - len(self._pieces[0]) > limit:
            self._kept -= len(self._pieces.popleft())


LARGEST_ANSWER = 64 * 1024**2
"""Characters of JSON that a route may answer with."""


def answer_text(value: Any, stop: Stop, largest: int = LARGEST_ANSWER) -> str:
    """Write what a route answers as JSON, on a thread; ValueError if JSON cannot express it, or it has no end."""
    writer = _AnswerWriter(largest, stop)
    writer.write(value, 0)
    return writer.text()


class _AnswerWriter(_CappedWriter):
    """Collects all of a text, up to where it is too long."""

    def __init__(self, largest: int, stop: Stop) -> None:
        super().__init__(None, stop, _strict_json)
        self._largest = self._readable = largest

    @override
    def _add(self, text: str) -> None:
        super()._add(text)
        if self._length > self._largest:
            raise ValueError(
                f"the answer has more than {self._largest:,} characters of JSON; send less of it, or a stream"
            )


def may_take_long(value: Any) -> bool:
    """Tell whether to write a value as JSON may take long: it is large, or nobody knows because it is an iterator."""
    if isinstance(value, Iterator):
        return True
    left = _LOOKED_AT
    waiting = deque([value])
    while waiting:
        one = waiting.pop()
        if isinstance(one, Iterator):
            return True
        if isinstance(one, str | bytes | bytearray):
            left -= len(one) * _LOOKED_AT // _SMALL_TEXT
        elif isinstance(one, int):
            left = -1 if (cost := _cost(one)) is None else left - cost
        else:
            parts = _parts_of(one)
            left -= len(parts)
            if left >= 0:
                waiting.extend(parts)
        if left < 0:
            return True
    return False


def _parts_of(value: Any) -> Collection[Any]:
    """Return the values that a value is made of."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _SIZED):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # its fields may be in slots
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    fields = getattr(value, "__dict__", None)
    return fields.values() if isinstance(fields, dict) else ()


def _strict_json(value: Any) -> str:
    body = to_json(value)
    if b"NaN" in body or b"Infinity" in body:  # a number that JSON does not have, or only the word
        check_numbers(body)
    return body.decode()


def _decoded(value: bytes | bytearray) -> Iterator[str]:
    """Yield the text of bytes, piece by piece."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(value), _SMALL_TEXT):
            yield decoder.decode(value[start : start + _SMALL_TEXT], final=start + _SMALL_TEXT >= len(value))
    except UnicodeDecodeError as error:
        raise _UnwritableError(f"its bytes are no text in UTF-8 ({error.reason})") from None


def _cost(number: int) -> int | None:
    """Return how many small values take as long as an integer beyond the first; None if it is too large."""
    bits = int.bit_length(number)
    if bits <= _PLAIN_BITS:
        return 0
    return bits // _BITS if bits <= _LARGEST_BITS else None


def _writable(number: int) -> int:
    if _cost(number) is None:
        raise _UnwritableError("it has an integer of more than 4,300 digits; return it as text, or less of it")
    return number


def _has_own_form(value: Any) -> bool:
    """Tell whether pydantic knows how to write it."""
    return hasattr(type(value), "__pydantic_serializer__")


def _is_small(value: Any) -> bool:
    return _budget(value, _SMALL, 0) >= 0


def _are_small(batch: list[Any]) -> bool:
    kinds = set(map(type, batch))
    if kinds <= _SCALARS and (
        int not in kinds or max(number.bit_length() for number in batch if type(number) is int) <= _PLAIN_BITS
    ):
        return True
    if kinds <= {str}:
        return sum(map(len, batch)) <= _SMALL_TEXT
    budget = 10 * _BATCH
    for value in batch:
        budget = _budget(value, budget, 0)
        if budget < 0:
            return False
    return True


def _budget(value: Any, budget: int, depth: int) -> int:
    """Return what is left of a budget of values after a plain one, less than 0 if it is too large or not plain."""
    kind = type(value)
    if kind is int:
        cost = _cost(value)
        return -1 if cost is None else budget - 1 - cost
    if kind in _SCALARS:
        return budget - 1
    if kind is str:
        return budget - 1 - len(value) * _SMALL // _SMALL_TEXT
    if (kind is not dict and kind not in _SIZED) or len(value) > budget or depth > 50:
        return -1
    for part in itertools.chain(value, value.values()) if kind is dict else value:
        budget = _budget(part, budget, depth + 1)
        if budget < 0:
            return -1
    return budget - 1


def _json(value: Any) -> str:
    try:
        return to_json(value, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, UnicodeError, ValueError) as error:
        raise _unwritable(value, str(error)) from error


def _unwritable(value: Any, reason: str) -> FunctionError:
    what = type(value).__name__
    return FunctionError(f"The function returned a {what}, which cannot be written as JSON: {reason}")


_SHOWN = 500
_READ_OF_ERROR = 5000
"""Characters of a text that are looked at. It may be of any length, and whoever waits must not wait for it."""
_MOST_CAUSES = 3
_DEEPEST = 5
"""How many groups within each other are opened."""


def described(error: BaseException, redactor: Redactor) -> str:
    """Name an exception nobody expected, in one line and without secrets; of a group, what is in it."""
    return _described(error, redactor, 0)


def _described(error: BaseException, redactor: Redactor, depth: int) -> str:
    if isinstance(error, BaseExceptionGroup) and depth < _DEEPEST:
        causes = [_described(cause, redactor, depth + 1) for cause in error.exceptions[:_MOST_CAUSES]]
        return "; ".join(causes)[:_SHOWN]
    text = _line(error)
    kind = type(error).__name__
    return redactor.text(f"{kind}: {text}" if text else kind)[:_SHOWN]


def _line(error: BaseException) -> str:
    """Return the text of an exception in one line; of a long one, the beginning."""
    text = text_of(error) or ""
    words = text[:_READ_OF_ERROR].split()
    if len(text) > _READ_OF_ERROR and words and len(words[-1]) < _READ_OF_ERROR:
        words.pop()  # it may be half a secret, which is not known for one
    return " ".join(words)
