"""Identifiers: a prefix that says what it is, and enough randomness that nobody can guess another's."""

import secrets

__all__ = ["new_id"]


def new_id(prefix: str) -> str:
    """Return a new identifier, such as `resp_6f1c…`."""
    return f"{prefix}_{secrets.token_hex(24)}"
