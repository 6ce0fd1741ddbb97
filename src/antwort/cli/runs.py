"""`antwort runs`: what a running server does, and has done."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import click
import msgspec

from antwort.cli.call_lines import AnswerWithCalls, drawn
from antwort.cli.clients import RemoteClient
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option, server_options
from antwort.cli.output import Misuse, iso_time, print_json, print_table
from antwort.cli.running_server import own_url
from antwort.cli.terminal import EventLines, Printer, check_outcome, clean, harmless
from antwort.cli.traces import drawn_trace, explained
from antwort.concurrency.backoff import Backoff
from antwort.config import LoadedConfig
from antwort.context.agents import AgentInfo
from antwort.errors import APIError, NotFoundError
from antwort.types import JSON

_ALL = "all"
_STATES = ("queued", "in_progress", "completed", "failed", "incomplete", "cancelled", _ALL)
_HEADERS = ("id", "status", "model", "began", "took", "tokens", "why")
_CALL_HEADERS = ("agent", "call", "function", "state", "status", "waits for")
_AWAY = frozenset({502, 503, 504})
"""What a server answers, or somebody in between, that may be back in a moment."""
_PATIENCE = 60.0
"""Seconds for which a server that has sent nothing is tried again."""
_PAUSES = Backoff(0.25, 5.0, random_share=0.5)
_SHOWN = "'antwort runs list' shows those there are"
_MARKS = {"ended": "✗", "interrupted": "!", "waiting": "?"}


@click.group(cls=Group)
def runs() -> None:
    """List, show, trace, cancel, retry and follow responses."""


@runs.command("list")
@click.option("--status", type=click.Choice(_STATES), default=_ALL, show_default=True, help="Only those in a state.")
@click.option("--failed", is_flag=True, help="Only those without a whole answer, or with calls that have failed.")
@click.option("--background/--foreground", default=None, help="Only those in the background, or only the others.")
@click.option("--agent", metavar="NAME", help="Only those of an agent of the configuration.")
@click.option("--function", metavar="NAME", help="Only those that have called a function.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="ID", help="Go on after this one.")
@server_options
@json_option
@configured
def list_runs(
    loaded: LoadedConfig,
    *,
    status: str,
    failed: bool,
    background: bool | None,
    agent: str | None,
    function: str | None,
    limit: int,
    after: str | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List the responses of a running server, the newest first; those of sub-agents are part of another one."""
    wanted = {
        "status": None if status == _ALL else status,
        "failed": "true" if failed else None,
        "background": None if background is None else str(background).lower(),
        "agent": agent,
        "function": function,
        "after": after,
    }
    asked = {name: value for name, value in wanted.items() if value is not None}
    query = {"limit": limit, **asked}
    client = RemoteClient(url or own_url(loaded), api_key)
    page = asyncio.run(client.request(f"/runs?{urlencode(query)}"))
    found: Sequence[JSON] = page["data"]
    if as_json:
        print_json(page)
    elif not found:
        click.echo(_none(status, filtered=bool(asked.keys() - {"status"})))
    else:
        print_table(_HEADERS, [_row(run) for run in found], flexible=_HEADERS.index("why"))
        if page["has_more"]:
            click.echo(f"There are more: --after {page['last_id']}", err=True)


@runs.command()
@click.argument("name", metavar="ID")
@server_options
@json_option
@configured
def show(loaded: LoadedConfig, *, name: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Show a run: how far it is, its agents as a tree, and the calls that they have made."""
    client = RemoteClient(url or own_url(loaded), api_key)
    with _hint():
        run = asyncio.run(client.request(f"/runs/{_quoted(name)}"))
    if as_json:
        print_json(run)
        return
    for label, value in _facts(run):
        click.echo(f"{label:<10} {value}")
    agents = [msgspec.convert(agent, AgentInfo) for agent in run["agents"]]
    click.echo("")
    for line in drawn(agents):
        click.echo(line)
    if run["calls"]:
        names = {agent.response_id: agent.name for agent in agents}
        click.echo("")
        print_table(_CALL_HEADERS, [_call_row(call, names) for call in run["calls"]], flexible=2)


@runs.command()
@click.argument("name", metavar="ID")
@click.option(
    "--max-length", type=click.IntRange(0, 1_000_000), default=2_000, show_default=True, help="Characters of a text."
)
@server_options
@json_option
@configured
def trace(
    loaded: LoadedConfig, *, name: str, max_length: int, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """Tell the story of a run: its agents, each turn of a model, each call with its time, and what did not work.

    Any response of the run will do. Lines are cut short; --json has all, with texts of up to --max-length.
    """
    client = RemoteClient(url or own_url(loaded), api_key)
    with _hint():
        story = asyncio.run(client.request(f"/responses/{_quoted(name)}/trace?max_length={max_length}"))
    if as_json:
        print_json(story)
        return
    for line in drawn_trace(story):
        click.echo(line)


@runs.command()
@click.argument("name", metavar="ID")
@server_options
@json_option
@configured
def cancel(loaded: LoadedConfig, *, name: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Cancel a run, with the agents below it. One that is over stays as it is."""
    client = RemoteClient(url or own_url(loaded), api_key)
    with _hint():
        response = asyncio.run(client.request(f"/responses/{_quoted(name)}/cancel", {}))
    if as_json:
        print_json(response)
    elif response["status"] == "cancelled":
        click.echo(f"Cancelled {response['id']}.")
    else:
        click.echo(f"{response['id']} is {response['status']} already.")


@runs.command()
@click.argument("name", metavar="ID")
@server_options
@json_option
@configured
def retry(loaded: LoadedConfig, *, name: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Make a run that failed, was cut short or cancelled once more: a new response of the same request.

    It begins from the beginning: what functions have done for the old one they may do again. The old one stays, and the
    metadata of the new one has its id as 'retry_of'.
    """
    client = RemoteClient(url or own_url(loaded), api_key)
    with _hint():
        response = asyncio.run(client.request(f"/runs/{_quoted(name)}/retry", {}))
    if as_json:
        print_json(response)
    else:
        click.echo(response["id"])
        click.echo(f"It does what {clean(name)} was to do; 'antwort runs tail {response['id']}' follows it.", err=True)


@runs.command()
@click.argument("name", metavar="ID")
@click.option("--after", type=click.IntRange(0), help="Only events after this number.")
@server_options
@json_option
@configured
def tail(
    loaded: LoadedConfig, *, name: str, after: int | None, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """Follow a run until it is over: its text and its calls, or with --json every event as a line.

    A connection that is lost is taken up again where it was, for a minute; so is one to a server that starts anew.
    """
    client = RemoteClient(url or own_url(loaded), api_key, show_calls=True)
    printer: Printer = EventLines() if as_json else AnswerWithCalls(_say, stream=True)
    with _hint():
        response = asyncio.run(_tail(client, clean(name), -1 if after is None else after, printer))
    check_outcome(response)


def _none(status: str, *, filtered: bool) -> str:
    """Return what is told if nothing is listed."""
    if filtered:
        return "No run is like that."
    return "There are no runs." if status == _ALL else f"No run is {status}."


def _say(line: str) -> None:
    click.echo(line, err=True)


async def _tail(client: RemoteClient, name: str, after: int, printer: Printer) -> JSON:
    """Show what is told of a response, and return what it has come to."""
    async with contextlib.aclosing(followed(client, name, after, _say)) as events:
        async for event in events:
            printer.take(event)
    printer.end()
    return await client.request(f"/responses/{_quoted(name)}")


async def followed(
    client: RemoteClient, name: str, after: int, say: Callable[[str], None]
) -> AsyncGenerator[JSON, None]:
    """Yield the events of a response, each once, over as many connections as it takes.

    The APIError of a server that stays away is raised.
    """
    heard, tries = time.monotonic(), 0
    while True:
        try:
            async with contextlib.aclosing(client.events(name, after=after)) as events:
                async for event in events:
                    after, heard, tries = event["sequence_number"], time.monotonic(), 0
                    yield event
        except APIError as error:
            if error.status not in _AWAY or time.monotonic() - heard > _PATIENCE:
                raise
            if not tries:
                say(f"antwort: {harmless(error.message)} Trying again, from event {after + 1} on.")
        else:
            return
        await asyncio.sleep(_PAUSES.pause(tries))
        tries += 1


@contextlib.contextmanager
def _hint() -> Iterator[None]:
    """Say where ids are found if there is none like the one that was given."""
    try:
        yield
    except APIError as error:
        if error.status != NotFoundError.status:
            raise
        raise Misuse(f"{error.message.rstrip('.')}; {_SHOWN}") from None


def _quoted(name: str) -> str:
    return quote(clean(name), safe="")


def _row(run: JSON) -> tuple[str, ...]:
    return (
        str(run["id"]),
        _status(run),
        str(run["model"]),
        iso_time(run["created_at"]),
        _took(run),
        _tokens(run),
        _why(run) or "-",
    )


def _facts(run: JSON) -> Iterator[tuple[str, str]]:
    """Yield what is told of a run, each with its name."""
    yield "run", str(run["id"])
    yield "status", _status(run)
    yield "model", harmless(str(run["model"]))
    if run["agent"]:
        yield "agent", harmless(str(run["agent"]))
    yield "began", iso_time(run["created_at"])
    yield "took", _took(run)
    yield "tokens", _tokens(run)
    for name in ("previous_response_id", "retry_of"):
        if run[name]:
            yield {"previous_response_id": "continues", "retry_of": "retries"}[name], str(run[name])
    if why := _why(run):
        yield "why", harmless(why)


def _status(run: JSON) -> str:
    return "waiting" if run["waiting"] else str(run["status"])


def _why(run: JSON) -> str:
    error, details = run["error"] or {}, run["incomplete_details"] or {}
    if why := str(error.get("message") or explained(str(details.get("reason") or ""))):
        return why
    failed: int = run["failed_calls"]
    return f"{failed:,} failed call{'' if failed == 1 else 's'}" if failed else ""


def _took(run: JSON) -> str:
    """Return how long a run took; of one that is not over, how long it takes already."""
    end = run["ended_at"]
    if end is None:
        return f"{max(int(time.time()) - run['created_at'], 0)} s so far" if _is_active(run) else "-"
    return f"{end - run['created_at']} s"


def _is_active(run: JSON) -> bool:
    return run["status"] in {"queued", "in_progress"}


def _tokens(run: JSON) -> str:
    usage: dict[str, Any] = run["usage"] or {}
    return f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out" if usage else "-"


def _call_row(call: JSON, names: dict[str, str]) -> tuple[str, ...]:
    status = call["status"] or "-"
    mark = "✓" if status == "success" else _MARKS.get(call["state"], "…")
    return (
        harmless(names.get(str(call["response_id"]), "-")),
        str(call["call_id"]),
        f"{'  ' if call['parent'] else ''}{mark} {harmless(str(call['name']))}",
        str(call["state"]),
        str(status),
        str(call["question_id"] or "-"),
    )
