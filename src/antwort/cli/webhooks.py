"""`antwort webhooks`: what the webhook was given up telling of."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Concatenate, ParamSpec
from urllib.parse import quote, urlencode

import click

from antwort.cli.clients import RemoteClient
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option, server_options
from antwort.cli.output import CommandFailure, Misuse, print_json, print_table
from antwort.cli.running_server import own_url
from antwort.cli.terminal import clean, harmless
from antwort.config import LoadedConfig
from antwort.types import JSON

P = ParamSpec("P")
_PATH = "/webhooks/failed"
_HEADERS = ("id", "response", "asked", "given up", "retries", "why")
_PAGE = 100


@click.group(cls=Group)
def webhooks() -> None:
    """List messages to the webhook that were given up; send them again, or drop them."""


@webhooks.command("list")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="ID", help="Go on after this one.")
@server_options
@json_option
@configured
def list_failed(
    loaded: LoadedConfig, *, limit: int, after: str | None, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """List the messages that a running server has given up, the last ones first."""
    query = {"limit": limit, **({"after": clean(after)} if after else {})}
    page = asyncio.run(RemoteClient(url or own_url(loaded), api_key).request(f"{_PATH}?{urlencode(query)}"))
    if as_json:
        print_json(page)
    elif not page["data"]:
        click.echo("No message was given up.")
    else:
        print_table(_HEADERS, [_row(delivery) for delivery in page["data"]], flexible=_HEADERS.index("why"))
        if page["has_more"]:
            click.echo(f"There are more: --after {page['last_id']}", err=True)


def _for_each(command: Callable[Concatenate[LoadedConfig, P], None]) -> Callable[..., None]:
    """Add what names the deliveries that a command is about."""
    names = click.argument("names", metavar="[ID]...", nargs=-1)
    every = click.option("--all", "every", is_flag=True, help="All that are listed.")
    return names(every(server_options(json_option(configured(command)))))


@webhooks.command()
@_for_each
def retry(
    loaded: LoadedConfig, *, names: tuple[str, ...], every: bool, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """Send messages once more, at once; those that get through leave the list."""
    client = RemoteClient(url or own_url(loaded), api_key)
    done = asyncio.run(_each(client, "retry", names, every=every))
    if as_json:
        print_json({"data": done})
    else:
        for delivery in done:
            said = "is delivered" if delivery["delivered"] else f"did not get through: {harmless(delivery['error'])}"
            click.echo(f"{delivery['id']} {said}")
    if not all(delivery["delivered"] for delivery in done):
        raise CommandFailure("not all messages got through; they can be sent again")


@webhooks.command()
@_for_each
def drop(
    loaded: LoadedConfig, *, names: tuple[str, ...], every: bool, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """Take messages off the list, and tell nobody of them; their questions stay."""
    client = RemoteClient(url or own_url(loaded), api_key)
    done = asyncio.run(_each(client, "drop", names, every=every))
    if as_json:
        print_json({"data": done})
    else:
        click.echo("\n".join(f"Dropped {delivery['id']}." for delivery in done))


async def _each(client: RemoteClient, verb: str, names: tuple[str, ...], *, every: bool) -> list[JSON]:
    """Do something with each of those that are named, or with all, and return what the server says of each."""
    if every == bool(names):
        raise Misuse("name messages by their ids, or all by --all; 'antwort webhooks list' shows those there are")
    ids = [delivery["id"] for delivery in await _listed(client)] if every else map(clean, names)
    return [await client.request(f"{_PATH}/{quote(name, safe='')}/{verb}", {}) for name in ids]


async def _listed(client: RemoteClient) -> list[JSON]:
    """Return all that are in the list now, the first ones first."""
    found: list[JSON] = []
    more = True
    while more:
        after = f"&after={found[-1]['id']}" if found else ""
        page = await client.request(f"{_PATH}?order=asc&limit={_PAGE}{after}")
        found += page["data"]
        more = page["has_more"]
    return found


def _row(delivery: JSON) -> tuple[str, ...]:
    return (
        str(delivery["id"]),
        str(delivery["response_id"]),
        _moment(delivery["asked_at"]),
        _moment(delivery["created_at"]),
        str(delivery["retries"]),
        harmless(str(delivery["error"])),
    )


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
