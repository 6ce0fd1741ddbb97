"""Settings of the engine and of what it talks to: model servers, agents, storage, the world outside."""

import ipaddress
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, PositiveInt, PrivateAttr, SecretStr, field_validator, model_validator

from antwort.config.defaults import STORAGE
from antwort.config.durations import Age, Duration, Seconds
from antwort.config.extensions import ExtensionKind
from antwort.config.secrets import mask_urls
from antwort.config.settings import Choice, Seldom, Settings
from antwort.context.agents import RunLimits
from antwort.lazy_imports import compiled_on_use

_HOST = compiled_on_use(r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")

_WRITTEN = frozenset(
    {
        *("functions", "function_call", "input", "logprobs", "max_completion_tokens", "max_tokens", "messages"),
        *("model", "n", "prompt", "reasoning_effort", "response_format", "stream", "stream_options"),
        *("tool_choice", "tools"),
    }
)
"""Fields of requests to model servers that no request sets by their names there."""


_RUNS = RunLimits()

DEMO = "demo"
"""What stands for the demo model in the place of a URL."""


DIALECTS: ExtensionKind[Any] = ExtensionKind("antwort.dialects", "dialect", default="chat", members=("run", "models"))
"""What model servers speak; each is made from its settings, its name, its `BackendConfig` and its queue."""


_ENDPOINTS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}
"""Where model servers are asked for turns, below their base URL, and the dialect that does so."""


class BackendConfig(Settings, defer_build=True):
    """A model server."""

    url: str = Field(
        description="Its base URL, such as http://localhost:8000/v1; or `demo`, the demo model.",
        pattern=rf"^(https?://|{DEMO}$)",
    )
    replicas: Literal["dns"] | list[Annotated[str, Field(pattern=r"^https?://")]] = Field(
        default=[],
        description="Base URLs of further servers with its models, or `dns`: all addresses of its host name.",
    )
    lookup_interval: Duration = Field(default=5.0, description="Time between two lookups, with `replicas: dns`.")
    api_key: SecretStr | None = Field(default=None, description="The key it wants.")
    headers: dict[str, str] = Field(default={}, description="Further headers to send.")
    models: list[str] = Field(
        default=[],
        description="Models to ask it for, or patterns such as `gpt-*`; it is asked what it has if none are given.",
    )
    aliases: dict[str, str] = Field(default={}, description="Other names for its models: alias to model.")
    any_model: bool = Field(
        default=False,
        description="Whether it takes models that nobody lists; alone, and without `models`, it gets them anyway.",
    )
    fallback: str | None = Field(default=None, description="The backend to ask when this one cannot be reached.")
    fallback_model: str | None = Field(default=None, description="The model to ask the fallback for; the same if none.")
    connect_timeout: Duration = Field(default=5.0, description="Time to connect.")
    first_byte_timeout: Duration = Field(
        default=300.0,
        description="Time until a streamed answer begins; one that is not streamed has until `engine.deadline`.",
    )
    chunk_timeout: Duration = Field(default=60.0, description="Time between two pieces of a streamed answer.")
    retries: int = Field(default=2, ge=0, le=10, description="Tries after a failure, before the answer has begun.")
    max_connections: PositiveInt = Field(default=1000, description="Connections at the same time.")
    connection_wait: Duration = Field(
        default=10.0, description="Time to wait for one of them while all are in use; then a request is refused (503)."
    )
    api: Annotated[Choice, DIALECTS] = Field(
        default="chat",
        description="What it speaks: Chat Completions, the Responses API, Anthropic's Messages, or another dialect.",
    )
    tool_calls: Literal["auto", "native", "prompted"] = Field(
        default="auto",
        description="How its models call functions: read by the server, told and read as text, or as it turns out.",
    )
    allowed_tools: Literal["fewer", "all"] = Field(
        default="fewer",
        description="What a request with `allowed_tools` gives it: only these, or all, so that the prompt stays.",
    )
    context_window: PositiveInt | None = Field(
        default=None, description="Tokens its models take, for servers that do not tell."
    )
    max_header_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024),
        gt=0,
        description="Bytes of an answer's head, and between two pieces of its content.",
    )
    max_event_bytes: ByteSize = Field(
        default=ByteSize(16 * 1024**2),
        gt=0,
        description="Bytes of one event of a stream, and of an answer that is not streamed.",
    )
    max_answer_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024**2),
        gt=0,
        description="Bytes of an answer in all, streamed or passed through.",
    )
    max_values: PositiveInt = Field(
        default=500_000, description="JSON values in one event, or in an answer that is not streamed."
    )
    max_calls: PositiveInt = Field(default=128, description="Function calls in one turn.")
    max_items: PositiveInt = Field(
        default=10_000, description="Texts, thoughts and refusals in one turn; each change between them counts."
    )
    max_models: PositiveInt = Field(default=10_000, description="Models taken from its list.")
    pdf: bool = Field(default=False, description="Whether it takes PDF files as they are.")
    images: bool | None = Field(
        default=None,
        description="Whether its models take images that functions return; unset, they are sent, but no charts.",
    )
    extra_body: dict[str, Any] = Field(default={}, description="Further fields for every request.")
    parameters: list[str] = Field(
        default=[],
        description="Fields of its own that requests may have: their names, or vllm or llama.cpp for all of theirs.",
    )

    _address: str | None = PrivateAttr(default=None)

    @property
    def is_demo(self) -> bool:
        """Whether it is the demo model, which is no server."""
        return self.url == DEMO

    @property
    def address(self) -> str | None:
        """Which of the addresses of its host name is meant; None if any of them."""
        return self._address

    def at(self, address: str) -> Self:
        """Return the same for one of the addresses of its host name."""
        one = self.model_copy(update={"replicas": []})
        one._address = address
        return one

    @model_validator(mode="after")
    def _urls_are_bases(self) -> Self:
        api = self.api if isinstance(self.api, str) else self.api.name
        if api not in _ENDPOINTS.values():  # what is below the URL of another is not known
            return self
        for url in (self.url, *(self.replicas if isinstance(self.replicas, list) else ())):
            parts = urlsplit(url)
            path = parts.path.rstrip("/")
            end = next((end for end in _ENDPOINTS if path.endswith(end)), None)
            if end is not None:
                base = mask_urls(parts._replace(path=path.removesuffix(end)).geturl())
                spoken = "" if _ENDPOINTS[end] == api else f" with `api: {_ENDPOINTS[end]}`"
                raise ValueError(f"url: the base URL is wanted, without '{end}': give '{base}'{spoken}")
        return self

    @model_validator(mode="after")
    def _replicas_are_others(self) -> Self:
        if self.replicas and self.is_demo:
            raise ValueError("replicas: the demo model has none; give the `url` of a model server, or leave them out")
        if self.replicas == "dns":
            host = urlsplit(self.url).hostname or ""
            if ":" in host or host.rpartition(".")[2].isdigit():
                raise ValueError("replicas: `dns` is for a `url` with the name of a host; this one has an address")
            return self
        urls = [url.rstrip("/") for url in (self.url, *self.replicas)]
        if (twice := next((url for url in urls if urls.count(url) > 1), None)) is not None:
            raise ValueError(f"replicas: '{mask_urls(twice)}' is named twice; each server counts once")
        return self

    @field_validator("parameters")
    @classmethod
    def _are_not_ours(cls, names: list[str]) -> list[str]:
        for name in names:
            if name in _WRITTEN:
                raise ValueError(f"'{name}' is written by the server itself, from what a request says in the API")
        return names


Approval = Literal["always", "never"]
"""Whether calls of a function are made only after somebody has said yes."""
ApprovalPolicy = Approval | dict[str, Approval]
"""That for all functions, or by their names."""


class AgentConfig(Settings):
    """An agent: a name for instructions, a model, functions and limits."""

    description: str = Field(default="", description="What it is for.")
    instructions: str | None = Field(default=None, description="Its system message; a request's own come after it.")
    model: str | None = Field(default=None, description="The model it uses; the request's if none.")
    functions: list[str] | None = Field(
        default=None, description="The functions it is offered; those of every request if not given."
    )
    agents: list[str] = Field(
        default=[],
        description="Other agents that it may start; besides those only itself, with no function that it lacks.",
    )
    models: list[str] = Field(
        default=[],
        description="Other models that it may choose for agents that it starts, or patterns such as `gpt-*`.",
    )
    approval: ApprovalPolicy | None = Field(
        default=None,
        description="Whether its calls wait for a yes: always, never, or that by function; as functions say if none.",
    )
    max_input: PositiveInt | None = Field(
        default=None,
        description="Characters of a text or text file of the input above which it becomes a variable; never if none.",
    )
    max_window: Annotated[int, Field(ge=2000)] | None = Field(
        default=None,
        description="Bytes that its model reads in one turn; old calls and results leave. All that it takes if none.",
    )
    max_turns: PositiveInt | None = Field(default=None, description="Model turns in one response.")
    max_tool_calls: PositiveInt | None = Field(default=None, description="Calls of hosted functions in one response.")
    max_output_tokens: PositiveInt | None = Field(default=None, description="Tokens it may write in one response.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="Sampling temperature.")


class PriceConfig(Settings, defer_build=True):
    """What a model costs."""

    input: float = Field(default=0.0, ge=0, description="Price of a million tokens that it reads.")
    output: float = Field(default=0.0, ge=0, description="Price of a million tokens that it writes.")


class RunConfig(Settings):
    """What one run may take: an agent with all the agents below it, over all responses that continue it."""

    max_depth: int = Field(
        default=_RUNS.depth, ge=0, description="How deep agents may be nested; 0 lets nobody start others."
    )
    max_agents: PositiveInt = Field(default=_RUNS.agents, description="Agents, the first included.")
    max_in_flight: PositiveInt = Field(default=_RUNS.in_flight, description="Calls of models at the same time.")
    max_tokens: PositiveInt | None = Field(default=10_000_000, description="Tokens read and written.")
    max_cost: float | None = Field(default=None, gt=0, description="Cost, by `engine.prices`.")
    max_time: Duration | None = Field(
        default=86_400.0, description="Time that it is worked on, such as 2h; waiting for an answer does not count."
    )
    max_calls: PositiveInt | None = Field(default=100_000, description="Calls of functions.")
    max_agent_time: Duration | None = Field(
        default=None,
        description="Time that an agent below the first may take; most of what is left to the one above it if none.",
    )
    agents: list[str] = Field(
        default=[], description="Agents of the configuration that requests may start which ask for no agent themselves."
    )
    models: list[str] = Field(
        default=[], description="Models that such requests may choose for agents that they start, or patterns."
    )


class ToolSearchConfig(Settings):
    """Which functions a model has to find before it is offered them."""

    above: PositiveInt | None = Field(
        default=100,
        description="Functions that a model is offered unasked; it finds them if they are more. Any number if none.",
    )
    results: Annotated[int, Field(ge=1, le=50)] = Field(
        default=5, description="Functions that one search finds and offers, at most."
    )


class EngineConfig(Settings):
    """Limits of the agentic loop."""

    max_turns: PositiveInt = Field(default=50, description="Model turns in one response.")
    deadline: Duration | None = Field(default=3600.0, description="Time a response may take.")
    parallel_batch_requests: PositiveInt = Field(
        default=4, description="Requests of batches that a server has under way; those of clients do not wait for them."
    )
    parallel_calls: PositiveInt = Field(default=16, description="Function calls of one turn that run at the same time.")
    parallel_recoveries: PositiveInt = Field(
        default=16, description="Background responses left unfinished that a start takes up at the same time."
    )
    parallel_runs: PositiveInt = Field(
        default=100, description="Background responses at work on a worker when it takes no more of those that wait."
    )
    max_takeovers: PositiveInt = Field(
        default=3,
        description="Times a background response goes on after a crash without getting further, before it fails.",
    )
    takeover_after: Seconds = Field(
        default=10.0,
        ge=0.5,
        description="Silence of a server after which others on its database take over its background responses.",
    )
    outage_patience: Seconds = Field(
        default=3600.0,
        description="Time a background response waits for a model server that is away, before it fails.",
    )
    max_answer_length: PositiveInt = Field(
        default=4_000_000,
        description="Characters of a model's answer in one turn; a longer one is cut off, as `incomplete`.",
    )
    max_broken_answers: PositiveInt = Field(
        default=5,
        description="Answers in a row that a model server may break off before a background response fails.",
    )
    max_tools: PositiveInt = Field(default=1000, description="Tools that a request may bring.")
    tool_search: ToolSearchConfig = Field(
        default=ToolSearchConfig(), description="Functions that a model finds before it is offered them."
    )
    unavailable_tools: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="What is done with tools of types that no enabled provider has: a 400, or they are left out.",
    )
    thoughts_as_summary: bool = Field(
        default=True,
        description="Give a model's thoughts as their summary where a request asks for one (`reasoning.summary`).",
    )
    reasoning_events: Literal["openai", "open_responses"] = Field(
        default="openai",
        description="How events of thoughts are named: as OpenAI does, or as the release of Open Responses does.",
    )
    run: RunConfig = Field(default=RunConfig(), description="Limits of a run: of all its agents together.")
    prices: dict[str, Annotated[PriceConfig, Seldom()]] = Field(
        default={}, description="What models cost, by name; those that are not named cost nothing."
    )
    default_model: str | None = Field(default=None, description="The model of requests that name none.")
    heartbeat: Duration = Field(default=15.0, description="Silence before a stream sends a comment.")
    show_calls: bool = Field(
        default=False,
        description="Show calls of functions that have no item of their own as `antwort:function_call` items.",
    )

    @model_validator(mode="after")
    def _cost_has_prices(self) -> Self:
        if self.run.max_cost is not None and not any(price.input or price.output for price in self.prices.values()):
            raise ValueError("run.max_cost limits nothing without `prices`: say what models cost")
        return self


class EncryptionConfig(Settings):
    """The key for what clients carry and must not read: compacted windows, thoughts of models."""

    key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="A random text of at least 32 characters; made in `<data_dir>/encryption.key` if not given.",
    )
    # A short one, such as an empty variable, would let anybody make what this server takes for its own.
    previous_keys: list[Annotated[SecretStr, Field(min_length=32)]] = Field(
        default=[], description="Keys used before, so that what they encrypted can still be read."
    )


class KeepConfig(Settings):
    """How long things are kept. What is too old is deleted; without a limit nothing is."""

    responses: Age | None = Field(
        default=None, description="Age at which responses are deleted, such as 30d; for ever if not given."
    )
    events: Age | None = Field(
        default=None,
        description="Age at which events of background responses are deleted, such as 7d; with them if not given.",
    )
    conversations: Age | None = Field(
        default=None,
        description="Time after its last use at which a conversation is deleted, such as 90d; never if not given.",
    )
    traces: Age | None = Field(
        default=None, description="Age at which traces that clients have sent are deleted; for ever if not given."
    )
    batches: Age | None = Field(
        default=None,
        description="Age at which batches that are over are deleted, such as 30d; for ever if not given.",
    )
    chat_completions: Age | None = Field(
        default=None,
        description="Age at which stored chat completions are deleted, such as 30d; for ever if not given.",
    )
    unstored: Duration = Field(
        default=600.0,
        description="Time after its end at which a background response with `store: false` is deleted, such as 10m.",
    )


class S3Config(Settings, defer_build=True):
    """A bucket for the bytes of files. Credentials come from the environment, as those of other tools for S3 do."""

    bucket: str = Field(description="Its name; it must be there already.", pattern=r"^[A-Za-z0-9._-]+$")
    prefix: str = Field(default="", description="A folder in it, such as antwort/files; files lie at the top if none.")
    endpoint: str | None = Field(
        default=None,
        description="Base URL of a server that speaks the API of S3, such as http://localhost:9000; Amazon's if none.",
        pattern=r"^https?://",
    )
    region: str | None = Field(
        default=None, description="Its region; what AWS_REGION or AWS_DEFAULT_REGION says if none, else us-east-1."
    )


BLOB_STORES: ExtensionKind[Any] = ExtensionKind(
    "antwort.blob_stores", "blob store", members=("write", "read", "delete", "close")
)
"""What keeps the bytes of files; each is made from its settings and a folder below the data folder."""


class StorageConfig(Settings):
    """Where responses are kept."""

    url: str | None = Field(
        default=None,
        description="sqlite:///path or postgresql://user:password@host/database; SQLite below the data folder if none.",
    )
    synchronous: Literal["normal", "full"] = Field(
        default=STORAGE.synchronous,
        description="SQLite: survive a crash of the process (normal) or of the machine (full).",
    )
    busy_timeout: Duration = Field(
        default=STORAGE.busy_timeout,
        description="SQLite: time to wait for a process that holds the database, before a request fails.",
    )
    pool_size: PositiveInt = Field(default=STORAGE.pool_size, description="PostgreSQL: connections at the same time.")
    reconnect: Duration = Field(
        default=STORAGE.reconnect,
        description="PostgreSQL: time to wait for a server that is away, before a request fails.",
    )
    disk_reserve: ByteSize = Field(
        default=ByteSize(16 * 1024**2),
        description="SQLite: room on the disk that is kept for deletions while the disk is full; 0 keeps none.",
    )
    keep: KeepConfig = Field(default=KeepConfig(), description="How long things are kept.")
    sweep: Duration = Field(default=3600.0, description="How often the server deletes what is too old, such as 1h.")
    files: Annotated[Choice, BLOB_STORES] | None = Field(
        default=None,
        description="What keeps the bytes of files; `s3` if that section is given, else `disk`: the data folder.",
    )
    s3: Annotated[S3Config, Seldom()] | None = Field(
        default=None, description="Keep the bytes of files in a bucket; they are below the data folder if none."
    )


class OutboundConfig(Settings):
    """What functions may reach when a model, a client or a web page names a URL."""

    allow: list[str] = Field(
        default=[],
        description="Hosts and networks that are reached though not public: intranet.example, 10.0.0.5:80, 10.0.0.0/8.",
    )
    low_ports: list[int] = Field(
        default=[80, 443], description="Ports below 1024 that may be reached; higher ones all may."
    )
    timeout: Duration = Field(default=20.0, description="Time a request may take, redirects included.")
    max_bytes: ByteSize = Field(
        default=ByteSize(5 * 1024 * 1024), gt=0, description="Largest answer, compressed or not."
    )
    model_urls: Literal["public", "any", "none"] = Field(
        default="public",
        description="URLs in requests that a model server may fetch: public ones and those of `allow`, any, or none.",
    )
    max_connections: PositiveInt = Field(default=100, description="Connections at the same time.")

    @field_validator("allow")
    @classmethod
    def _are_hosts_or_networks(cls, entries: list[str]) -> list[str]:
        for entry in entries:
            if not is_network(entry):
                found = _HOST.fullmatch(entry)
                if found is None or not 0 < int(found["port"] or 1) < 65536:
                    raise ValueError(f"'{entry}' is no host, host:port, address or network")
        return entries


def is_network(entry: str) -> bool:
    """Tell whether an entry is an address or a network, rather than a host."""
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True
