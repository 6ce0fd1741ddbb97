"""Where clients get tokens for `/mcp`: told to whoever asks for it, and to whoever comes without one."""

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.types import Scope

from antwort.context.context import FUNCTIONS_CALL
from antwort.errors import APIError, AuthenticationError, PermissionDeniedError
from antwort.server.mcp.endpoint import PATH
from antwort.web.requests import named_headers
from antwort.web.routes import Example, Route

_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,260}")
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ProtectedResource(Struct, kw_only=True):
    """What a client has to know to get a token, as RFC 9728 has it."""

    resource: Annotated[str, Meta(description="The endpoint that the token is for.")]
    authorization_servers: Annotated[list[str], Meta(description="Who issues tokens.")]
    scopes_supported: Annotated[list[str], Meta(description="What a token has to allow.")]
    bearer_methods_supported: Annotated[list[Literal["header"]], Meta(description="How a token is sent.")]
    resource_name: Annotated[str, Meta(description="What it is called.")] = "antwort"


_EXAMPLE = Example(
    answer=ProtectedResource(
        resource="https://antwort.example/mcp",
        authorization_servers=["https://login.example"],
        scopes_supported=[FUNCTIONS_CALL],
        bearer_methods_supported=["header"],
    )
)


class TokenMetadata:
    """Tells of the issuer whose tokens are taken. `url` is that of the endpoint, if it is not as requests name it."""

    def __init__(self, issuer: str, url: str | None) -> None:
        self._issuer = issuer
        self._url = url
        self.public = frozenset({WELL_KNOWN, WELL_KNOWN + PATH})
        """The paths that need no credentials."""

    def routes(self) -> list[Route]:
        """Return the routes: clients ask for one with the path of the endpoint, or without."""
        return [
            Route("GET", path, handler, examples=[_EXAMPLE])
            for path, handler in ((WELL_KNOWN, self.metadata), (WELL_KNOWN + PATH, self.metadata_of_mcp))
        ]

    async def metadata(self, request: Request) -> ProtectedResource:
        """Tell who issues the tokens that /mcp takes."""
        return ProtectedResource(
            resource=self._url or f"{_base(request.scope)}{PATH}",
            authorization_servers=[self._issuer],
            scopes_supported=[FUNCTIONS_CALL],
            bearer_methods_supported=["header"],
        )

    async def metadata_of_mcp(self, request: Request) -> ProtectedResource:
        """Tell who issues the tokens that /mcp takes, for clients that ask with its path."""
        return await self.metadata(request)

    def challenge(self, scope: Scope, error: APIError) -> None:
        """Have whoever is refused at the endpoint told where to get a token that would do."""
        if scope["path"] != PATH or not isinstance(error, AuthenticationError | PermissionDeniedError):
            return
        base = _base(scope) if self._url is None else self._url.removesuffix(PATH)
        said = [f'resource_metadata="{base}{WELL_KNOWN}{PATH}"', f'scope="{FUNCTIONS_CALL}"']
        if isinstance(error, PermissionDeniedError):
            said.insert(0, 'error="insufficient_scope"')
        error.headers["www-authenticate"] = f"Bearer {', '.join(said)}"


def _base(scope: Scope) -> str:
    """Return the URL of the server as a request names it."""
    host = named_headers(scope).get(b"host", b"").decode("latin-1")
    return f"{scope.get('scheme', 'http')}://{host if _HOST.fullmatch(host) else 'localhost'}"
