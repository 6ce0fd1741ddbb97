"""Identifiers: a prefix that says what it is, when it was made, and enough randomness that nobody can guess another's.

Those made later sort later. Indexes of what is stored grow at their end for that: a random id would change some other
page of each for every row, and the more the larger they are.
"""

import os
import time

_BYTES = 17
_DRAWN = 128
_unused: list[str] = []
"""Random digits that were drawn and are in no id yet: a request needs several, and each draw is a system call."""
os.register_at_fork(after_in_child=_unused.clear)  # or parent and child would give the same ids


def new_id(prefix: str) -> str:
    """Return a new identifier, such as `resp_0660…`: 14 digits of microseconds, and 34 that are random."""
    try:
        digits = _unused.pop()  # and not a look before it: any thread may ask
    except IndexError:
        digits = _drawn()
    microseconds = (time.time_ns() // 1000).to_bytes(7, "big").hex()  # a third of what a format costs
    return f"{prefix}_{microseconds}{digits}"


def made_at(identifier: str) -> float:
    """Return when an identifier was made, in seconds since 1970."""
    return int(identifier.partition("_")[2][:14], 16) / 1e6


def random_digits() -> str:
    """Return 34 random hexadecimal digits; any thread may ask."""
    try:
        return _unused.pop()
    except IndexError:
        return _drawn()


def _drawn() -> str:
    """Draw new digits; return the first of them, and keep the others."""
    first, *others = os.urandom(_BYTES * _DRAWN).hex("-", _BYTES).split("-")
    _unused.extend(others)
    return first
