"""The operator's switch from a terminal: what is out of service on running servers, and back."""

import asyncio
from urllib.parse import quote

import click

from antwort.cli.clients import RemoteClient
from antwort.cli.options import configured, json_option, server_options
from antwort.cli.output import iso_time, print_json
from antwort.cli.running_server import own_url
from antwort.cli.terminal import clean, harmless
from antwort.config import LoadedConfig
from antwort.types import JSON


def add_switches(group: click.Group, kind: str) -> None:
    """Give a group of commands `disable` and `enable` for what it is about, a `provider` or a `function`."""
    group.add_command(_switch(kind, enabled=False))
    group.add_command(_switch(kind, enabled=True))


def _switch(kind: str, *, enabled: bool) -> click.Command:
    word = "enable" if enabled else "disable"
    does = (
        f"Put a {kind} that was disabled back into service, on all servers of the database."
        if enabled
        else f"Take a {kind} out of service, on all servers of the database, until it is enabled again.\n\n"
        "Calls that are running complete. It stays so over restarts."
    )

    @click.command(word, help=f"{does}\n\nThe key needs the scope admin:write.")
    @click.argument("name")
    @server_options
    @json_option
    @configured
    def command(loaded: LoadedConfig, *, name: str, url: str | None, api_key: str | None, as_json: bool) -> None:
        client = RemoteClient(url or own_url(loaded), api_key)
        found = asyncio.run(client.request(f"/{kind}s/{quote(clean(name), safe='')}/{word}", {}))
        if as_json:
            print_json(found)
        else:
            click.echo(_state(kind, found))

    return command


def _state(kind: str, found: JSON) -> str:
    """Say in a line how something is now."""
    name, off = harmless(str(found["name"])), found["disabled"]
    if off is None:
        return f"The {kind} '{name}' is {'enabled' if found['enabled'] else 'disabled by the program that serves it'}."
    since = iso_time(off["since"])
    by = "" if off["kind"] == kind else f" with its {off['kind']} '{harmless(str(off['name']))}'"
    return f"The {kind} '{name}' is disabled{by}, by '{harmless(str(off['by']))}' since {since}."
