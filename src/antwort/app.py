"""The composition root: from a configuration to a running app."""

import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from starlette.types import Receive, Scope, Send

import antwort
from antwort.auth import RateLimiter, build_authenticator
from antwort.config import Config, LoadedConfig, ProviderConfig, secret_values
from antwort.errors import ConfigError
from antwort.functions import Catalogue, FunctionProvider, FunctionRegistry, FunctionSpec
from antwort.functions.discovery import place
from antwort.observability import AuditLog, Metrics, Redactor, tracer
from antwort.server import Parts, build_asgi
from antwort.server.state import ServerState

__all__ = ["Antwort"]

logger = logging.getLogger(__name__)


class Antwort:
    """An app: a configuration, its providers, and the server around them. Several can live in one process.

    `functions` and `providers` given in code come before those of the configuration. Use it as an async context
    manager, or hand `asgi()` to any ASGI server, which starts and stops it through the lifespan protocol.
    """

    def __init__(
        self,
        config: Config | LoadedConfig | None = None,
        *,
        functions: Iterable[Callable[..., Any] | FunctionSpec | Mapping[str, Any]] = (),
        providers: Iterable[FunctionProvider] = (),
    ) -> None:
        self.loaded = config if isinstance(config, LoadedConfig) else LoadedConfig(config or Config())
        self.config = self.loaded.config
        self.metrics = Metrics(antwort.__version__)
        self.state = ServerState()
        self.redactor = Redactor(secret_values(self.config))
        self._audit = AuditLog(self.config.observability.audit_file, redactor=self.redactor)
        self.registry = _registry(self.config, self.metrics, self._audit, self.redactor)
        for function in functions:
            self.registry.register(function)
        for provider in providers:
            self.registry.register(provider)
        self._register_configured()
        self.chain = build_authenticator(self.config)
        limits = self.config.limits
        self._http = build_asgi(
            Parts(
                config=self.config,
                registry=self.registry,
                chain=self.chain,
                limiter=RateLimiter(limits.per_key, limits.per_tenant),
                metrics=self.metrics,
                audit=self._audit,
                state=self.state,
            )
        )

    def _register_configured(self) -> None:
        catalogue = Catalogue(plugins_dir=self.config.plugins_dir)
        for conflict in catalogue.conflicts:
            if self.config.strict_names:
                raise ConfigError(f"{conflict} (strict_names is on)")
            logger.warning("%s", conflict)
        for name, provider_config in enabled_providers(self.config, catalogue).items():
            provider = catalogue.make(name, provider_config, self.loaded)
            try:
                self.registry.register(provider, offer=provider_config.offer)
            except ConfigError as error:
                where = place(self.loaded, f"providers.{name}")
                raise ConfigError(f"providers.{name}: {error.message}", where=where) from error

    async def start(self) -> None:
        """Start every provider; one that fails is a ConfigError that names it."""
        await self.registry.start()
        self.state.phase = "running"

    async def close(self) -> None:
        """Stop taking requests and give everything back."""
        self.state.phase = "stopping"
        await self.registry.close()
        await self.chain.close()
        self._audit.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def asgi(self) -> "Antwort":
        """Return the ASGI app, which is this object."""
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": "There is no WebSocket endpoint here."})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except ConfigError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def enabled_providers(config: Config, catalogue: Catalogue) -> dict[str, ProviderConfig]:
    """Return the providers to load, in order: those of the file, or the default set, then those of the plug-in folder.

    Naming a plug-in folder enables what lies in it; the file can still disable a plug-in by name.
    """
    if config.providers is None:
        chosen = {name: ProviderConfig(enabled=True, offer="on_request") for name in catalogue.defaults}
    else:
        chosen = dict(config.providers)
    for name in catalogue.plugins:
        chosen.setdefault(name, ProviderConfig(enabled=True))
    return {name: provider for name, provider in chosen.items() if provider.enabled}


def _registry(config: Config, metrics: Metrics, audit: AuditLog, redactor: Redactor) -> FunctionRegistry:
    return FunctionRegistry(
        metrics=metrics,
        audit=audit,
        redactor=redactor,
        tracer=tracer(config.observability.tracing),
        strict_names=config.strict_names,
        timeout=config.functions.timeout,
        max_output=config.functions.max_output,
        concurrency=config.functions.concurrency,
        threads=config.functions.threads,
    )
