"""The contract of an authenticator, the one that takes all, the chain of several, and credentials in headers."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from starlette.datastructures import Headers

from antwort.context import ANONYMOUS_TENANT, Principal
from antwort.errors import AuthenticationError

HOW_TO = "Send 'Authorization: Bearer <API key>'."
KEY_HEADERS = ("x-api-key", "api-key")
"""Where clients of the Anthropic and the Azure kind put the key."""


class Authenticator(Protocol):
    """One way to prove who is calling."""

    async def authenticate(self, headers: Headers, /) -> Principal | None:
        """Return the caller, or None to abstain because the credentials are not of this kind.

        Raise `AuthenticationError` to reject credentials that are of this kind but not valid.
        """

    async def holder(self, tenant: str, key_id: str, /) -> Principal | None:
        """Return whom an API key of a tenant stands for now, by its id; None if there is none in force."""

    def describe(self) -> str:
        """Name this way to the operator, in a few words and without secrets."""

    async def close(self) -> None:
        """Let go of whatever it holds."""


class Chain:
    """Authenticators asked in order: the first principal wins, the first rejection ends it."""

    def __init__(self, authenticators: Sequence[Authenticator], *, has_several_tenants: bool = False) -> None:
        self.authenticators = tuple(authenticators)
        self.has_several_tenants = has_several_tenants
        """Whether callers of more than one tenant are to be expected."""
        first = self.authenticators[0] if self.authenticators else None
        self.anyone = first.principal if isinstance(first, Anonymous) else None
        """Who calls, whatever the credentials, if the first authenticator takes all."""

    def replace_keys(self, keys: Authenticator) -> None:
        """Ask this one in the place of the first, which has the API keys, from now on."""
        self.authenticators = (keys, *self.authenticators[1:])

    async def holder(self, tenant: str, key_id: str) -> Principal | None:
        """Return whom an API key of a tenant stands for now, by its id; None if it was revoked or has expired."""
        for authenticator in self.authenticators:
            if (holder := await authenticator.holder(tenant, key_id)) is not None:
                return holder
        return None

    async def authenticate(self, headers: Headers) -> Principal:
        """Return the caller, or raise `AuthenticationError` when nobody accepts the credentials."""
        for authenticator in self.authenticators:
            principal = await authenticator.authenticate(headers)
            if principal is not None:
                return principal
        if any(name in headers for name in ("authorization", *KEY_HEADERS)):
            raise AuthenticationError(f"The credentials are not accepted. {HOW_TO}")
        raise AuthenticationError(f"Missing credentials. {HOW_TO}")

    def describe(self) -> str:
        """Name all ways to the operator, such as `API keys (3), JWT (https://issuer.example)`."""
        return ", ".join(authenticator.describe() for authenticator in self.authenticators)

    async def close(self) -> None:
        """Close every authenticator, also when one of them fails to."""
        async with AsyncExitStack() as stack:
            for authenticator in self.authenticators:
                stack.push_async_callback(authenticator.close)


def credential(headers: Headers) -> str | None:
    """Return the bearer token or API key of a request, or None when there is none that could be one.

    A header of another scheme counts as none; a malformed one is an `AuthenticationError`, which never repeats it.
    """
    values = headers.getlist("authorization")
    if len(values) > 1:
        raise AuthenticationError(f"There is more than one Authorization header. {HOW_TO}")
    if values:
        scheme, _, rest = values[0].strip().partition(" ")
        token = rest.strip()
        if not token or (scheme.lower() == "bearer" and len(token.split()) != 1):
            raise AuthenticationError(f"The Authorization header is malformed. {HOW_TO}")
        if scheme.lower() == "bearer":
            return token
    for name in KEY_HEADERS:
        if key := headers.get(name, "").strip():
            return key
    return None


class Anonymous:
    """Accept every request. Credentials are not even read, so clients that insist on sending a key still work."""

    def __init__(self) -> None:
        self.principal = Principal(ANONYMOUS_TENANT, "anonymous", frozenset({"*"}), method="none")

    async def authenticate(self, _headers: Headers) -> Principal:
        """Return the one anonymous caller."""
        return self.principal

    async def holder(self, _tenant: str, _key_id: str) -> Principal | None:
        """Know no keys."""
        return None

    def describe(self) -> str:
        """Name it to the operator."""
        return "none"

    async def close(self) -> None:
        """Hold nothing."""
