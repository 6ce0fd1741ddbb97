"""Paths of parts of a JSON document: `$.items[0].name`, `$['a key']`, `$.items[*].id` and `$.items[10:20]`."""

import re
from collections.abc import Sequence

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
