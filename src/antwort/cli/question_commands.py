"""`antwort questions`."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import click

from antwort.cli.clients import RemoteClient
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import Misuse, print_json, print_table
from antwort.cli.questions import named_question, verdict_of, wording
from antwort.cli.running_server import own_url
from antwort.cli.terminal import clean
from antwort.config import LoadedConfig
from antwort.types import JSON

F = TypeVar("F", bound=Callable[..., object])

_ALL = "all"
_STATES = ("open", "answered", "expired", "cancelled", _ALL)
_HEADERS = ("id", "response", "status", "asked", "choices", "expires")


def _server_options(command: F) -> F:
    """Add the options that name a server."""
    url = click.option("--url", metavar="URL", help="The running server; that of the configuration if not given.")
    key = click.option(
        "--api-key", envvar="OPENAI_API_KEY", show_envvar=True, metavar="KEY", help="Key for that server."
    )
    return url(key(command))


@click.group(cls=Group)
def questions() -> None:
    """List and answer what models ask people, and calls that wait for a yes."""


@questions.command("list")
@click.option("--status", type=click.Choice(_STATES), default="open", show_default=True, help="Only those in a state.")
@click.option("--response", metavar="ID", help="Only those of a response, and of its sub-agents.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many to list at most.")
@_server_options
@json_option
@configured
def list_questions(
    loaded: LoadedConfig,
    *,
    status: str,
    response: str | None,
    limit: int,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List the questions of a running server, the newest first."""
    client = RemoteClient(url or own_url(loaded), api_key)
    state = "" if status == _ALL else status
    found = asyncio.run(
        client.listed_questions(status=state, response_id=clean(response or ""), limit=limit, order="desc")
    )
    if as_json:
        print_json(found)
    elif found:
        print_table(_HEADERS, [_row(question) for question in found], flexible=_HEADERS.index("asked"))
    else:
        click.echo("There are no questions." if status == _ALL else f"No question is {status}.")


@questions.command("answer")
@click.argument("name", metavar="ID")
@click.argument("text")
@click.option("--reason", metavar="TEXT", help="Why a call is not to be made; the model reads it.")
@_server_options
@json_option
@configured
def answer_question(
    loaded: LoadedConfig,
    *,
    name: str,
    text: str,
    reason: str | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Answer a question that a background response of a running server waits for; to a call, say yes or no.

    ID is that of the question, or of a response with one question. The response goes on when all questions of its turn
    are answered. One that was not made in the background is gone on with by 'antwort run --answer'.
    """
    answered = asyncio.run(_answered(RemoteClient(url or own_url(loaded), api_key), name, clean(text), reason))
    if as_json:
        print_json(answered)
    else:
        click.echo(f"Answered {answered['id']}.")


async def _answered(client: RemoteClient, name: str, text: str, reason: str | None) -> JSON:
    question = await named_question(client, name, "ID")
    if question["kind"] == "approval":
        body: JSON = {"approve": verdict_of(text)}
        if reason is not None:
            body["reason"] = clean(reason)
    elif reason is not None:
        raise Misuse("--reason is for calls that wait for a yes or no; this is a question")
    else:
        body = {"answer": text}
    return await client.request(f"/questions/{question['id']}/answer", body)


def _row(question: JSON) -> tuple[str, ...]:
    choices = question["body"].get("choices") or (["yes", "no"] if question["kind"] == "approval" else [])
    return (
        str(question["id"]),
        str(question["response_id"]),
        str(question["status"]),
        wording(question),
        ", ".join(map(str, choices)) or "-",
        _left(question.get("expires_at")),
    )


def _left(expires_at: int | None) -> str:
    """Return how long a question still waits."""
    if expires_at is None:
        return "-"
    seconds = int(expires_at - time.time())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"in {seconds // size} {unit}"
    return f"in {seconds} s" if seconds > 0 else "over"
