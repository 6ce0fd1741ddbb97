"""Which model answers: that of the flag, those of the configuration, one that is found, or the demo model."""

import asyncio
import os

import click
from msgspec import Struct
from msgspec.structs import replace

from antwort.app import Antwort
from antwort.backends.detection import SERVICE, find_backend, named_service, service_not_used
from antwort.cli.options import setting
from antwort.config import BackendConfig, LoadedConfig
from antwort.errors import ConfigError
from antwort.sandbox.mounts import MountSpace
from antwort.workers.peers import Peers

NAME = "default"
"""The name of a backend that the configuration does not name."""

_URL = f"backends.{NAME}.url"


def _meaning(backend: str) -> dict[str, str]:
    """Return the settings that `--backend` stands for: a URL, or the service that the environment names."""
    if backend != SERVICE:
        if not backend.startswith(("http://", "https://")):
            raise ConfigError(f"--backend must be a URL, such as http://localhost:11434/v1, or '{SERVICE}'")
        return {_URL: backend}
    service = named_service(os.environ)
    key = service.api_key
    return {_URL: service.url} | ({} if key is None else {f"backends.{NAME}.api_key": key.get_secret_value()})


backend_option = setting(
    "--backend",
    _URL,
    meaning=_meaning,
    metavar="URL",
    help="Base URL of a model server, such as http://localhost:11434/v1; "
    "its key, if it wants one, from ANTWORT_BACKENDS__DEFAULT__API_KEY. "
    f"'{SERVICE}' is OpenAI, or the server of OPENAI_BASE_URL, with the key of OPENAI_API_KEY.",
)

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
        return ModelChoice(loaded, note=note)
    return ModelChoice(_with_backends(loaded, {NAME: found.config}), found.label, note)


def _with_backends(loaded: LoadedConfig, backends: dict[str, BackendConfig]) -> LoadedConfig:
    return replace(loaded, config=loaded.config.model_copy(update={"backends": backends}))
