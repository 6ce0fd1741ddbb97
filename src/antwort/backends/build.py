"""From the configuration to backends."""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from antwort.backends.base import FileReading, ModelBackend, ModelRequest, ToolDefinitions, TurnSink
from antwort.backends.demo import DemoBackend
from antwort.backends.resilience import BackendWrapper, CircuitBreaker, Fallback, GuardedBackend, Retries
from antwort.backends.router import ModelRoute, ModelRouter
from antwort.concurrency.slots import Queue, Queues
from antwort.config import DIALECTS, BackendConfig, Config
from antwort.errors import ConfigError, did_you_mean
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON
from antwort.wire.client_tools import OUTPUTS


class AllowedTools(BackendWrapper):
    """Gives a model server only those tools that may be called: what a model does not see it does not call."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(request if request.allowed is None else _narrowed(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_narrowed(request))


def _narrowed(request: ModelRequest) -> ModelRequest:
    allowed = request.allowed
    if allowed is None:
        return request
    return replace(request, tools=ToolDefinitions(tool for tool in request.tools if tool["name"] in allowed))


_SAMPLING = frozenset({"ignore_eos", "logit_bias", "min_p", "seed", "stop", "top_k"})

_VLLM = _SAMPLING | {
    "add_generation_prompt",
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_whitespace_pattern",
    "include_reasoning",
    "include_stop_str_in_output",
    "length_penalty",
    "min_tokens",
    "repetition_penalty",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "structural_tag",
    "structured_outputs",
    "thinking_token_budget",
    "truncate_prompt_tokens",
    "use_beam_search",
}

_LLAMA_CPP = _SAMPLING | {
    "cache_prompt",
    "chat_template_kwargs",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "grammar",
    "json_schema",
    "min_keep",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "repeat_last_n",
    "repeat_penalty",
    "samplers",
    "t_max_predict_ms",
    "top_n_sigma",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
}

# What says whose turn it is, runs templates or code of strangers, or reads other people's caches is in neither:
# `priority`, `chat_template`, `logits_processors`, `id_slot`, `lora`, …
PRESETS = {"vllm": _VLLM, "llama.cpp": _LLAMA_CPP}
"""Names that stand for all that a kind of server takes."""


def taken_parameters(config: BackendConfig) -> frozenset[str]:
    """Return the fields beyond the API that a backend takes."""
    return frozenset[str]().union(*(PRESETS.get(name, {name}) for name in config.parameters))


if TYPE_CHECKING:
    from antwort.backends.http.remote import RemoteBackend
    from antwort.backends.text_calls import backend as text_calls
else:  # the demo model needs neither
    text_calls = imported_on_use("antwort.backends.text_calls.backend")


def build_router(config: Config, queues: Queues | None = None) -> ModelRouter:
    """Build all backends of the configuration, behind one router."""
    routes = build_routes(config.backends, queues)
    return ModelRouter(routes, default_model=config.engine.default_model)


def build_routes(configs: Mapping[str, BackendConfig], queues: Queues | None = None) -> list[ModelRoute]:
    """Build backends, each with retries, a breaker of its own and its fallback, in the order of the configuration."""
    queues = queues or Queues()
    servers = {
        name: _server(name, config, queues.named(f"backend {name}"))
        for name, config in configs.items()
        if not config.is_demo
    }
    guarded: dict[str, ModelBackend] = {name: _guarded(server, configs[name]) for name, server in servers.items()}
    guarded |= {name: AllowedTools(DemoBackend(name)) for name, config in configs.items() if config.is_demo}
    return [
        ModelRoute(
            _with_fallbacks(name, configs, guarded),
            tuple(config.models),
            config.aliases,
            config.any_model or config.is_demo,
            servers[name].transport if name in servers else None,
            taken_parameters(config),
            _files_read(config, servers.get(name)),
            config.images,
        )
        for name, config in configs.items()
    ]


def _files_read(config: BackendConfig, server: "RemoteBackend | None") -> FileReading:
    if server is not None and server.reads_any_file:
        return "any"
    return "pdf" if config.pdf else "text"


def _server(name: str, config: BackendConfig, queue: Queue) -> "RemoteBackend":
    server: RemoteBackend = DIALECTS.make(config.api, name, config, queue, key=f"backends.{name}.api")
    return server


def _guarded(server: "RemoteBackend", config: BackendConfig) -> ModelBackend:
    calling = text_calls.with_tool_calls(server, config)
    if config.images is False:
        calling = WithoutImages(calling)
    if config.allowed_tools == "fewer":
        calling = AllowedTools(calling)
    return GuardedBackend(calling, CircuitBreaker(server.name, server.is_there), Retries(config.retries))


def _with_fallbacks(
    name: str, configs: Mapping[str, BackendConfig], guarded: Mapping[str, ModelBackend], above: tuple[str, ...] = ()
) -> ModelBackend:
    config = configs[name]
    other = config.fallback
    if other is None:
        return guarded[name]
    where = f"backends.{name}.fallback"
    if other not in configs:
        raise ConfigError(f"There is no backend '{other}'{did_you_mean(other, configs) or '.'}", where=where)
    if other in {*above, name}:
        raise ConfigError(f"The backend '{other}' would be its own fallback.", where=where)
    model = config.fallback_model
    if model is not None:
        model = configs[other].aliases.get(model, model)
    behind = _with_fallbacks(other, configs, guarded, (*above, name))
    return Fallback(guarded[name], behind, model, taken_parameters(configs[other]))


# --- models that take no images ---------------------------------------------------------------------------------------


_IMAGE = "input_image"
_UNSEEN: JSON = {"type": "input_text", "text": "[An image, which this model cannot see.]"}


class WithoutImages(BackendWrapper):
    """Gives a model server no images of results. Those that a user sends go to it as they are: it may refuse them."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(_blind(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_blind(request))


def _blind(request: ModelRequest) -> ModelRequest:
    if not any(map(_has_image, request.items)):
        return request
    return replace(request, items=[_without_images(item) if _has_image(item) else item for item in request.items])


def _has_image(item: JSON) -> bool:
    output = item.get("output")
    return isinstance(output, list) and item.get("type") in OUTPUTS and any(map(_is_image, output))


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == _IMAGE


def _without_images(item: JSON) -> JSON:
    return {**item, "output": [_UNSEEN if _is_image(part) else part for part in item["output"]]}
