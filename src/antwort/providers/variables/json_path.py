"""A part of a JSON document by its path, found while the document streams by: nothing but the part is kept.

Paths look like `$.items[0].name`, `$['a key']`, `$.items[*].id` and `$.items[10:20]`.
"""

import functools
import re
from collections.abc import Sequence

from msgspec import Struct
from pydantic_core import from_json

from antwort.provider import FunctionError

# No array has more elements than a number of so many digits, and nobody has to work with longer ones.
_STEP = re.compile(r"""\.(\w[\w-]*|\*)|\[(?:(\d{1,18})|(\d{0,18}):(\d{0,18})|(\*)|'([^']*)'|"([^"]*)")\]""")
_TOKEN = re.compile(rb'[ \t\r\n]+|[{}\[\]:,"]|[^ \t\r\n{}\[\]:,"]+')
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
# Of what is passed over only strings and brackets matter. Nothing is ever tried twice, so this is as quick as it looks.
_FLAT = rb'''[^{}\[\]"]++|"(?:[^"\\]++|\\.)*+"'''
_PASSED = re.compile(rb"(?:%b)*+" % _FLAT, re.DOTALL)
_DEEP = 6
"""How deep containers are nested that are passed over in one go."""


def _nested(depth: int) -> bytes:
    inner = rb"|" + _nested(depth - 1) if depth else b""
    return rb"[{\[](?:%b%b)*+[}\]]" % (_FLAT, inner)


@functools.cache  # long, and made for the first document that is read
def _container() -> re.Pattern[bytes]:
    return re.compile(_nested(_DEEP), re.DOTALL)


_LONGEST_NAME = 1000
_OPENING, _CLOSING = b"{[", b"}]"
Step = str | range


def parse_path(path: str) -> Sequence[Step]:
    """Return the steps of a path: names, and ranges of positions; a FunctionError if it cannot be read."""
    rest = path.strip().removeprefix("$")
    steps: list[Step] = []
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    while rest:
        found = _STEP.match(rest)
        if found is None:
            raise FunctionError(f"The path cannot be read at '{rest[:40]}'; write it like $.items[0].name.")
        name, position, start, end, every, *quoted = found.groups()
        if position is not None:
            steps.append(range(int(position), int(position) + 1))
        elif start is not None:
            steps.append(range(int(start or 0), int(end) if end else _EVERY.stop))
        elif every or name == "*":
            steps.append(_EVERY)
        else:
            steps.append(next(part for part in (name, *quoted) if part is not None))
        rest = rest[found.end() :]
    return steps


_EVERY = range(2**62)
"""Each member of an object or element of an array."""


class _Container(Struct):
    """An object or array on the path."""

    is_object: bool
    position: int = 0
    name: str = ""
    wants_name: bool = False


class JsonScanner:
    """Takes a document in pieces; `found` has the parts that fit the path, as they are written.

    Of all parts together `most` bytes are kept.
    """

    def __init__(self, steps: Sequence[Step], most: int) -> None:
        self._steps = steps
        self._most = most
        self._is_single = all(isinstance(step, str) or len(step) == 1 for step in steps)
        self._open: list[_Container] = []
        """The containers on the path that are open."""
        self._passed = 0
        """Containers that are open within a value that is not looked into."""
        self._part: bytearray | None = None
        """What is there of a part that fits."""
        self._name: bytearray | None = None
        """What is there of the name of a member."""
        self._in_string = self._in_word = False
        self._rest = b""
        self.found: list[bytes] = []
        self.is_cut = False
        self.children = 0
        """Members or elements of the document itself."""
        self.names: list[str] = []
        """The names of its first members."""

    @property
    def done(self) -> bool:
        """Tell whether the rest of the document makes no difference."""
        return self.is_cut or (self._is_single and bool(self.found) and bool(self._steps))

    @property
    def is_single(self) -> bool:
        """Tell whether the path fits one part at most."""
        return self._is_single

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece; return whether another one is wanted."""
        data, position = self._rest + chunk, 0
        self._rest = b""
        while position < len(data) and not self.done:
            start, position = position, self._advance(data, position)
            if position == start:  # half of an escape
                self._rest = data[start:]
                break
        return not self.done

    def end(self) -> None:
        """Take note that the document is over."""
        self._end_word()

    def _advance(self, data: bytes, start: int) -> int:
        """Take the next token, or a part of it; return where it ends."""
        if self._in_string:
            end = _STRING.match(data, start).end()  # type: ignore[union-attr] # it matches nothing, too
            is_over = data[end : end + 1] == b'"'
            self._keep(data[start : end + is_over])
            if is_over:
                self._in_string = False
                self._end_string()
                end += 1
            return end
        if self._passed and self._part is None:
            end = _PASSED.match(data, start).end()  # type: ignore[union-attr]
            if end > start:
                return end
            if (whole := _container().match(data, start)) is not None:
                return whole.end()
        found = _TOKEN.match(data, start)
        token = data[start : found.end()] if found else b""
        was_passed = self._passed
        self._take(token)
        if self._passed > was_passed == 0 and self._part is None:  # the whole of it may be there
            whole = _container().match(data, start)
            if whole is not None:
                self._passed = 0
                self._end_value()
                return whole.end()
        return start + len(token)

    def _take(self, token: bytes) -> None:
        first = token[:1]
        is_word = first not in b' \t\r\n{}[]:,"'
        if not is_word:
            self._end_word()
        if first == b'"':
            self._begin_string()
        elif first in _OPENING:
            self._begin_container(token)
        elif first in _CLOSING:
            self._end_container(token)
        elif is_word:
            if not self._in_word and not self._passed:
                self._begin_value(is_container=False)
            self._in_word = True
            self._keep(token)
        else:
            self._keep(token)
            if not self._passed and self._open and self._part is None and first == b",":
                container = self._open[-1]
                container.position += 1
                container.wants_name = container.is_object

    # --- strings, words and containers -------------------------------------------------------------------------------

    def _begin_string(self) -> None:
        self._in_string = True
        if not self._passed and self._part is None:
            if self._open and self._open[-1].wants_name:
                self._name = bytearray()
            else:
                self._begin_value(is_container=False)
        self._keep(b'"')

    def _end_string(self) -> None:
        if self._name is not None:
            container = self._open[-1]
            container.name = _text(bytes(self._name))
            container.wants_name = False
            self._name = None
        elif not self._passed:
            self._end_value()

    def _end_word(self) -> None:
        if self._in_word:
            self._in_word = False
            if not self._passed:
                self._end_value()

    def _begin_container(self, token: bytes) -> None:
        if self._passed:
            self._passed += 1
        elif self._begin_value(is_container=True):
            is_object = token == b"{"
            self._open.append(_Container(is_object, wants_name=is_object))
        else:
            self._passed = 1
        self._keep(token)

    def _end_container(self, token: bytes) -> None:
        self._keep(token)
        if self._passed:
            self._passed -= 1
            if not self._passed:
                self._end_value()
        elif self._open:
            self._open.pop()

    # --- values ------------------------------------------------------------------------------------------------------

    def _begin_value(self, *, is_container: bool) -> bool:
        """Begin a value; return whether it is a container to look into."""
        depth = len(self._open)
        if depth == 1:
            self.children += 1
            if self._open[0].is_object and len(self.names) < 50:
                self.names.append(self._open[0].name)
        if depth and not _fits(self._steps[depth - 1], self._open[-1]):
            return False
        if depth == len(self._steps):
            self._part = bytearray()
            return False
        return is_container

    def _end_value(self) -> None:
        if self._part is not None:
            self.found.append(bytes(self._part))
            self._part = None
            if self._most <= 0:
                self.is_cut = True

    def _keep(self, piece: bytes) -> None:
        if self._name is not None and len(self._name) < _LONGEST_NAME:
            self._name += piece
        elif self._part is not None:
            taken = piece[: self._most]
            self._part += taken
            self._most -= len(taken)
            if len(taken) < len(piece):
                self.found.append(bytes(self._part))
                self._part, self.is_cut = None, True


def _fits(step: Step, container: _Container) -> bool:
    if isinstance(step, str):
        return container.is_object and container.name == step
    return step is _EVERY or (not container.is_object and container.position in step)


def _text(string: bytes) -> str:
    """Read a JSON string; one that cannot be read is taken as it is."""
    return read_string(string) or string.strip(b'"').decode(errors="replace")


def read_string(value: bytes) -> str | None:
    """Return what a JSON string says; None if it is none."""
    try:
        decoded = from_json(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, str) else None
