"""The whole configuration. The docs and `antwort init` are generated from it, and from the sections it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from antwort.config.defaults import FUNCTIONS
from antwort.config.durations import Duration, Seconds
from antwort.config.engine import (
    AgentConfig,
    ApprovalPolicy,
    BackendConfig,
    EncryptionConfig,
    EngineConfig,
    OutboundConfig,
    StorageConfig,
)
from antwort.config.server import AuthConfig, LimitsConfig, ServerConfig, UserPath
from antwort.config.settings import Seldom, Settings


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


PromptName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_.-]+$")]


class PromptConfig(Settings, defer_build=True):
    """A prompt: a text that requests name instead of sending it."""

    template: str | None = Field(default=None, description="Its text, with `{{name}}` in the places of variables.")
    file: UserPath | None = Field(default=None, description="A file with its text, instead of `template`.")
    _text: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if (self.template is None) == (self.file is None):
            raise ValueError("give it either a `template` or a `file`")
        try:
            self._text = self.template or "" if self.file is None else self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ValueError(f"file: '{self.file}' cannot be read: {why}") from None
        return self

    @property
    def text(self) -> str:
        """Its text, wherever it is written."""
        return self._text


class FunctionsConfig(Settings):
    """Defaults for functions that do not set their own."""

    timeout: Duration | None = Field(default=FUNCTIONS.timeout, description="Time a call may take; null for no limit.")
    max_output: PositiveInt = Field(
        default=FUNCTIONS.max_output, description="Characters of a result that reach the model."
    )
    spill: Annotated[int, Field(ge=1500)] | None = Field(
        default=FUNCTIONS.spill,
        description="Characters of a result or of arguments above which a model that can reads a reference instead.",
    )
    max_referenced: ByteSize = Field(
        default=ByteSize(FUNCTIONS.max_referenced), gt=0, description="Bytes that references in one call may stand for."
    )
    threads: PositiveInt = Field(
        default=FUNCTIONS.threads, description="Threads of one provider for functions and routes that are not async."
    )
    grace: Seconds = Field(
        default=FUNCTIONS.grace,
        description="Time a call has to end after it was cancelled; then nobody waits for it any more.",
    )
    max_hanging: PositiveInt = Field(
        default=FUNCTIONS.max_hanging,
        description="Calls of one function that may run on after their time; with more, it is unavailable.",
    )
    start_timeout: Duration | None = Field(
        default=FUNCTIONS.start_timeout, description="Time a provider may take to start; null for no limit."
    )
    close_timeout: Duration | None = Field(
        default=FUNCTIONS.close_timeout, description="Time a provider may take to close; null for no limit."
    )
    concurrency: PositiveInt | None = Field(
        default=FUNCTIONS.concurrency,
        description="Calls of one function that run at the same time; no limit if not given.",
    )


class SandboxConfig(Settings):
    """Where code runs that models write."""

    unbounded: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Several tenants where the kernel does not hold every limit of their code: do not start, or do.",
    )
    visible: list[UserPath] = Field(
        default=[],
        description="Folders that code can read, beside those of the system, such as /usr/local/go.",
    )


class ObservabilityConfig(Settings):
    """What the server tells about itself."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info", description="Least severe messages to log."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="Form of the log; `auto`: console on a terminal, else json."
    )
    access_log: bool | None = Field(
        default=None, description="Log every request, not only those refused or failed; if not given, as on a terminal."
    )
    audit_file: UserPath | None = Field(default=None, description="File that the audit log is appended to.")
    audit_refusals: PositiveInt = Field(
        default=10,
        description="Refused requests of an address in a minute that the audit log has one by one, not as a number.",
    )
    loop_warning: Duration = Field(
        default=1.0, description="Time for which the event loop may be blocked before the log names who blocks it."
    )
    tracing: bool = Field(default=False, description="Send OpenTelemetry traces; needs the extra `otel`.")


class ProviderConfig(Settings):
    """One provider. Keys beside the five below are read as settings; `null` is an empty entry."""

    enabled: bool = Field(default=False, description="Turn the provider on.")
    use: str | None = Field(
        default=None, description="Class to load, as 'module:Class'; found by the entry's name if not given."
    )
    offer: Literal["always", "deferred", "on_request"] = Field(
        default="always",
        description="Offer the functions to every request, once the model finds them, or to those that name them.",
    )
    approval: ApprovalPolicy | None = Field(
        default=None,
        description="Whether calls wait for a yes: always, never, or that by function; as the provider says if none.",
    )
    settings: dict[str, Any] = Field(
        default={}, repr=False, description="The provider's own settings, described in its documentation."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_entry(cls, data: Any) -> Any:
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            return data
        entry, twice = fold_entry(data)
        if twice:
            raise ValueError(f"'{twice[0]}' is given twice, beside and below 'settings'")
        return entry

    @field_validator("use")
    @classmethod
    def _names_a_class(cls, use: str | None) -> str | None:
        if use is not None:
            module, _, name = use.partition(":")
            if not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
                raise ValueError("must look like 'module:Class'")
        return use


class Config(Settings):
    """All that an operator can set."""

    data_dir: UserPath = Field(default=Path(".antwort"), description="Folder for everything the server keeps.")
    plugins_dir: UserPath | None = Field(default=None, description="Folder whose Python files may hold providers.")
    strict_names: bool = Field(
        default=False,
        description="Refuse to start when two providers or extensions claim one name, instead of the first winning.",
    )
    server: ServerConfig = Field(default=ServerConfig(), description="The HTTP server.")
    auth: AuthConfig = Field(default=AuthConfig(), description="Who may call the server.")
    limits: LimitsConfig = Field(default=LimitsConfig(), description="Limits for each key and each tenant.")
    functions: FunctionsConfig = Field(
        default=FunctionsConfig(), description="Defaults for functions that do not set their own."
    )
    backends: dict[str, Annotated[BackendConfig, Seldom()]] = Field(
        default={}, description="Model servers by name; the first one is asked for models nobody claims."
    )
    agents: dict[str, AgentConfig] = Field(default={}, description="Agents by name.")
    prompts: dict[PromptName, Annotated[PromptConfig, Seldom()]] = Field(
        default={}, description="Prompts by their ids, for requests of all tenants."
    )
    engine: EngineConfig = Field(default=EngineConfig(), description="Limits of the agentic loop.")
    storage: StorageConfig = Field(default=StorageConfig(), description="Where responses are kept.")
    outbound: OutboundConfig = Field(
        default=OutboundConfig(), description="What functions may reach when somebody else names a URL."
    )
    encryption: EncryptionConfig = Field(
        default=EncryptionConfig(), description="The key for what clients carry and must not read."
    )
    sandbox: SandboxConfig = Field(default=SandboxConfig(), description="Where code runs that models write.")
    observability: ObservabilityConfig = Field(
        default=ObservabilityConfig(), description="What the server tells about itself."
    )
    providers: dict[str, ProviderConfig] | None = Field(
        default=None, description="Providers, the first winning where two conflict; a default set if not given."
    )


def fold_entry(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Move the keys beside `settings` of a provider's entry below it; also return those that were there already."""
    own = {key: value for key, value in entry.items() if key in ProviderConfig.model_fields}
    beside = {key: value for key, value in entry.items() if key not in own}
    settings = own.get("settings")
    if settings is None:
        settings = {}
    if not isinstance(settings, Mapping):
        return own, []
    twice = [key for key in beside if key in settings]
    if beside or "settings" in own:
        own["settings"] = {**settings, **beside}
    return own, twice
