"""Identifiers: a prefix that says what it is, and enough randomness that nobody can guess another's."""

import os


def new_id(prefix: str) -> str:
    """Return a new identifier, such as `resp_6f1c…`."""
    return f"{prefix}_{os.urandom(24).hex()}"
