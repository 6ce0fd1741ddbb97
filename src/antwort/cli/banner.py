"""What `antwort serve` says of itself: at once what it is, and, as soon as they have answered, what its models are."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence

import antwort
from antwort.app import Antwort
from antwort.backends.build import is_demo
from antwort.backends.findings import Finding, with_cure
from antwort.backends.models import is_pattern
from antwort.config import BackendConfig, mask_urls
from antwort.server.http.serve import url_of

PATIENCE = 5.0
"""Seconds that model servers get to say what they have."""


def banner(app: Antwort, sock: socket.socket, note: str | None = None) -> str:
    """Return what is known before any model server was asked."""
    providers = [registration.name for registration in app.registry.registrations()]
    functions = len(app.registry.list())
    asleep = f"; {', '.join(app.asleep.names)} when it is used" if app.asleep.names else ""
    disks = app.sandbox.describe_disks()
    lines = (
        f"antwort {antwort.__version__}",
        f"  configuration  {app.loaded.path or 'defaults'}",
        f"  model          {app.model_description}",
        *([f"  note           {note}"] if note else []),
        f"  auth           {app.chain.describe()}",
        f"  functions      {functions} ({', '.join(providers) or 'no providers'}){asleep}",
        f"  data           {app.config.data_dir}",
        *([f"  disks of code  {disks}"] if disks else []),
        *([f"  workers        {app.config.server.workers}"] if app.config.server.workers > 1 else []),
        f"Listening on {url_of(sock)}",
    )
    return "\n".join(lines)


async def tell_backends(app: Antwort, say: Callable[[str], None]) -> None:
    """Ask the model servers what they have, and say it; one that is silent is waited for no longer than `PATIENCE`."""
    backends = app.config.backends
    if is_demo(app.config):
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await app.router.findings()
    with contextlib.suppress(OSError):  # nobody reads it any more
        for finding in await cured(app.router.last_findings(), backends):
            say(f"  backend        {described(finding, backends[finding.backend])}")
        for where, name in named_models(app).items():
            if problem := await app.router.problem_of(name):
                say(f"  {where}: {problem}")


def named_models(app: Antwort) -> dict[str, str]:
    """Return the models that a configuration names, by the settings that name them; patterns are none."""
    config = app.config
    named: dict[str, str | None] = {"engine.default_model": config.engine.default_model}
    named |= _listed("engine.run.models", config.engine.run.models)
    for name, agent in config.agents.items():
        named |= {f"agents.{name}.model": agent.model, **_listed(f"agents.{name}.models", agent.models)}
    for registration in app.registry.registrations():
        own = getattr(registration.provider, "named_models", {})  # others' providers need not have it
        named |= {f"providers.{registration.name}.settings.{setting}": model for setting, model in own.items()}
    return {where: model for where, model in named.items() if model and not is_pattern(model)}


def _listed(where: str, models: Sequence[str]) -> dict[str, str]:
    return {f"{where}.{index}": model for index, model in enumerate(models)}


async def cured(findings: list[Finding], backends: Mapping[str, BackendConfig]) -> list[Finding]:
    """Add to findings what helps, where that can be found out."""
    return list(await asyncio.gather(*(with_cure(finding, backends[finding.backend]) for finding in findings)))


def described(finding: Finding, config: BackendConfig) -> str:
    """Return a line about a model server, with its address."""
    who = f"{finding.backend} ({mask_urls(config.url)})"
    about = f"The backend '{finding.backend}' "
    return f"{who} {finding.text.removeprefix(about)}" if finding.text.startswith(about) else f"{who}: {finding.text}"
