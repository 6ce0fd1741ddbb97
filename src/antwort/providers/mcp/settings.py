"""What an operator can set."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import PositiveInt, field_validator, model_validator

from antwort.provider import Duration, Field, SecretStr, Settings
from antwort.providers.mcp.oauth import McpOAuthSettings


class McpSandboxSettings(Settings):
    """What a program has in the sandbox."""

    # Text, since a path in settings is one that the sandbox keeps from whoever is in it.
    readable: list[Annotated[str, Field(pattern=r"^/")]] = Field(
        default_factory=list,
        description="Files and folders that it can read, each with its whole path, beside those of the system.",
    )
    network: bool = Field(
        default=False, description="Whether it has the network of the host, with all that it can reach."
    )
    max_memory: PositiveInt = Field(default=512 << 20, description="Bytes of memory that it may use.")


class McpServerSettings(Settings):
    """A server of the operator, which requests name by its label."""

    url: str | None = Field(
        default=None, pattern=r"^https?://", description="Where it is, in whichever network; or `command`."
    )
    command: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The program that it is, with arguments: it is started when it is needed, and again when it ends.",
    )
    env: dict[str, SecretStr] = Field(
        default_factory=dict, description="Environment of the program, besides PATH, HOME and language."
    )
    folder: Path | None = Field(default=None, description="Working directory of the program.")
    sandbox: McpSandboxSettings | None = Field(
        default=None, description="The program runs in the sandbox, if this is `true` or says what it has there."
    )
    authorization: SecretStr | None = Field(
        default=None, description="A token that it wants, as a bearer token; a request may bring another."
    )
    oauth: McpOAuthSettings | None = Field(
        default=None, description="Where antwort gets a token for it, with credentials of its own."
    )
    headers: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Headers of each request to it; `{tenant}` and `{subject}` in them are the caller's.",
    )
    allowed_tools: list[str] | None = Field(default=None, description="Its tools that there are; all if not given.")
    offer: Literal["always", "deferred", "on_request"] | None = Field(
        default=None,
        description="Whether its tools are functions of the server, for requests that do not name it: of all, "
        "`always` or, once the model has found them, `deferred`; or of those that name the function, `on_request`.",
    )
    prefix: str = Field(
        default="", pattern=r"^[a-zA-Z0-9_-]{0,32}$", description="What the names of such functions begin with."
    )
    answers: list[str] = Field(
        default_factory=list,
        description="Tool types of requests, such as `web_search`, that its only tool, or the first of "
        "`allowed_tools`, answers.",
    )
    arguments: dict[str, str] = Field(
        default_factory=dict,
        description="What that tool calls the arguments which items show: `{query: q}`. Found out if not given.",
    )
    require_approval: Literal["always", "never"] = Field(
        default="never", description="Whether calls wait for an approval; requests may only want more of them."
    )

    @field_validator("answers", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("sandbox", mode="before")
    @classmethod
    def _as_section(cls, value: Any) -> Any:
        return ({} if value else None) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _check_sandbox(self) -> Self:
        if self.sandbox is not None and self.command is None:
            raise ValueError("sandbox is for a server that is a program, with a command")
        if self.sandbox is not None and self.folder is not None:
            raise ValueError("a program in the sandbox has no folder: name it in sandbox.readable, and use whole paths")
        return self

    @model_validator(mode="after")
    def _check_offer(self) -> Self:
        if self.offer is None and (self.prefix or self.answers):
            raise ValueError(
                "prefix and answers are for servers with an offer: say `offer: always`, `deferred` or `on_request`"
            )
        return self

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("a server has either a url or a command")
        if self.command is not None and (self.headers or self.authorization or self.oauth):
            raise ValueError("a program has no headers: give it what it needs in env")
        if self.authorization is not None and self.oauth is not None:
            raise ValueError("a server has either an authorization or oauth")
        return self


class McpSettings(Settings):
    """How servers are asked that requests name, and within which limits."""

    servers: dict[str, McpServerSettings] = Field(
        default_factory=dict, description="Servers that requests name by their label alone."
    )
    require_approval: Literal["always", "never"] = Field(
        default="always",
        description="Whether calls wait for an approval where a request does not say so: `always`, as at OpenAI, or "
        "`never`.",
    )
    timeout: Duration = Field(default=60.0, description="Time that a call may take.")
    list_timeout: Duration = Field(default=15.0, description="Time that a server may take to say which tools it has.")
    max_bytes: PositiveInt = Field(default=32 * 1024**2, description="Bytes of one answer of a server.")
    max_tools: PositiveInt = Field(default=1000, description="Tools of one server; none of one that has more is used.")
