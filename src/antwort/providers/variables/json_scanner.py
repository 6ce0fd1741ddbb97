"""Parts of a JSON document, found while it streams by: nothing but the parts is kept, and nothing behind them is read.

What is on no path is passed over in runs of whole members, as many as a window holds: a guess, or else an expression,
says where the last of them ends, and a parser in C counts and checks them. Only a member that is larger than a window
is entered.
"""

import codecs
import json
from collections.abc import Sequence
from itertools import islice, zip_longest

import msgspec
from msgspec import Raw, Struct

from antwort.provider import FunctionError
from antwort.providers.variables.json_grammar import (
    CLOSING,
    ESCAPED,
    EVERY,
    IN_STRING,
    LONGEST_ESCAPE,
    SPACE,
    STRING,
    WORD,
    Step,
    end_of_container,
    is_name,
    likely_ends,
    members_of,
    nested,
    sign_of,
    text_of_name,
    values_of,
)

_WINDOW = 64 * 1024
"""Bytes that are looked at together. More of them would not be quicker, and hold others up."""
_PATIENCE = 64 * 1024
"""Bytes from which on a member is entered; a smaller one is waited for."""
_SMALL = 8 * 1024
"""Bytes up to which one that stands in more than that is looked for."""
_LONGEST = 64 * 1024
"""Bytes of a number, and of a name that is on the path."""
_DEEPEST = 10_000
"""Containers in each other that are entered."""
_SHOWN_NAMES = 50
_OBJECT, _QUOTE = ord("{"), ord('"')
_MISSING = -1
"""Where something ends of which the end is not there yet."""
_SIGNS = {"after": (",", "member"), "colon": (":", "value")}
"""Signs that must come in some states, and the states after them."""
_ANY, _ELEMENTS = msgspec.json.Decoder(Raw), msgspec.json.Decoder(list[Raw])
_LENIENT = json.JSONDecoder(parse_int=str)  # numbers may have any length here


class NotJsonError(FunctionError):
    """What was read is no valid JSON; the message says only why, and where."""


class _Open(Struct):
    """An object or array on the path that is entered."""

    is_object: bool
    step: Step
    position: int = 0
    name: bytes = b""
    """That of the member at hand, as it is written."""
    is_over: bool = False
    """Whether nothing behind the member at hand fits any more."""

    def fits(self) -> bool:
        """Tell whether the member at hand is on the path. Of several with the same name, the first one is."""
        if self.is_over:
            return False
        if isinstance(self.step, str):
            return self.is_object and is_name(self.name, self.step)
        return self.step is EVERY or (not self.is_object and self.position in self.step)

    def take(self) -> None:
        """Take note that the member at hand is on the path."""
        self.is_over = isinstance(self.step, str) or self.position + 1 >= self.step.stop

    def go_on(self, count: int) -> None:
        """Take note that so many members are over."""
        self.position += count
        if not isinstance(self.step, str) and not self.is_object:
            self.is_over = self.position >= self.step.stop


class JsonScanner:
    """Takes a document in pieces; `found` has the parts that fit the path, as they are written.

    Of all parts together `most` bytes are kept. What is read must be JSON, as `json.loads` knows it, or a NotJsonError
    says where it is not. With `counts` all of it is read, and what it consists of is counted.
    """

    def __init__(self, steps: Sequence[Step], most: int, *, counts: bool = False) -> None:
        self._steps = steps
        self._signs = [sign_of(step, following) for step, following in zip_longest(steps, steps[1:])]
        self._most = most
        self._counts = counts
        self._open: list[_Open] = []
        """The containers on the path that are entered."""
        self._passed = bytearray()
        """The brackets that end containers below them that are entered, but on no path."""
        self._state = "value"
        """What comes: a `value`, the `first` or another `member`, a `colon`, more of a `string`, what stands `after` a
        value, or nothing, at the `end`."""
        self._is_strict = True
        """Whether nothing has come yet that only `json.loads` reads."""
        self._guesses = True
        """Whether no guess was wrong in this window."""
        self._in_name = False
        """Whether that string is the name of a member."""
        self._rest = b""
        self._at = 0
        """Where the rest is in the document."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        self.is_single = all(isinstance(step, str) or len(step) == 1 for step in steps)
        """Whether the path fits one part at most."""
        self.found: list[bytes] = []
        self.is_cut = False
        self.first = ""
        """What the document begins with."""
        self.children = 0
        """Members or elements of the document itself."""
        self.names: list[str] = []
        """The names of its first members."""

    @property
    def done(self) -> bool:
        """Tell whether the rest of the document makes no difference."""
        return self.is_cut or (bool(self._open) and not self._counts and all(one.is_over for one in self._open))

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece; return whether another one is wanted."""
        self._check_encoding(chunk)
        for start in range(0, len(chunk), _WINDOW):
            self._take(self._rest + chunk[start : start + _WINDOW], is_last=False)
            if self.done:
                return False
        return True

    def end(self) -> None:
        """Take note that the document is over."""
        self._check_encoding(b"", is_last=True)
        self._take(self._rest + b" ", is_last=True)  # which is the end of a number
        if not self.done and self._state != "end":
            size = self._at + len(self._rest) - 1
            raise NotJsonError(f"it ends too early, after {max(size, 0):,} bytes")

    def _check_encoding(self, chunk: bytes, *, is_last: bool = False) -> None:
        try:
            self._decoder.decode(chunk, is_last)
        except UnicodeDecodeError:
            raise NotJsonError("it is not in UTF-8") from None

    def _take(self, data: bytes, *, is_last: bool) -> None:
        position = 0
        self._guesses = True
        while position < len(data) and not self.done:
            end = self._advance(data, position, is_last=is_last)
            if end == _MISSING:
                break
            position = end
        self._rest = data[position:]
        self._at += position

    def _advance(self, data: bytes, start: int, *, is_last: bool) -> int:
        """Take what comes; return where it ends."""
        if self._state == "string":
            return self._string(data, start)
        if self._at + start == 0 and data.startswith(codecs.BOM_UTF8):
            return len(codecs.BOM_UTF8)
        start = SPACE.match(data, start).end()  # type: ignore[union-attr] # it matches nothing, too
        if start == len(data):
            return start
        closing = self._closing()
        if data[start] == closing and self._state in {"after", "first"}:
            return self._close(start)
        if self._state == "end":
            raise self._wrong("more stands behind its end", start)
        if self._state in _SIGNS:
            sign, self._state = _SIGNS[self._state]
            if data[start] != ord(sign):
                raise self._wrong(f"'{sign}' is missing", start)
            return start + 1
        take = self._value if self._state == "value" else self._member
        return take(data, start, is_last=is_last)

    def _closing(self) -> int | None:
        """Return the bracket that ends what was entered last."""
        if self._passed:
            return self._passed[-1]
        return ord("}" if self._open[-1].is_object else "]") if self._open else None

    def _wrong(self, what: str, start: int) -> NotJsonError:
        return NotJsonError(f"{what}, at byte {self._at + start:,}")

    # --- runs of members ---------------------------------------------------------------------------------------------

    def _member(self, data: bytes, start: int, *, is_last: bool) -> int:
        """Take the members that are whole or, if there are none, a part of the next one."""
        for end in likely_ends(data, start) if self._guesses and self._is_strict else ():
            if self._run(data[start:end], start, is_certain=False):
                self._state = "after"
                return end
        self._guesses = False
        end = nested().run.match(data, start).end() - 1  # type: ignore[union-attr]
        if end > start:
            self._run(data[start:end], start)
            self._state = "after"
            return end
        if self._closing() == CLOSING[_OBJECT]:
            return self._name(data, start, is_last=is_last)
        return self._value(data, start, is_last=is_last)

    def _run(self, run: bytes, start: int, *, is_certain: bool = True) -> bool:
        """Take members that are whole; return whether they are, if that is not certain."""
        top = None if self._passed else self._open[-1]
        is_object = self._closing() == CLOSING[_OBJECT]
        whole = b"{" + run + b"}" if is_object else b"[" + run + b"]"
        elements: Sequence[Raw | bytes] = ()
        try:
            if top is None or is_object:
                _ANY.decode(whole)
            else:
                elements = _ELEMENTS.decode(whole)
        except (msgspec.DecodeError, RecursionError):
            if not is_certain:
                return False
            self._check(whole, start - 1)
            elements = () if is_object else list(values_of(run))
        if top is not None:
            if is_object:
                self._run_of_members(top, run)
            else:
                self._run_of_elements(top, run, elements)
        return True

    def _run_of_elements(self, array: _Open, run: bytes, elements: Sequence[Raw | bytes]) -> None:
        depth = len(self._open)
        if not isinstance(array.step, str) and self._may_fit(run, depth):
            first, end = (max(0, bound - array.position) for bound in (array.step.start, array.step.stop))
            wanted = map(bytes, elements[first:end])
            for element in wanted if depth == len(self._steps) else filter(self._may_look_into, wanted):
                self._look_into(element, depth)
                if self.is_cut:
                    break
        array.go_on(len(elements))
        self._count(len(elements))

    def _run_of_members(self, members: _Open, run: bytes) -> None:
        depth = len(self._open)
        are_named = depth == 1 and (self._counts or len(self.names) < _SHOWN_NAMES)
        if not are_named and (members.is_over or not self._may_fit(run, depth - 1)):
            return
        for name, value in members_of(run):
            members.name = name
            self._count(1)
            if members.fits():
                members.take()
                self._look_into(value, depth)
            if self.done:
                return

    def _count(self, count: int) -> None:
        if len(self._open) == 1:
            self.children += count
            if self._open[0].is_object and len(self.names) < _SHOWN_NAMES:
                self.names.append(text_of_name(self._open[0].name))

    def _may_fit(self, members: bytes, depth: int) -> bool:
        """Tell whether all names that are left of the path may stand in some members: most often they do not."""
        return all(sign.search(members) for sign in self._signs[depth:] if sign) or bool(ESCAPED.search(members))

    def _may_look_into(self, element: bytes) -> bool:
        depth = len(self._open)
        step = self._steps[depth]
        if not element.startswith(b"{" if isinstance(step, str) else (b"{", b"[") if step is EVERY else b"["):
            return False
        return self._may_fit(element, depth)

    # --- one member --------------------------------------------------------------------------------------------------

    def _name(self, data: bytes, start: int, *, is_last: bool) -> int:
        if data[start] != _QUOTE:
            raise self._wrong("the name of a member is missing", start)
        found = STRING.match(data, start)
        if found is None and (is_last or len(data) - start <= _LONGEST):
            return _MISSING
        if not self._passed:
            self._open[-1].name = found[0] if found else b""  # one without end is on no path
        if found is None:
            self._state, self._in_name = "string", True
            return start + 1
        self._check(found[0], start)
        self._state = "colon"
        return found.end()

    def _value(self, data: bytes, start: int, *, is_last: bool) -> int:
        """Take a value, or the beginning of one that is large."""
        first, depth = data[start], len(self._open)
        fits = not self._passed and (not depth or self._open[-1].fits())
        if not depth:
            self.first = chr(first)
        if first in b"}],:":
            raise self._wrong("a value is missing", start)
        if fits and depth == len(self._steps):
            return self._part(data, start, is_last=is_last)
        if first in CLOSING and not depth:
            return self._enter(first, start, fits=fits)
        is_long = len(data) - start > (_LONGEST if first not in CLOSING and first != _QUOTE else _PATIENCE)
        end = _end_of_value(data, start, _SMALL if is_long else len(data))
        if end != _MISSING:
            return self._whole(data[start:end], start, fits=fits)
        return self._large(first, start, fits=fits, is_long=is_long, is_last=is_last)

    def _large(self, first: int, start: int, *, fits: bool, is_long: bool, is_last: bool) -> int:
        """Take the beginning of a value whose end is far, or has not come."""
        if first in CLOSING and (is_long or is_last):
            return self._enter(first, start, fits=fits)
        if is_last or not is_long:
            return _MISSING
        if first != _QUOTE:
            raise self._wrong("a number has no end", start)
        self._begin(fits=fits)
        self._state, self._in_name = "string", False
        return start + 1

    def _part(self, data: bytes, start: int, *, is_last: bool) -> int:
        """Take a value that is to be kept, as much of it as there is room for."""
        end = _end_of_value(data, start, len(data))
        if end == _MISSING and data[start] in CLOSING:
            end = end_of_container(data, start)
        if end != _MISSING:
            return self._whole(data[start:end], start, fits=True)
        if is_last or len(data) - start <= self._most:
            return _MISSING
        self._keep(data[start:])
        return len(data)

    def _whole(self, value: bytes, start: int, *, fits: bool) -> int:
        self._check(value, start)
        self._begin(fits=fits)
        if fits:
            self._look_into(value, len(self._open))
        self._end()
        return start + len(value)

    def _begin(self, *, fits: bool) -> None:
        """Begin a value."""
        if not self._passed and self._open:
            self._count(1)
            if fits:
                self._open[-1].take()

    def _end(self) -> None:
        """End a value."""
        if not self._passed and self._open:
            self._open[-1].go_on(1)
        self._state = "after" if self._passed or self._open else "end"

    def _enter(self, first: int, start: int, *, fits: bool) -> int:
        self._begin(fits=fits)
        if fits:
            self._open.append(_Open(first == _OBJECT, self._steps[len(self._open)]))
        elif len(self._passed) < _DEEPEST:
            self._passed.append(CLOSING[first])
        else:
            raise self._wrong(f"more than {_DEEPEST:,} brackets are open", start)
        self._state = "first"
        return start + 1

    def _close(self, start: int) -> int:
        (self._passed or self._open).pop()
        self._end()
        return start + 1

    def _string(self, data: bytes, start: int) -> int:
        """Pass over a part of a long string."""
        end = IN_STRING.match(data, start).end()  # type: ignore[union-attr]
        if data[end : end + 1] == b'"':
            if self._in_name:
                self._state = "colon"
            else:
                self._end()
            return end + 1
        if len(data) - end >= LONGEST_ESCAPE:
            raise self._wrong("a string has a sign that must be written in another way", end)
        return end if end > start else _MISSING

    # --- what is whole -----------------------------------------------------------------------------------------------

    def _look_into(self, value: bytes, depth: int) -> None:
        """Keep the parts of a value that fit the steps from `depth` on."""
        if self.is_cut:
            return
        if depth == len(self._steps):
            self._keep(value)
            return
        step = self._steps[depth]
        if value.startswith(b"{"):
            if isinstance(step, str):
                inner = next((inner for name, inner in members_of(value) if is_name(name, step)), None)
                if inner is not None:
                    self._look_into(inner, depth + 1)
            elif step is EVERY:
                for _, inner in members_of(value):
                    self._look_into(inner, depth + 1)
        elif value.startswith(b"[") and not isinstance(step, str):
            for inner in islice(values_of(value[1:-1]), step.start, step.stop):
                self._look_into(inner, depth + 1)

    def _keep(self, part: bytes) -> None:
        kept = part[: self._most]
        self._most -= len(kept)
        self.found.append(kept)
        self.is_cut = len(kept) < len(part) or (self._most <= 0 and not self.is_single)

    def _check(self, data: bytes, start: int) -> None:
        """Raise an error unless this is a value."""
        try:
            _ANY.decode(data)
        except (msgspec.DecodeError, RecursionError):  # it knows no NaN, and says little
            text = data.decode(errors="surrogatepass")
            try:
                _LENIENT.decode(text)
            except json.JSONDecodeError as error:
                before = len(text[: error.pos].encode(errors="surrogatepass"))
                raise self._wrong(error.msg.removesuffix(" at"), start + before) from None
            except RecursionError:
                raise self._wrong("too many brackets are open", start) from None
            self._is_strict = False


def _end_of_value(data: bytes, start: int, most: int) -> int:
    """Return where a value ends, if it is no container that is deep or has more than so many bytes."""
    if data[start] in CLOSING:
        found = nested().container.match(data, start, start + most)
    elif data[start] == _QUOTE:
        found = STRING.match(data, start)
    else:
        found = WORD.match(data, start)
        if found is not None and found.end() == len(data):
            return _MISSING
    return _MISSING if found is None else found.end()
