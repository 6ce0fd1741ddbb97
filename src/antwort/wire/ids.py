"""Identifiers: a prefix that says what it is, when it was made, and enough randomness that nobody can guess another's.

Those made later sort later. Indexes of what is stored grow at their end for that: a random id would change some other
page of each for every row, and the more the larger they are.
"""

import os
import time


def new_id(prefix: str) -> str:
    """Return a new identifier, such as `resp_0660…`: 14 digits of microseconds, and 34 that are random."""
    return f"{prefix}_{((time.time_ns() // 1000).to_bytes(7, 'big') + os.urandom(17)).hex()}"
