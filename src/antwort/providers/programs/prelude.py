"""What every program has besides the functions of its agent: the same text for every interpreter."""

import re
import unicodedata

PRELUDE = '''
class Variable:
    """A value that is kept outside; parts of it can be read."""

    def __init__(self, id, key, size, kind):
        self.id = id
        self.key = key
        self.size = size
        self.kind = kind

    def __repr__(self):
        return f"<variable {self.key}: {self.kind}, {self.size} bytes>"

    async def read(self, offset=0, limit=10000):
        return await _variable_read(self.id, offset, limit)

    async def lines(self, first=1, count=100):
        return await _variable_lines(self.id, first, count)

    async def grep(self, pattern, limit=100):
        return await _variable_grep(self.id, pattern, limit)

    async def load(self):
        return await _variable_load(self.id)


async def variable(name):
    return Variable(**await _variable_find(name["$ref"] if isinstance(name, dict) else name))


async def variables():
    return [Variable(**one) for one in await _variable_list()]


async def set_variable(key, value):
    return Variable(**await _variable_set(key, value))
'''

NAMES = frozenset({"Variable", "variable", "variables", "set_variable"})
"""What it defines."""
_NAMED = re.compile(rf"\b(?:{'|'.join(sorted(NAMES))})\b")


def needs_prelude(code: str) -> bool:
    """Tell whether a program names something of it; most do not, and to load it takes as long as to run a small one."""
    # Python takes names that are written otherwise, as with wide letters, for the same.
    return _NAMED.search(code if code.isascii() else unicodedata.normalize("NFKC", code)) is not None
