"""What a model asks while it works: put to whoever sits at the terminal, or answered by its id."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from antwort.cli.clients import RemoteClient, ResponseClient
from antwort.cli.event_loop import LeavingRunner
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option, server_options
from antwort.cli.output import CommandFailure, Misuse, print_json, print_table
from antwort.cli.running_server import own_url
from antwort.cli.terminal import Printer, ask, clean, harmless
from antwort.config import LoadedConfig
from antwort.errors import APIError, NotFoundError
from antwort.types import JSON

_SHOWN = "'antwort questions list' shows what is open"
_VERDICTS = {"yes": True, "y": True, "no": False, "n": False}


class Unanswered(CommandFailure):
    """The model has asked something, and nobody can be asked here."""

    exit_code = 3


def is_somebody_there() -> bool:
    """Tell whether questions can be asked: both sides are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def converse(
    runner: LeavingRunner,
    client: ResponseClient,
    request: Mapping[str, Any],
    printer: Callable[[], Printer],
    *,
    interactive: bool,
) -> JSON:
    """Show a response, and those that follow because it asks something, and return the last one."""
    while True:
        response = runner.run(ask(client, request, printer()))
        waiting = questions_of(response)
        if not waiting:
            return response
        if not interactive:
            raise Unanswered(_how_to_answer(response, waiting))
        request = {**request, "previous_response_id": response["id"], "input": [_answer(item) for item in waiting]}
        request.pop("tool_choice", None)  # what had to be called was called


def questions_of(response: JSON) -> list[JSON]:
    """Return the items of a response that wait for an answer of the user."""
    if response.get("status") != "completed" or response.get("background"):
        return []  # in the background it would wait itself
    output: Sequence[JSON] = response.get("output", ())
    return [item for item in output if item.get("type") == "mcp_approval_request" or _asked(item) is not None]


def _asked(item: JSON) -> JSON | None:
    """Return what a call asks the user, if it does."""
    if item.get("type") != "function_call":
        return None
    try:
        arguments = json.loads(item.get("arguments") or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) and isinstance(arguments.get("question"), str) else None


def _answer(item: JSON) -> JSON:
    """Ask, and return the answer as input."""
    asked = _asked(item)
    if asked is None:
        click.echo(_approval(item))
        approve = click.confirm("Allow it?")
        reason = "" if approve else clean(click.prompt("Why not?", default="", show_default=False))
        verdict: JSON = {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve}
        return {**verdict, "reason": reason} if reason else verdict
    click.echo(harmless(asked["question"]))
    given, choices = asked.get("default"), asked.get("choices")
    default = given if isinstance(given, str) else None
    kind = click.Choice([str(choice) for choice in choices]) if isinstance(choices, list) and choices else None
    text = clean(str(click.prompt(">", type=kind, default=default, prompt_suffix=" ")))
    return {"type": "function_call_output", "call_id": item["call_id"], "output": text}


def _approval(item: JSON) -> str:
    return harmless(f"The model wants to call {item['name']} ({item['server_label']}) with {item['arguments']}")


def _how_to_answer(response: JSON, waiting: Sequence[JSON]) -> str:
    asked = [(_asked(item) or {}).get("question") or _approval(item) for item in waiting]
    continued = {"previous_response_id": response.get("id"), "input": [_blank(item) for item in waiting]}
    cure = f"answer in a terminal, or with POST /v1/responses {json.dumps(continued, ensure_ascii=False)}"
    return f"the model asks: {' / '.join(map(harmless, asked))} ({harmless(cure)})"


def _blank(item: JSON) -> JSON:
    """Return the input that answers an item, with the answer left open."""
    if _asked(item) is None:
        return {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": True}
    return {"type": "function_call_output", "call_id": item["call_id"], "output": "…"}


# --- by their ids ----------------------------------------------------------------------------------------------------


def answer_by_id(
    runner: LeavingRunner,
    client: ResponseClient,
    request: Mapping[str, Any],
    printer: Callable[[], Printer],
    *,
    name: str,
    text: str,
    interactive: bool,
) -> JSON:
    """Answer a question by its id, or the only one of a response, show what goes on with it, and return that.

    If the model asks again meanwhile and nobody can be asked here, that is told.
    """
    question = runner.run(named_question(client, name, "--answer"))
    answering = {**request, "previous_response_id": question["run_id"], "input": [_given(question, text)]}
    response = converse(runner, client, answering, printer, interactive=interactive)
    if not response.get("background"):
        return response
    asked = runner.run(client.questions(str(question["run_id"])))
    if response.get("status") == "in_progress":
        still_open = [one for one in asked if one["status"] == "open"]
        if not still_open:
            raise CommandFailure("the answer broke off before its end")
        told = " / ".join(f"{wording(one)} ('antwort run --answer {one['id']} …')" for one in still_open)
        raise Unanswered(f"the model asks: {told}")
    answered = {one["call_id"] for one in asked}
    return {**response, "output": [item for item in response["output"] if item.get("call_id") not in answered]}


async def named_question(client: ResponseClient, name: str, option: str) -> JSON:
    """Return the question that an id means: its own, or that of a response with one that is open."""
    try:
        found = await client.questions(clean(name), status="open")
    except APIError as error:
        if error.status != NotFoundError.status:
            raise
        raise Misuse(f"{error.message.rstrip('.')}; {_SHOWN}") from None
    if not found:
        raise Misuse(f"{option} {name}: nothing is asked there; {_SHOWN}")
    if len(found) > 1:
        listed = ", ".join(f"{one['id']} ({wording(one)})" for one in found)
        raise Misuse(f"{option} {name}: there are {len(found)} questions; name one: {listed}")
    return found[0]


def wording(question: JSON) -> str:
    """Return what a question asks, in a line that a terminal only shows."""
    body = question["body"]
    if question["kind"] == "approval":
        return _approval(body)
    return harmless(" ".join(str(body.get("question") or json.dumps(body, ensure_ascii=False)).split()))


def verdict_of(text: str) -> bool:
    """Return what a text says to a call that is to be approved."""
    verdict = _VERDICTS.get(text.strip().lower())
    if verdict is None:
        raise Misuse(f"'{text}' is neither yes nor no: the model wants to make a call, and waits for one of these")
    return verdict


def _given(question: JSON, text: str) -> JSON:
    """Return an answer as input."""
    if question["kind"] == "approval":
        return {
            "type": "mcp_approval_response",
            "approval_request_id": question["id"],
            "approve": verdict_of(text),
        }
    return {"type": "function_call_output", "call_id": question["call_id"], "output": text}


# --- `antwort questions` ---------------------------------------------------------------------------------------------


_ALL = "all"
_STATES = ("open", "answered", "expired", "cancelled", _ALL)
_HEADERS = ("id", "response", "status", "asked", "choices", "expires")


@click.group(cls=Group)
def questions() -> None:
    """List and answer what models ask people, and calls that wait for a yes."""


@questions.command("list")
@click.option("--status", type=click.Choice(_STATES), default="open", show_default=True, help="Only those in a state.")
@click.option("--response", metavar="ID", help="Only those of a response, and of its sub-agents.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many to list at most.")
@server_options
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
@server_options
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
