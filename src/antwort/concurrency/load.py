"""What a process of the server has to do for those who wait: work in the background looks at it, and stands back."""

from msgspec import Struct

LITTLE, MUCH = 1, 5
"""What a request counts that only reads, such as those that ask again and again how far something is, and any other."""


class ServerLoad(Struct):
    """What is asked of a process, and how late its loop is."""

    asked: int = 0
    """What the requests so far count, those of its clients; it only grows."""
    running: int = 0
    """Requests that are under way."""
    lag: float = 0.0
    """How late the loop came to what was due when it was looked at last, in seconds."""
