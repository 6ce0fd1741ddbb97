"""What a hangup does to a server that no terminal has: it reads its configuration again, and uses what it can at once.

The process that has the workers reads it first, and passes the hangup on if all is right with it. It remembers what it
has read: workers that it starts later would else take keys that were revoked long ago.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from antwort.app import Antwort
from antwort.auth import api_keys, is_anonymous
from antwort.cli.supervisor import heard_signals
from antwort.config import Config, LoadedConfig, secret_values
from antwort.errors import ConfigError
from antwort.observability import configure_logging

logger = logging.getLogger(__name__)

_KEYS = "auth.api_keys"
_LEVEL = "observability.log_level"
_RATES = ("requests_per_minute", "burst")
RELOADED = (
    _KEYS,
    *(f"limits.{whose}.{rate}" for whose in ("per_key", "per_tenant") for rate in _RATES),
    _LEVEL,
)
"""The settings that are used without a restart, beside `providers.<name>.enabled` of those that run."""


def has_terminal() -> bool:
    """Tell whether this process belongs to a terminal, which hangs up when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class Reload:
    """The configuration of a running server, as it is read again and again."""

    def __init__(self, read: Callable[[], LoadedConfig], started: Config) -> None:
        """Take what reads it, and what was read at the start."""
        self._read = read
        self._started = self._latest = self._used = started
        self._is_open = is_anonymous(started)

    def look(self, running: Config) -> Config | None:
        """Read it again, and remember it. If it is not right, say so in the log and return None; nothing changes."""
        try:
            new = self._read()
            self._check(_merged(running, self._latest), _merged(running, new.config))
        except ConfigError as error:
            for problem in error.problems:
                logger.error("the configuration was read again, and nothing has changed: %s", problem)  # noqa: TRY400
            return None
        except Exception:
            logger.exception("the configuration could not be read again; nothing has changed")
            return None
        for warning in new.warnings:
            logger.warning("%s", warning)
        self._latest = new.config
        return new.config

    def look_for_workers(self, running: Config) -> bool:
        """Read it for the workers, and tell whether they are to read it, too."""
        new = self.look(running)
        if new is not None:
            configure_logging(new.observability.log_level, new.observability.log_format)
        return new is not None

    async def again(self, app: Antwort, worker: int | None) -> None:
        """Read it again, and let an app use it; the first worker tells what has changed."""
        new = await asyncio.to_thread(self.look, app.config)
        if new is None:
            return
        changed, others = self._use(app, new), sorted(self._left_for_a_restart(new))
        if worker in {None, 0}:
            _tell(app, changed, others)
        if _LEVEL in changed:
            _set_level(app, worker)

    def catch_up(self, app: Antwort, worker: int | None) -> None:
        """Let an app that was just started use what was read since the server was."""
        if _LEVEL in self._use(app, self._latest):
            _set_level(app, worker)

    def _use(self, app: Antwort, new: Config) -> list[str]:
        """Use what can be used now; return the settings that have changed."""
        changed = sorted(filter(self._is_reloaded, _changes(self._used, new)))
        config = _merged(app.config, new)
        if _KEYS in changed:
            app.redactor.learn(secret_values(config))
            app.chain.replace_keys(api_keys(config))
        app.limiter.limit(config.limits.per_key, config.limits.per_tenant)
        for name in _switchable(changed):
            switch = app.registry.enable if (new.providers or {})[name].enabled else app.registry.disable
            switch(name)
        app.config, self._used = config, new
        return changed

    def _check(self, before: Config, after: Config) -> None:
        """Refuse keys that open the server, or for which it would have had to start otherwise."""
        if self._is_open:
            return
        if is_anonymous(after):
            raise ConfigError("the server would be left without authentication; that takes a restart", where=_KEYS)
        keys = api_keys(after)
        if after.auth.jwt is None and keys.has_several_tenants and not api_keys(before).has_several_tenants:
            message = "the server was started for one tenant, and the keys are those of several; that takes a restart"
            raise ConfigError(message, where=_KEYS)

    def _is_reloaded(self, setting: str) -> bool:
        if setting == _KEYS:
            return not self._is_open
        providers = self._started.providers or {}
        return setting in RELOADED or any(providers[name].enabled for name in _switchable([setting], providers))

    def _left_for_a_restart(self, new: Config) -> Iterator[str]:
        return (setting for setting in _changes(self._started, new) if not self._is_reloaded(setting))


class Hangups:
    """Hangups of one process of a server; without `reload` they stop it."""

    def __init__(self, reload: Reload | None, app: Antwort, worker: int | None) -> None:
        self._reload = reload
        self._app = app
        self._worker = worker
        self._heard = asyncio.Event()

    @property
    def stopping(self) -> list[int]:
        """The signals that stop the server."""
        return [number for number in heard_signals() if self._reload is None or number != signal.SIGHUP]

    def hear(self, loop: asyncio.AbstractEventLoop, stop: Callable[[int], None]) -> None:
        """Hear signals from now on, those that stop the server too; a hangup while the app starts is heeded then."""
        for number in heard_signals():
            if number in self.stopping:
                loop.add_signal_handler(number, stop, number)
            else:
                loop.add_signal_handler(number, self._heard.set)

    def begin(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[None]]:
        """Begin to heed them, as the app is about to take requests; return the tasks that do."""
        if self._reload is None:
            return []
        self._reload.catch_up(self._app, self._worker)
        return [loop.create_task(self._heed(self._reload))]

    async def _heed(self, reload: Reload) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            try:
                await reload.again(self._app, self._worker)
            except Exception:
                logger.exception("not all of the configuration that was read again could be used")


def _set_level(app: Antwort, worker: int | None) -> None:
    logs = app.config.observability
    configure_logging(logs.log_level, logs.log_format, redactor=app.redactor, worker=worker)


def _tell(app: Antwort, changed: list[str], others: list[str]) -> None:
    logger.info("the configuration was read again; changed: %s", ", ".join(changed) or "nothing")
    if others:
        logger.warning("restart to use: %s", ", ".join(others))
    app.audit.record("configuration.reloaded", changed=changed, restart=others)


def _merged(running: Config, new: Config) -> Config:
    """Return a running configuration with what is used without a restart of a new one."""
    limits = new.limits
    rates = {rate: getattr(limits.per_tenant, rate) for rate in _RATES}
    per_tenant = running.limits.per_tenant.model_copy(update=rates)
    parts = {
        "auth": running.auth.model_copy(update={"api_keys": new.auth.api_keys}),
        "limits": running.limits.model_copy(update={"per_key": limits.per_key, "per_tenant": per_tenant}),
        "observability": running.observability.model_copy(update={"log_level": new.observability.log_level}),
    }
    return running.model_copy(update=parts)


def _switchable(settings: list[str], known: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of providers that settings turn on or off; only those that are known."""
    names = [setting.removeprefix("providers.").removesuffix(".enabled") for setting in settings]
    found = [name for name, setting in zip(names, settings, strict=True) if f"providers.{name}.enabled" == setting]
    return [name for name in found if known is None or name in known]


def _changes(old: Config, new: Config) -> Iterator[str]:
    return _different(old.model_dump(), new.model_dump(), "")


def _different(old: Mapping[str, Any], new: Mapping[str, Any], above: str) -> Iterator[str]:
    """Yield the settings that differ; a section that only one of them has is one."""
    for name in old.keys() | new.keys():
        one, other = old.get(name), new.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _different(one, other, f"{above}{name}.")
        elif one != other:
            yield f"{above}{name}"
