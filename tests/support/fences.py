"""What a model reads of strangers, told apart from what it reads of us."""

import re

_FENCE = re.compile(
    r"^--- text from ([^\n]+) ([0-9a-f]{8,}) ---\n(.*?)\n--- end of text from \1 \2 ---$", re.MULTILINE | re.DOTALL
)


def inside(output: str) -> str:
    """Return what stands between marks, all of it."""
    return "\n".join(found[3] for found in _FENCE.finditer(output))


def outside(output: str) -> str:
    """Return what stands outside of marks."""
    return _FENCE.sub("", output)
