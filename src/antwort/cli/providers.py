"""`antwort providers`."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from antwort.app import Antwort, default_providers, enabled_providers
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json, print_table
from antwort.config import LoadedConfig
from antwort.functions import Catalogue


@click.group(cls=Group)
def providers() -> None:
    """List what brings functions."""


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider type within reach."""

    name: str
    state: str
    """`enabled` by the configuration or `default`, started as soon as it is used (`on demand`), or `available`."""
    origin: str
    functions: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


@providers.command("list")
@json_option
@configured
def list_providers(loaded: LoadedConfig, *, as_json: bool) -> None:
    """List every provider within reach; those that are on with what they bring."""
    rows = list(_rows(Antwort(loaded)))
    if as_json:
        print_json([asdict(row) for row in rows])
    elif rows:
        print_table(
            ("name", "state", "origin", "functions", "routes"),
            [(row.name, row.state, row.origin, ", ".join(row.functions), ", ".join(row.routes)) for row in rows],
        )
    else:
        click.echo("There are no providers. Install a package that brings some, or name a folder with --plugins-dir.")


def _rows(app: Antwort) -> Iterator[ProviderRow]:
    config = app.config
    catalogue = Catalogue(plugins_dir=config.plugins_dir)
    enabled = enabled_providers(config, catalogue)
    default = default_providers(config, catalogue)
    for registration in app.registry.registrations():
        provider = enabled[registration.name]
        yield ProviderRow(
            registration.name,
            "default" if config.providers is None and registration.name in default else "enabled",
            catalogue.find(registration.name).origin if provider.use is None else f"use: {provider.use}",
            tuple(entry.spec.name for entry in registration.entries),
            tuple(str(route) for route in registration.routes),
        )
    for found in catalogue:
        if found.name not in enabled:
            state = "on demand" if found.name in app.asleep.names else "available"
            yield ProviderRow(found.name, state, found.origin)
