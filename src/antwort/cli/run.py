"""`antwort run`."""

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from antwort.auth import is_anonymous
from antwort.cli.call_lines import AgentTree, AnswerWithCalls
from antwort.cli.chat import Chat
from antwort.cli.clients import LocalClient, RemoteClient, ResponseClient
from antwort.cli.event_loop import LeavingRunner, leaving_by_signals
from antwort.cli.model import ModelChoice, backend_options, choose_model, probe_option, rules_answer
from antwort.cli.options import config_options, json_option, load
from antwort.cli.output import DEBUG, Misuse
from antwort.cli.questions import answer_by_id, converse, is_somebody_there
from antwort.cli.running_server import running_server
from antwort.cli.terminal import (
    AnswerText,
    EventLines,
    Printer,
    WholeResponse,
    check_outcome,
    clean,
    file_part,
    read_question,
    user_input,
)
from antwort.config import LoadedConfig
from antwort.observability import configure_logging
from antwort.storage import database_url
from antwort.storage.maintenance import current
from antwort.types import JSON

_CHOICES = ("auto", "none", "required")
_RESULTS = ["file_search_call.results"]
"""What shows which files a search has found: they are named where the answer cites none."""


def _number(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """Refuse what JSON has no number for: it would be left out, as if nothing had been said."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"'{value}' is no number from 0 to 2")
    return value


@click.command()
@click.argument("question", required=False)
@click.option("--function", "functions", multiple=True, metavar="NAME", help="Function to offer; repeatable.")
@click.option(
    "--tool-choice",
    metavar="CHOICE",
    help="'required': some function must be called; 'none': none; or the name of one that must be, and is offered.",
)
@click.option("--agent", metavar="NAME", help="Agent of the configuration that answers.")
@click.option("--model", metavar="NAME", help="Model that answers.")
@click.option("--instructions", metavar="TEXT", help="How to answer.")
@click.option("--max-output-tokens", type=int, metavar="N", help="Most tokens that the model may write, 16 or more.")
@click.option(
    "--temperature",
    type=float,
    metavar="X",
    callback=_number,
    help="How freely it chooses words: 0, not at all, to 2.",
)
@click.option("--file", "paths", multiple=True, type=click.Path(path_type=Path), help="File to send; repeatable.")
@click.option("--previous", metavar="ID", help="Stored response to go on from.")
@click.option("--answer", metavar="ID", help="Question, or response with one, that the text answers.")
@click.option("--store/--no-store", default=None, help="Keep the response; by default only a server does.")
@click.option("--stream/--no-stream", default=None, help="Print the text as it comes; the default in a terminal.")
@json_option
@click.option("--events", "as_events", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--quiet", is_flag=True, help="Do not tell of functions that are called, fail or need an approval.")
@click.option("--url", metavar="URL", help="Ask a running server; without it, that of this folder if there is one.")
@click.option("--api-key", envvar="OPENAI_API_KEY", show_envvar=True, metavar="KEY", help="Key for that server.")
@backend_options
@probe_option
@config_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    question: str | None,
    paths: Sequence[Path],
    stream: bool | None,
    as_json: bool,
    as_events: bool,
    quiet: bool,
    url: str | None,
    api_key: str | None,
    no_probe: bool,
    functions: Sequence[str],
    tool_choice: str | None,
    previous: str | None,
    answer: str | None,
    store: bool | None,
    **request: str | float | None,
) -> None:
    """Ask a question and print the answer; without a question, chat.

    What is piped in is the question, or what the question is about. The answer is not kept unless --store says so;
    what functions keep is. Sources that the answer cites are listed below it. What the model asks meanwhile is asked in
    the terminal; without one it is printed, and the exit code is 3; --answer goes on with it. In a chat, what is pasted
    is one question.

    Functions that are called or fail, and approvals that are needed, are a line each on standard error. The id of what
    is kept is told at the end, in a terminal or if something did not work: 'antwort runs trace' tells what. A server
    that runs on the same data folder is asked; one with authentication, if there is a key for it. --backend,
    --plugins-dir and --no-store mean this process.
    """
    _check_options(ctx, as_json=as_json, as_events=as_events, remote=url is not None)
    printing = _Printing(as_json=as_json, as_events=as_events, quiet=quiet)
    named = _named(functions, tool_choice)
    parts = [file_part(path) for path in paths]
    asked = _Asked(read_question(question), parts, named, previous, answer, store, is_somebody_there())
    asked.chat = not asked.text and not printing.raw and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    _check_question(asked, remote=url is not None)
    with leaving_by_signals() as runner:
        client = _client(ctx, asked, printing, url, api_key, probe=not no_probe)
        offer = _offer([*asked.functions], tool_choice)
        wish = _request(request, offer, previous_response_id=previous, store=asked.store, include=_RESULTS)
        with _started(runner, client), _failures_logged(once=printing.shows_calls and not ctx.meta.get(DEBUG)):
            _answer(runner, client, wish, asked, printing, stream=stream)


@dataclass
class _Asked:
    """What is asked, and what may be called for it."""

    text: str
    parts: Sequence[JSON]
    functions: dict[str, str]
    """Names to offer, and the options that name them."""
    previous: str | None
    answer: str | None
    store: bool | None
    interactive: bool
    """Whether somebody is there who can be asked back."""
    chat: bool = False
    scratch: bool = False
    """Whether responses are gone at the end, also those that are stored meanwhile."""


def _client(
    ctx: click.Context, asked: _Asked, printing: "_Printing", url: str | None, key: str | None, *, probe: bool
) -> ResponseClient:
    """Return who answers: the server that is named, or that of this folder, else an app in this process."""
    if url is not None:
        return RemoteClient(url, key, show_calls=printing.shows_calls, is_named=True)
    loaded = load(ctx)
    beside = _server_beside(ctx, loaded, key, asked.store)
    if beside is not None:
        if not printing.quiet:
            click.echo(f"antwort: asking {beside}, the server of this folder", err=True)
        return RemoteClient(beside, key, show_calls=printing.shows_calls)
    scratch = not (_is_stored(loaded, asked.previous, asked.answer) or asked.store)
    choice = choose_model(loaded, probe=probe)
    client = _in_process(choice, asked.functions, scratch=scratch, show_calls=printing.shows_calls)
    if not choice.loaded.config.backends:
        told = asked.chat or printing.quiet  # a chat begins with who answers
        client.notice = choice.note if told else rules_answer(choice, server=_why_none(ctx, loaded, asked.store))
    asked.scratch = scratch
    # What brings an answer is stored.
    asked.store = asked.chat or bool(asked.store or asked.answer) or (asked.interactive and scratch)
    printing.watch_agents(client)
    if asked.interactive:  # what waits for the user is offered where there is one
        asked.functions |= dict.fromkeys(client.waiting_functions(), "")
    return client


def _answer(
    runner: LeavingRunner,
    client: ResponseClient,
    wish: JSON,
    asked: _Asked,
    printing: "_Printing",
    *,
    stream: bool | None,
) -> None:
    """Have a question answered, or chat."""
    if asked.chat:
        Chat(runner, client, wish, asked.parts, partial(printing.text, stream=True)).run()
        return
    printer = printing.printer(stream=_is_terminal(sys.stdout) if stream is None else stream)
    if asked.answer is not None:
        going_on = partial(answer_by_id, runner, client, wish, printer, name=asked.answer, text=asked.text)
    else:
        wish = {**wish, "input": user_input(asked.text, asked.parts)}
        going_on = partial(converse, runner, client, wish, printer)
    response = going_on(interactive=asked.interactive)
    if response.get("store") and not asked.scratch:
        printing.tell_id(response, client.place)
    check_outcome(response)


class _Printing:
    """What is printed of an answer: its text, the response or the events as JSON, and calls and agents beside it."""

    def __init__(self, *, as_json: bool, as_events: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._as_events = as_events
        self.quiet = quiet
        self.raw = as_json or as_events
        """Whether a program reads what is printed."""
        self.shows_calls = not (quiet or self.raw)
        self._tree: AgentTree | None = None
        self._made: list[AnswerWithCalls] = []

    def watch_agents(self, client: LocalClient) -> None:
        """Show the agents that a client starts below the answer, in a terminal."""
        if not self.raw and _is_terminal(sys.stderr):
            self._tree = AgentTree(sys.stderr)
            client.watch_agents(self._tree.take)

    def printer(self, *, stream: bool) -> Callable[[], Printer]:
        """Return what makes the printer of an answer."""
        if self._as_json:
            return WholeResponse
        return EventLines if self._as_events else partial(self.text, stream=stream)

    def text(self, *, stream: bool) -> AnswerText:
        """Return what prints an answer, with calls on standard error if they are shown, above the tree of agents."""
        tree = self._tree
        before = None if tree is None else tree.end
        if not self.shows_calls:
            return AnswerText(stream=stream, before=before)
        say = partial(click.echo, err=True) if tree is None else tree.say
        made = AnswerWithCalls(say, stream=stream, before=before)
        self._made.append(made)
        return made

    def tell_id(self, response: JSON, place: str) -> None:
        """Tell people what a response is called, and everybody how to see what did not work; `place` says where."""
        has_failed = response["status"] != "completed" or any(made.failed_calls for made in self._made)
        if not (self.shows_calls and (has_failed or _is_terminal(sys.stderr))):
            return
        hint = f"; 'antwort runs trace {response['id']}{place}' tells what did not work" if has_failed else ""
        click.echo(f"antwort: {response['id']}{hint}", err=True)


def _server_beside(ctx: click.Context, loaded: LoadedConfig, key: str | None, store: bool | None) -> str | None:
    """Return the server that runs on the same data folder, if it can do what is asked; None if there is none."""
    if _means_this_process(ctx, store):
        return None
    return running_server(loaded.config) if key or is_anonymous(loaded.config) else None


def _why_none(ctx: click.Context, loaded: LoadedConfig, store: bool | None) -> str | None:
    """Tell why no server of the data folder answers; None if none was looked for."""
    if _means_this_process(ctx, store):
        return None
    url = running_server(loaded.config)
    if url is not None:
        return f"{url}, the server of this folder, wants a key (--api-key)"
    return f"no server runs on {loaded.config.data_dir}"


def _means_this_process(ctx: click.Context, store: bool | None) -> bool:
    return store is False or _gives_backend(ctx) or _given(ctx, "plugins_dir")


def _check_options(ctx: click.Context, *, as_json: bool, as_events: bool, remote: bool) -> None:
    """Refuse options that say different things, or nothing together."""
    if as_json and as_events:
        raise Misuse("--json and --events exclude each other")
    if remote and _gives_backend(ctx):
        raise Misuse("--url asks a server, which has a model; --backend is for an answer in this process")
    if not remote and _given(ctx, "api_key") and _gives_backend(ctx):
        raise Misuse("--api-key is for --url; the key of a backend comes from ANTWORT_BACKENDS__DEFAULT__API_KEY")


def _check_question(asked: _Asked, *, remote: bool) -> None:
    """Refuse what is neither a question nor an answer."""
    if asked.answer is not None and (asked.parts or asked.previous is not None or not asked.text):
        raise Misuse("--answer takes a text, and goes on with what was asked: leave out --file and --previous")
    if not (asked.text or asked.parts or asked.chat):
        raise Misuse("there is nothing to ask: give a question, or pipe it in")
    if asked.chat and remote and asked.store is False:
        raise Misuse("--no-store: a server that keeps nothing cannot go on with a chat; ask single questions")


def _is_stored(loaded: LoadedConfig, previous: str | None, answer: str | None) -> bool:
    """Tell whether a response that is gone on from can be here: in a database that there is. None is made to look."""
    stored = bool(previous or answer) and current(database_url(loaded.config)) is not None
    if answer is not None and not stored:
        raise Misuse("--answer: nothing is kept here that could wait; --url asks a running server")
    return stored


def _gives_backend(ctx: click.Context) -> bool:
    return _given(ctx, "backend") or _given(ctx, "backend_api")


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _named(functions: Sequence[str], choice: str | None) -> dict[str, str]:
    """Return the functions to offer, with the one that must be called, and the options that name them."""
    named = dict.fromkeys(functions, "--function")
    return named if choice in (None, *_CHOICES, *functions) else {**named, str(choice): "--tool-choice"}


def _offer(functions: Sequence[str], choice: str | None) -> JSON:
    """Return what a request says of functions: those to offer, and the choice among them."""
    tools = [{"type": "function", "name": name} for name in functions]
    return {
        "tools": tools or None,
        "tool_choice": choice if choice in (None, *_CHOICES) else {"type": "function", "name": choice},
    }


def _request(*options: Mapping[str, object], **others: object) -> JSON:
    """Return what every request has; options that were not given are left to who answers."""
    given = {name: value for some in (*options, others) for name, value in some.items() if value is not None}
    return {name: clean(value) if isinstance(value, str) else value for name, value in given.items()}


@contextlib.contextmanager
def _failures_logged(*, once: bool) -> Iterator[None]:
    """Leave functions that fail, with their tracebacks, out of the log if they have a line already."""
    logger = logging.getLogger("antwort.functions")
    before = logger.level
    if once:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _started(runner: LeavingRunner, client: ResponseClient) -> Iterator[None]:
    try:
        runner.run(client.start())
        yield
    finally:
        runner.run(client.close())


def _in_process(choice: ModelChoice, functions: Mapping[str, str], *, scratch: bool, show_calls: bool) -> LocalClient:
    app = choice.app()
    configure_logging("error", "console", redactor=app.redactor)  # what fails is told in one line
    return LocalClient(app, functions, scratch=scratch, show_calls=show_calls)
