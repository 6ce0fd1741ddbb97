"""From the configuration to backends."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from antwort.backends.base import AllowedTools, FileReading, ModelBackend, WithoutImages
from antwort.backends.demo import DEMO_MODEL, DemoBackend
from antwort.backends.http.transport import Transport
from antwort.backends.looked_up import LookedUpReplicas, lookup_of
from antwort.backends.replicas import Replica, Replicas
from antwort.backends.resilience import CircuitBreaker, Fallback, GuardedBackend, Retries
from antwort.backends.router import ModelRoute, ModelRouter
from antwort.concurrency.slots import Queue, Queues
from antwort.config import DIALECTS, BackendConfig, Config, mask_urls
from antwort.errors import ConfigError, did_you_mean
from antwort.http1.proxies import Proxy
from antwort.lazy_imports import imported_on_use
from antwort.observability import Metrics

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
    servers = {name: _servers(name, config, queues) for name, config in configs.items() if not config.is_demo}
    guards = {name: _guards(found, configs[name]) for name, found in servers.items()}
    looked_up = {
        name: _looked_up(name, found[0], configs[name], queues)
        for name, found in servers.items()
        if configs[name].replicas == "dns"
    }
    guards |= {name: found.replicas for name, found in looked_up.items()}
    guarded: dict[str, ModelBackend] = {
        name: looked_up.get(name) or _together(name, found, configs[name]) for name, found in guards.items()
    }
    guarded |= {name: AllowedTools(DemoBackend(name)) for name, config in configs.items() if config.is_demo}
    return [
        ModelRoute(
            _with_fallbacks(name, configs, guarded),
            tuple(config.models),
            config.aliases,
            config.any_model or config.is_demo,
            _way_through(servers.get(name, ())),
            guards.get(name, ()),
            looked_up.get(name),
            taken_parameters(config),
            _files_read(config, servers.get(name, ())),
            config.images,
        )
        for name, config in configs.items()
    ]


def _files_read(config: BackendConfig, servers: "Sequence[RemoteBackend]") -> FileReading:
    if any(server.reads_any_file for server in servers):
        return "any"
    is_said = "pdf" in config.model_fields_set
    reads_pdf = config.pdf if is_said else any(server.reads_pdf for server in servers)
    return "pdf" if reads_pdf else "text"


def _way_through(servers: "Sequence[RemoteBackend]") -> Transport | None:
    """Return the way to a server for requests that are passed through as they are, if it takes such."""
    return servers[0].transport if servers and servers[0].passes_through else None


def _server(name: str, config: BackendConfig, queue: Queue) -> "RemoteBackend":
    server: RemoteBackend = DIALECTS.make(config.api, name, config, queue, key=f"backends.{name}.api")
    return server


def _servers(name: str, config: BackendConfig, queues: Queues) -> "Sequence[RemoteBackend]":
    """Return the server of a backend, and its replicas behind it."""
    urls = [] if config.replicas == "dns" else config.replicas
    places = {name: config} | {
        f"{name}-{number}": config.model_copy(update={"url": url}) for number, url in enumerate(urls, 2)
    }
    return [_server(each, found, queues.named(f"backend {each}")) for each, found in places.items()]


def _guards(servers: "Sequence[RemoteBackend]", config: BackendConfig) -> Sequence[GuardedBackend]:
    """Return the servers of a backend, each with its health."""
    if len(servers) == 1:
        [server] = servers
        retries = Retries(config.retries)
        return [GuardedBackend(_calling(server, config), _breaker(server), retries, server.transport)]
    urls = [config.url, *config.replicas]
    return [_replica(server, config, url) for server, url in zip(servers, urls, strict=True)]


def _replica(server: "RemoteBackend", config: BackendConfig, place: str) -> Replica:
    return Replica(_calling(server, config), _breaker(server), place, server.transport)


def _looked_up(name: str, server: "RemoteBackend", config: BackendConfig, queues: Queues) -> LookedUpReplicas:
    """Return the replicas at the addresses of a host name."""
    url = urlsplit(config.url)
    if Proxy.for_url(url) is not None:
        where = f"backends.{name}.replicas"
        raise ConfigError(f"A proxy chooses the address itself; name '{url.hostname}' in NO_PROXY.", where=where)

    def make(own_name: str, address: str) -> Replica:
        one = config.at(address)
        return _replica(_server(own_name, one, queues.named(f"backend {own_name}")), one, address)

    lookup = lookup_of(url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
    by_name = _replica(server, config, config.url)
    return LookedUpReplicas(
        by_name, make, lookup, config.lookup_interval, patience=config.connect_timeout, retries=Retries(config.retries)
    )


def _together(name: str, guards: Sequence[GuardedBackend], config: BackendConfig) -> ModelBackend:
    """Return what looks like one server."""
    replicas = [guard for guard in guards if isinstance(guard, Replica)]
    return Replicas(name, replicas, Retries(config.retries)) if replicas else guards[0]


def _breaker(server: "RemoteBackend") -> CircuitBreaker:
    return CircuitBreaker(server.name, server.is_there)


def _calling(server: "RemoteBackend", config: BackendConfig) -> ModelBackend:
    calling = text_calls.with_tool_calls(server, config)
    if config.images is False:
        calling = WithoutImages(calling)
    if config.allowed_tools == "fewer":
        calling = AllowedTools(calling)
    return calling


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


# --- who answers ------------------------------------------------------------------------------------------------------


def choose_models(
    config: Config, backend: str | ModelBackend | None, queues: Queues | None = None
) -> tuple[ModelRouter, str, str]:
    """Return who answers, what everybody may be told about it, and what the operator may: with the addresses.

    It is the backend given, those of the configuration, or the demo model.
    """
    if isinstance(backend, str):
        config = config.model_copy(update={"backends": {"default": BackendConfig(url=backend)}})
    elif backend is not None:
        router = ModelRouter([ModelRoute(backend, any_model=True)], default_model=config.engine.default_model)
        return router, backend.name, backend.name
    if not config.backends:
        described = f"the built-in demo model ({DEMO_MODEL}); connect a real one with --backend URL"
        demo = AllowedTools(DemoBackend())
        return ModelRouter([ModelRoute(demo, any_model=True)]), described, described
    if is_demo(config):
        described = f"the built-in demo model ({DEMO_MODEL})"
        return build_router(config, queues), described, described
    described = ", ".join(f"{name} ({mask_urls(entry.url)})" for name, entry in config.backends.items())
    return build_router(config, queues), ", ".join(config.backends), described


def is_demo(config: Config) -> bool:
    """Tell whether only the demo model answers."""
    return all(entry.is_demo for entry in config.backends.values())


_STATES = ("in_use", "waiting")


class BackendMetrics:
    """Shows how each model server is: its connections, whether it is there, and what it knew of its prompts."""

    def __init__(self, metrics: Metrics, router: ModelRouter) -> None:
        self._connections = metrics.gauge(
            "antwort_backend_connections",
            "Requests to a model server that are under way, and those that wait because all connections are in use.",
            ["backend", "state"],
        )
        self._up = metrics.gauge(
            "antwort_backend_up",
            "Whether a model server, or a replica of one, answers: 0 while requests to it are refused.",
            ["backend"],
        )
        self._prompts = metrics.quick_counter(
            "antwort_backend_prompt_tokens_total",
            "Tokens of prompts, and whether the model server knew them from an earlier prompt, as far as it says.",
            ["backend", "cached"],
        )
        self.show(router)

    def show(self, router: ModelRouter) -> None:
        """Show the servers of a router from now on."""
        for transport in router.transports():
            self._show_connections(transport)
        for guards in router.guards().values():
            for guard in guards:
                self._show_guard(guard)
        for replicas in router.looked_up():
            replicas.watch = self._change

    def _change(self, left: Sequence[GuardedBackend], come: Sequence[GuardedBackend]) -> None:
        """Show replicas that have come in the place of those that have left."""
        for guard in left:
            self._up.remove(guard.name)
            if guard.transport is not None and guard.transport.address is not None:
                for state in _STATES:
                    self._connections.remove(guard.name, state)
        for guard in come:
            self._show_guard(guard)
            if guard.transport is not None:
                self._show_connections(guard.transport)

    def _show_connections(self, transport: Transport) -> None:
        for state in _STATES:
            self._connections.labels(transport.name, state).set_function(partial(getattr, transport, state))

    def _show_guard(self, guard: GuardedBackend) -> None:
        self._up.labels(guard.name).set_function(partial(_up, guard.breaker))
        guard.prompts.cached = self._prompts.labels(guard.name, "yes")
        guard.prompts.new = self._prompts.labels(guard.name, "no")


def _up(breaker: CircuitBreaker) -> float:
    return 0.0 if breaker.is_open else 1.0
