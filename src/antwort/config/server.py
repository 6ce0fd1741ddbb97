"""Settings of the server towards its clients: where it listens, connections, credentials, limits."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    ByteSize,
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)

from antwort.concurrency.slots import MOST_WAITING
from antwort.config.defaults import TENANTS
from antwort.config.durations import Duration, Seconds
from antwort.config.engine import is_network
from antwort.config.settings import Seldom, Settings
from antwort.context.context import mistake_in
from antwort.errors import did_you_mean
from antwort.lazy_imports import compiled_on_use

_ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES256K", "ES384", "ES512", "EdDSA")
"""The signatures a server can check without being able to forge them."""


_HOST = compiled_on_use(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _possible(scope: str) -> str:
    if mistake := mistake_in(scope):
        raise ValueError(mistake)
    return scope


UserPath = Annotated[Path, AfterValidator(_expand)]
"""A path that may start with `~`."""


KeyScope = Annotated[str, AfterValidator(_possible)]
"""A scope that may be one of a provider, but is no mistake in one of the API's."""


class ConnectionsConfig(Settings):
    """Connections of clients: sizes of what precedes a body, time-outs, and how many may be open."""

    max_request_line: ByteSize = Field(
        default=ByteSize(8 * 1024), gt=0, description="Longest path with its query, such as 8KiB; else 414."
    )
    max_headers: PositiveInt = Field(default=100, description="Headers of a request; else 431.")
    max_header_bytes: ByteSize = Field(
        default=ByteSize(16 * 1024), gt=0, description="Largest single header, name and value; else 431."
    )
    max_head_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024),
        gt=0,
        description="Largest sum of a request's headers; else 431. As much may stand between the chunks of a body.",
    )
    head_timeout: Duration = Field(
        default=15.0, description="Time in which the headers of a request must have come; else 408."
    )
    body_timeout: Duration = Field(
        default=30.0, description="Time that a body may take, with a second more for each `body_rate` bytes; else 408."
    )
    body_rate: PositiveInt = Field(
        default=1000, description="Bytes per second that a body which takes longer than `body_timeout` must bring."
    )
    idle_timeout: Duration = Field(
        default=75.0,  # proxies keep theirs for a minute, and who sends the next request should close first
        description="Time that a connection is kept open between two requests; longer than a proxy in front keeps it.",
    )
    write_timeout: Duration = Field(
        default=60.0, description="Time after which a client that reads nothing of its answer is cut off."
    )
    max_idle_per_address: PositiveInt = Field(
        default=500,
        description="Connections of one address without a request under way; beyond it the oldest are closed.",
    )
    max_open: PositiveInt | None = Field(
        default=None, description="Connections at the same time; without it, half of the file handles there may be."
    )


class WebSocketConfig(Settings):
    """WebSocket connections to /v1/responses."""

    enabled: bool = Field(default=True, description="Take WebSocket connections.")
    max_connections: PositiveInt = Field(default=1000, description="Connections at the same time.")
    max_minutes: PositiveFloat = Field(default=60.0, description="Minutes that a connection lasts.")
    max_queue: PositiveInt = Field(
        default=16, description="Requests that wait on a connection while one is being answered."
    )
    ping: Duration = Field(
        default=30.0, description="Time between pings; a client that answers none for twice as long is cut off."
    )
    memory: ByteSize = Field(
        default=ByteSize(8 * 1024**2),
        ge=0,
        description="Most that a connection remembers of responses that are not stored, such as 8MiB.",
    )


class McpEndpointConfig(Settings):
    """The functions of the server as tools of an MCP server, at /mcp."""

    enabled: bool = Field(default=True, description="Let MCP clients call the functions of the server at /mcp.")
    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#\s]+/[^?#\s]*$",
        description="URL of /mcp as clients know it, for tokens of an issuer; as the request names it if not given.",
    )


class ChatCompletionsConfig(Settings):
    """/v1/chat/completions."""

    functions: bool = Field(
        default=False,
        description="Make chat completions as responses are made, with the functions of the server; else pass them on.",
    )


class ServerConfig(Settings):
    """The HTTP server."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    workers: PositiveInt = Field(
        default=1, description="Processes that answer, each on a processor of its own; more than one need PostgreSQL."
    )
    with_worker: bool = Field(
        default=True, description="Work on background responses here; else other servers on the database do."
    )
    worker_timeout: Duration | None = Field(
        default=30.0, description="Time without a sign of life after which a worker is replaced; null for never."
    )
    max_body_bytes: ByteSize = Field(
        default=ByteSize(32 * 1024**2), gt=0, description="Largest request body taken, such as 32MiB."
    )
    max_bodies_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2),
        gt=0,
        description="Sum of the bodies over 64KiB of all requests under way; one that does not fit gets a 503.",
    )
    max_values: PositiveInt = Field(
        default=150_000,
        description="JSON values in a request: items, parts, tools, properties, numbers. Not of texts to embed.",
    )
    cors_origins: list[str] = Field(
        default=[], description="Origins of web pages that may call the server; '*' allows all."
    )
    allowed_hosts: list[str] = Field(
        default=[],
        description="Hosts that requests may be sent to, such as `*.a.example` or `10.0.0.0/8`; '*' allows all.",
    )
    allow_anonymous: bool = Field(
        default=False, description="Serve without authentication on an address other machines can reach."
    )
    console: bool = Field(default=True, description="Serve the console, a page for browsers, at /.")
    protect_metrics: bool = Field(default=False, description="Require the scope `metrics` at /metrics.")
    shutdown_timeout: Seconds = Field(
        default=10.0, description="Time that running requests get to finish when the server stops."
    )
    connections: ConnectionsConfig = Field(
        default=ConnectionsConfig(), description="Connections of clients: sizes, time-outs, how many."
    )
    websocket: WebSocketConfig = Field(default=WebSocketConfig(), description="WebSocket connections to /v1/responses.")
    chat_completions: ChatCompletionsConfig = Field(
        default=ChatCompletionsConfig(), description="What /v1/chat/completions does."
    )
    mcp: McpEndpointConfig = Field(
        default=McpEndpointConfig(), description="The functions as tools of an MCP server, at /mcp."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, entries: list[str]) -> list[str]:
        for entry in entries:
            if entry != "*" and not _HOST.fullmatch(entry) and not is_network(entry.strip("[]")):
                raise ValueError(f"'{entry}' is no host name, address or network; leave out scheme and port")
        return entries


class ApiKeyConfig(Settings, defer_build=True):
    """One API key, given in the configuration rather than made by `antwort keys new`."""

    id: str = Field(min_length=1, description="Public name of the key, shown in logs.")
    key: SecretStr | None = Field(default=None, min_length=1, description="The key itself.")
    hash: str | None = Field(default=None, min_length=1, description="Hash of the key, instead of the key itself.")
    tenant: str = Field(default="default", min_length=1, description="Tenant the key belongs to.")
    subject: str | None = Field(default=None, description="Who uses the key; its id if not given.")
    scopes: list[KeyScope] = Field(default=["*"], description="What the key may do; '*' is everything.")

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        if (self.key is None) == (self.hash is None):
            raise ValueError("needs exactly one of 'key', 'key_file' and 'hash'")
        return self


class JwtConfig(Settings, defer_build=True):
    """Bearer tokens signed by an identity provider."""

    issuer: str = Field(min_length=1, description="Issuer (`iss`) the tokens must name.")
    audience: str | list[str] = Field(min_length=1, description="Audience (`aud`), or several of which one must match.")
    jwks_url: str | None = Field(
        default=None, description="Where the issuer publishes its keys; found by OIDC discovery if not given."
    )
    jwks_file: UserPath | None = Field(default=None, description="File with the issuer's keys, instead of a URL.")
    algorithms: list[str] = Field(
        default=["RS256", "ES256"], min_length=1, description="Signature algorithms accepted; asymmetric ones only."
    )
    tenant_claim: str = Field(default="tenant", min_length=1, description="Claim that holds the tenant.")
    subject_claim: str = Field(default="sub", min_length=1, description="Claim that holds the subject.")
    scope_claim: str = Field(default="scope", min_length=1, description="Claim that holds the scopes.")
    scopes: list[KeyScope] = Field(
        default=[],
        description="What every token may do besides what its claim says; '*' is all. With neither, it opens nothing.",
    )
    leeway: Seconds = Field(default=30.0, description="Time by which clocks may differ.")
    refresh: Duration = Field(default=300.0, description="Time after which the issuer's keys are read again.")

    @field_validator("algorithms")
    @classmethod
    def _are_asymmetric(cls, algorithms: list[str]) -> list[str]:
        for name in algorithms:
            if name.lower() == "none":
                raise ValueError("the algorithm 'none' accepts unsigned tokens and is refused")
            if name.upper().startswith("HS"):
                raise ValueError(f"the algorithm '{name}' is symmetric and is refused; use RS256 or ES256")
            if name not in _ASYMMETRIC:
                raise ValueError(f"unknown algorithm '{name}'{did_you_mean(name, _ASYMMETRIC)}")
        return algorithms

    @model_validator(mode="after")
    def _has_one_key_source(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("give either 'jwks_url' or 'jwks_file', not both")
        return self


class AuthConfig(Settings):
    """Who may call the server."""

    mode: Literal["auto", "none", "required"] = Field(
        default="auto", description="Whether callers must authenticate; `auto`: as soon as a key or an issuer is known."
    )
    api_keys: list[Annotated[ApiKeyConfig, Seldom()]] = Field(default=[], description="API keys given here.")
    keys_file: UserPath | None = Field(
        default=None, description="File of the keys made by `antwort keys new`; `<data_dir>/keys.json` if not given."
    )
    jwt: Annotated[JwtConfig, Seldom()] | None = Field(
        default=None, description="Accept tokens signed by an identity provider."
    )
    max_failures: PositiveInt = Field(
        default=100,
        description="Failed attempts to authenticate that an address may have in a minute; beyond it they are a 429.",
    )

    @field_validator("api_keys")
    @classmethod
    def _have_different_ids(cls, keys: list[ApiKeyConfig]) -> list[ApiKeyConfig]:
        seen: set[str] = set()
        for key in keys:
            if key.id in seen:
                raise ValueError(f"two keys have the id '{key.id}'")
            seen.add(key.id)
        return keys


class RateConfig(Settings):
    """How many requests are taken."""

    requests_per_minute: PositiveInt | None = Field(
        default=None, description="Requests per minute; no limit if not given."
    )
    burst: PositiveInt | None = Field(
        default=None, description="Requests taken at once before the rate counts; requests_per_minute if not given."
    )

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if self.burst is not None and self.requests_per_minute is None:
            raise ValueError("'burst' has no effect without 'requests_per_minute'")
        return self


class TenantLimitsConfig(RateConfig):
    """What one tenant may take."""

    max_runs: PositiveInt | None = Field(
        default=None,
        description="Responses that are being made at the same time, in the background too; no limit if not given.",
    )
    max_waiting: PositiveInt = Field(
        default=MOST_WAITING,
        description="Requests and calls that may wait in one queue; further ones are refused.",
    )
    max_stored_bytes: ByteSize | None = Field(
        default=None,
        gt=0,
        description="Most that is stored, of all that is kept together, such as 2GiB; no limit if not given.",
    )
    max_variable_bytes: ByteSize | None = Field(
        default=ByteSize(10 * 1024**3),
        gt=0,
        description="Most that values of variables take, equal ones counted once; null for no limit.",
    )
    max_value_bytes: ByteSize = Field(
        default=ByteSize(TENANTS.max_value_bytes), gt=0, description="Largest value of a variable, such as 100MiB."
    )
    max_file_bytes: ByteSize = Field(
        default=ByteSize(TENANTS.max_file_bytes), gt=0, description="Largest file that is uploaded, such as 512MiB."
    )
    max_files_bytes: ByteSize | None = Field(
        default=ByteSize(10 * 1024**3), gt=0, description="Most that all files take together; null for no limit."
    )


class LimitsConfig(Settings):
    """Limits for each key and each tenant."""

    per_key: RateConfig = Field(default=RateConfig(), description="Limit for each API key or token subject.")
    per_tenant: TenantLimitsConfig = Field(
        default=TenantLimitsConfig(), description="Limit for each tenant, over all its keys."
    )
