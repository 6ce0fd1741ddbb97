"""What JSON looks like from afar: where strings, containers and members end, in documents that are checked elsewhere.

Nothing in these expressions is ever tried twice, so that they are as quick as they look, whatever a document holds.
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from antwort.provider import FunctionError

# No array has more elements than a number of so many digits, and nobody has to work with longer ones.
_STEP = re.compile(r"""\.(\w[\w-]*|\*)|\[(?:(\d{1,18})|(\d{0,18}):(\d{0,18})|(\*)|'([^']*)'|"([^"]*)")\]""")
Step = str | range
"""The name of a member, or positions of elements."""
EVERY = range(2**62)
"""Each member of an object or element of an array."""


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
            steps.append(range(int(start or 0), int(end) if end else EVERY.stop))
        elif every or name == "*":
            steps.append(EVERY)
        else:
            steps.append(next(part for part in (name, *quoted) if part is not None))
        rest = rest[found.end() :]
    return steps


_LEVELS = 12
"""How deep containers are nested that are passed over in one go."""
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SPACE = rb"[ \t\r\n]*+"
_WORD = rb'[^ \t\r\n{}\[\]:,"]++'

STRING = re.compile(_STRING, re.DOTALL)
SPACE = re.compile(_SPACE)
WORD = re.compile(_WORD)
"""A number, or the name of a constant."""
IN_STRING = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
"""What may stand in a string."""
LONGEST_ESCAPE = 6
ESCAPED = re.compile(rb"\\u00[2-7]")
"""A sign of ASCII that is written as an escape, as hardly anybody does."""
CLOSING = {ord("{"): ord("}"), ord("["): ord("]")}
_SIGNS = re.compile(_STRING + rb'|["{}\[\],]', re.DOTALL)
_OPENING, _ENDING = frozenset({b"{", b"["}), frozenset({b"}", b"]"})
_TAILS = (1024, 4 * 1024)
"""Bytes at the end of a window that are looked at for the end of a member."""


class _Nested(Struct, frozen=True):
    """Expressions of things that have containers in them."""

    container: re.Pattern[bytes]
    run: re.Pattern[bytes]
    """Members, each with the comma behind it."""
    member: re.Pattern[bytes]
    """The name and the value of a member of an object."""
    value: re.Pattern[bytes]


@functools.cache  # they are long, and made for the first document that is read
def nested() -> _Nested:
    """Return the expressions of things that have containers in them."""
    container = _container(_LEVELS - 1)
    value = b"|".join((_STRING, container, _WORD))
    return _Nested(
        container=re.compile(container, re.DOTALL),
        run=re.compile(rb'(?:(?:[^{}\[\]",]++|%b|%b)++,)*+' % (_STRING, container), re.DOTALL),
        member=re.compile(rb"(%b)%b:%b(%b)" % (_STRING, _SPACE, _SPACE, value), re.DOTALL),
        value=re.compile(value, re.DOTALL),
    )


def _container(depth: int) -> bytes:
    inner = rb"|" + _container(depth - 1) if depth else b""
    return rb'[{\[](?:[^{}\[\]"]++|%b%b)*+[}\]]' % (_STRING, inner)


def members_of(members: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and values of what stands in an object, as they are written."""
    for found in nested().member.finditer(members):
        yield found[1], found[2]


def values_of(elements: bytes) -> Iterator[bytes]:
    """Yield the values of what stands in an array, as they are written."""
    for found in nested().value.finditer(elements):
        yield found[0]


def likely_ends(data: bytes, start: int) -> Iterator[int]:
    """Yield commas up to which members may be whole: the last ones that are within the fewest brackets of a tail.

    Whether the tail begins in a string nobody knows. A parser that reads from `start` to such a comma without an error
    has proven that it is the end of a member.
    """
    for size in _TAILS:
        if len(data) - start > size // 2:
            first = max(start, len(data) - size)
            quote = data.find(b'"', first)
            for begin in (quote + 1, first) if quote >= 0 and first > start else (first,):
                end = _last_comma(data, begin)
                if end > start:
                    yield end


def _last_comma(data: bytes, start: int) -> int:
    """Return the last comma within the fewest brackets, -1 if there is none."""
    depth, least, last = 0, len(data), -1
    for found in _SIGNS.finditer(data, start):
        sign = found[0]
        if sign in _OPENING:
            depth += 1
        elif sign in _ENDING:
            depth -= 1
        elif sign == b'"':  # a string without end
            break
        elif sign == b"," and depth <= least:
            least, last = depth, found.start()
    return last


def sign_of(step: Step, following: Step | None) -> re.Pattern[bytes] | None:
    """Return what a document has somewhere that has a step of a path, and the one that follows it, in each other.

    It may be written with escapes instead. None if that is always so, or nothing is known.
    """
    if isinstance(step, range):
        return re.compile(rb"[{\[]" if step is EVERY else rb"\[")
    if not step.isascii() or not step.isprintable() or not {'"', "\\", "/"}.isdisjoint(step):
        return None
    value = (
        b""
        if following is None
        else rb"\{"
        if isinstance(following, str)
        else rb"[{\[]"
        if following is EVERY
        else rb"\["
    )
    return re.compile(b'"%b"%b:%b%b' % (re.escape(step.encode()), _SPACE, _SPACE, value))


def end_of_container(data: bytes, start: int) -> int:
    """Return where a container ends, however deep it is; -1 if that is not there yet."""
    depth = 0
    for found in _SIGNS.finditer(data, start):
        sign = found[0]
        if sign == b'"':  # a string without end
            break
        depth += (sign in _OPENING) - (sign in _ENDING)
        if not depth:
            return found.end()
    return -1


def is_name(written: bytes, name: str) -> bool:
    """Tell whether the string of a document says a name."""
    if b"\\" in written:
        return text_of_name(written) == name
    return written == b'"%b"' % name.encode(errors="surrogatepass")


def text_of_name(written: bytes) -> str:
    """Return what the name of a member says."""
    return str(json.loads(written)) if written else "…"
