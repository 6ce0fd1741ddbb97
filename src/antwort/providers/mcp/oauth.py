"""Tokens of OAuth that antwort gets for itself: client credentials."""

import math
from base64 import b64encode
from time import monotonic
from urllib.parse import quote, urlencode

from pydantic import Field

from antwort.provider import HttpClient, OutboundError, SecretStr, Settings, SingleFlight
from antwort.providers.mcp.errors import McpHttpError

_PATIENCE = 10.0
_LARGEST = 256 * 1024
_LONGEST = 1e9
"""Seconds for which a token is kept at most: some say numbers that no clock has."""
_EARLY = 30.0
"""Seconds before its end in which a token is not used any more."""


class McpOAuthSettings(Settings):
    """How a token is got."""

    token_url: str = Field(pattern=r"^https?://", description="Where tokens are given.")
    client_id: str = Field(min_length=1, description="Who antwort is there.")
    client_secret: SecretStr = Field(description="Its secret, sent by HTTP Basic.")
    scope: str | None = Field(default=None, description="What the token is to be good for.")
    resource: str | None = Field(default=None, description="For whom, if the authorization server wants to know it.")


class ClientTokens:
    """The token for one server, kept until it ends."""

    def __init__(self, http: HttpClient, settings: McpOAuthSettings) -> None:
        self._http = http
        self._settings = settings
        self._asking = SingleFlight(self._ask)
        self._token = ""
        self._ends = -math.inf

    async def token(self) -> str:
        """Return a token; McpHttpError if none is given."""
        if monotonic() >= self._ends:
            await self._asking.outcome()
        return self._token

    def forget(self) -> None:
        """Get another token next time: the server has refused this one."""
        self._ends = -math.inf

    async def _ask(self) -> None:
        own = self._settings
        pair = f"{quote(own.client_id, safe='')}:{quote(own.client_secret.get_secret_value(), safe='')}"
        wanted = {"grant_type": "client_credentials", "scope": own.scope, "resource": own.resource}
        try:
            answer = await self._http.call(
                "POST",
                own.token_url,
                headers={
                    "authorization": f"Basic {b64encode(pair.encode()).decode()}",
                    "content-type": "application/x-www-form-urlencoded",
                    "accept": "application/json",
                },
                body=urlencode({name: value for name, value in wanted.items() if value is not None}).encode(),
                time_limit=_PATIENCE,
                max_bytes=_LARGEST,
            )
        except OutboundError:
            raise McpHttpError("The authorization server of the MCP server cannot be reached.") from None
        try:
            said = answer.json()
            token, seconds = said["access_token"], said.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            token = seconds = None
        if answer.status != 200 or not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise McpHttpError(f"The authorization server of the MCP server gives no token ({answer.status}).")
        lasts = min(seconds, _LONGEST) if isinstance(seconds, int | float) else _LONGEST
        self._token, self._ends = token, monotonic() + max(0.0, lasts - _EARLY)
