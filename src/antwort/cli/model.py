"""Which model answers: that of the flag, those of the configuration, one that is found, or the demo model."""

import asyncio
import os
from dataclasses import replace

import click

from antwort.app import Antwort
from antwort.backends.detection import find_backend
from antwort.cli.options import setting
from antwort.config import BackendConfig, LoadedConfig

NAME = "default"
"""The name of a backend that the configuration does not name."""

backend_option = setting(
    "--backend",
    f"backends.{NAME}.url",
    metavar="URL",
    help="Base URL of a model server, such as http://localhost:11434/v1; "
    "its key, if it wants one, from ANTWORT_BACKENDS__DEFAULT__API_KEY.",
)

probe_option = click.option(
    "--no-probe",
    is_flag=True,
    envvar="ANTWORT_NO_PROBE",
    help="Do not look for a model server when none is configured.",
)


def app_with_model(loaded: LoadedConfig, *, probe: bool, own_port: int | None = None) -> Antwort:
    """Build the app; if no model server is configured, look for one before the demo model has to answer.

    `own_port` is where the app will listen: it is not its own model server.
    """
    backends = loaded.config.backends
    if loaded.origin(f"backends.{NAME}.url").kind == "flag":
        # The first one is asked for models nobody claims, and the flag was given for this very call.
        return Antwort(_with_backends(loaded, {NAME: backends[NAME], **backends}))
    found = None if backends or not probe else asyncio.run(find_backend(os.environ, own_port=own_port))
    if found is None:
        return Antwort(loaded)
    app = Antwort(_with_backends(loaded, {NAME: found.config}))
    app.model_description = found.label
    return app


def _with_backends(loaded: LoadedConfig, backends: dict[str, BackendConfig]) -> LoadedConfig:
    return replace(loaded, config=loaded.config.model_copy(update={"backends": backends}))
