"""No authentication: everybody is the same caller."""

from starlette.datastructures import Headers

from antwort.context import ANONYMOUS_TENANT, Principal

__all__ = ["Anonymous"]


class Anonymous:
    """Accept every request. Credentials are not even read, so clients that insist on sending a key still work."""

    def __init__(self) -> None:
        self._principal = Principal(ANONYMOUS_TENANT, "anonymous", frozenset({"*"}), method="none")

    async def authenticate(self, _headers: Headers) -> Principal:
        """Return the one anonymous caller."""
        return self._principal

    def describe(self) -> str:
        """Name it to the operator."""
        return "none"

    async def close(self) -> None:
        """Hold nothing."""
