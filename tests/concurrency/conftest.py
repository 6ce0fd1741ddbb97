"""Large work is done for model servers, too: a server to ask, and somebody who takes the pieces of its answers."""

from tests.backends.conftest import notes, server

__all__ = ["notes", "server"]
