"""From the configuration to backends."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from antwort.backends.allowed_tools import AllowedTools
from antwort.backends.base import FileReading, ModelBackend
from antwort.backends.blind_models import WithoutImages
from antwort.backends.breaker import CircuitBreaker
from antwort.backends.demo import DemoBackend
from antwort.backends.parameters import taken_parameters
from antwort.backends.resilience import Fallback, Guarded, Retries
from antwort.backends.router import ModelRoute, ModelRouter
from antwort.concurrency.queues import Queue, Queues
from antwort.config import DIALECTS, BackendConfig, Config
from antwort.errors import ConfigError, did_you_mean
from antwort.lazy_imports import imported_on_use

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
    return Guarded(calling, CircuitBreaker(server.name, server.is_there), Retries(config.retries))


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
