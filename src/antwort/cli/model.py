"""Which model answers: that of the flag, those of the configuration, one that is found, or the demo model."""

import asyncio
import os
from collections.abc import Callable, Sequence

import click
from msgspec import Struct
from msgspec.structs import replace

from antwort.app import Antwort
from antwort.auth import is_anonymous
from antwort.backends.detection import (
    SERVICE,
    USUAL_SERVERS,
    LoopbackServer,
    find_backend,
    named_service,
    service_not_used,
)
from antwort.cli.options import F, setting
from antwort.concurrency.peers import Peers
from antwort.config import DEMO, BackendConfig, Config, LoadedConfig
from antwort.errors import ConfigError
from antwort.sandbox.mounts import MountSpace

NAME = "default"
"""The name of a backend that the configuration does not name."""

_URL = f"backends.{NAME}.url"
_API = f"backends.{NAME}.api"
LOOK_EVERY = 5.0
"""Seconds between two looks for a model server, while there is none."""


def _meaning(backend: str) -> dict[str, str]:
    """Return the settings that `--backend` stands for: a URL, the demo model, or the service of the environment."""
    if backend != SERVICE:
        if backend != DEMO and not backend.startswith(("http://", "https://")):
            raise ConfigError(
                f"--backend must be a URL, such as http://localhost:11434/v1, or '{SERVICE}', or '{DEMO}'"
            )
        return {_URL: backend}
    service = named_service(os.environ)
    key = service.api_key
    return {_URL: service.url} | ({} if key is None else {f"backends.{NAME}.api_key": key.get_secret_value()})


def backend_options(command: F) -> F:
    """Add the options that name a model server."""
    url = setting(
        "--backend",
        _URL,
        meaning=_meaning,
        metavar="URL",
        help="Base URL of a model server, such as http://localhost:11434/v1; "
        "its key, if it wants one, from ANTWORT_BACKENDS__DEFAULT__API_KEY. "
        f"'{SERVICE}' is OpenAI, or the server of OPENAI_BASE_URL, with the key of OPENAI_API_KEY. "
        f"'{DEMO}' is the built-in demo model.",
    )
    api = setting(
        "--backend-api",
        _API,
        metavar="NAME",
        help="What that server speaks: chat (if not given), responses, anthropic, or another dialect.",
    )
    return url(api(command))


probe_option = click.option(
    "--no-probe",
    is_flag=True,
    envvar="ANTWORT_NO_PROBE",
    help="Do not look for a model server when none is configured.",
)


class ModelChoice(Struct, frozen=True):
    """A configuration with whoever answers."""

    loaded: LoadedConfig
    label: str | None = None
    """What to say about a model server that was found."""
    note: str | None = None
    """What to say about one that is not asked."""
    keeps_looking: bool = False
    """Whether none was found, and one may still come."""

    def app(self, peers: Peers | None = None, mounts: MountSpace | None = None) -> Antwort:
        """Build the app."""
        app = Antwort(self.loaded, peers=peers, mounts=mounts)
        app.model_description = self.label or app.model_description
        return app


def choose_model(loaded: LoadedConfig, *, probe: bool, own_port: int | None = None) -> ModelChoice:
    """Settle who answers; if no model server is configured, look for one before the demo model has to.

    `own_port` is where the app will listen: it is not its own model server.
    """
    backends = loaded.config.backends
    if loaded.origin(_URL).kind == "flag":
        # The first one is asked for models nobody claims, and the flag was given for this very call.
        return ModelChoice(_with_backends(loaded, {NAME: backends[NAME], **backends}))
    found = None if backends or not probe else asyncio.run(find_backend(os.environ, own_port=own_port))
    note = None if backends else service_not_used(os.environ, own_port=own_port)
    if found is None:
        return ModelChoice(loaded, note=note, keeps_looking=probe and not backends)
    return ModelChoice(_with_backends(loaded, {NAME: found.config}), found.label, note)


def _with_backends(loaded: LoadedConfig, backends: dict[str, BackendConfig]) -> LoadedConfig:
    return replace(loaded, config=loaded.config.model_copy(update={"backends": backends}))


def rules_answer(choice: ModelChoice, *, server: str | None = None) -> str:
    """Tell that the demo model answers, which was not asked for: why, and how a model is had instead.

    `server` says why no running server answers, if one was looked for.
    """
    *some, last = (usual.label for usual in USUAL_SERVERS)
    looked = f"no {', '.join(some)} or {last} was found on this machine"
    why = [server, looked if choice.keeps_looking else "no model server was looked for (--no-probe)"]
    cure = choice.note or "connect a model with --backend URL"
    return f"the built-in demo model answers, a set of rules: {', and '.join(filter(None, why))}; {cure}"


def check_customers(config: Config) -> None:
    """Refuse the demo model where nobody has named it and where customers ask: it would answer them with rules."""
    served = "authentication" if not is_anonymous(config) else "a database" if config.storage.url else None
    if served is not None and not config.backends:
        raise ConfigError(
            f"there is no model server, and with {served} configured the demo model answers only if it is named: give "
            "--backend URL or `backends`, or --backend demo (`backends: {default: {url: demo}}`).",
            where="backends",
        )


async def keep_looking(
    app: Antwort,
    say: Callable[[str], None],
    *,
    own_port: int | None,
    every: float = LOOK_EVERY,
    ports: Sequence[LoopbackServer] = USUAL_SERVERS,
) -> None:
    """Look for a model server until there is one; then let it answer, and say so."""
    found = None
    while found is None:
        await asyncio.sleep(every)
        found = await find_backend({}, ports=ports, own_port=own_port)
    await app.connect_backends({NAME: found.config}, found.label)
    say(f"  model          {found.label}: it has appeared, and answers now in the place of the demo model")
