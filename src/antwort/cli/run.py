"""`antwort run`."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from antwort.auth import is_anonymous
from antwort.cli.agent_tree import AgentTree
from antwort.cli.call_lines import AnswerWithCalls
from antwort.cli.chat import Chat
from antwort.cli.clients import LocalClient, RemoteClient, ResponseClient
from antwort.cli.event_loop import LeavingRunner, leaving_by_signals
from antwort.cli.model import backend_option, choose_model, probe_option
from antwort.cli.options import config_options, json_option, load
from antwort.cli.output import DEBUG, Misuse
from antwort.cli.questions import answer_by_id, converse, is_somebody_there
from antwort.cli.running_server import running_server
from antwort.cli.terminal import (
    AnswerText,
    EventLines,
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
@backend_option
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
    previous: str | None,
    answer: str | None,
    store: bool | None,
    **request: str | None,
) -> None:
    """Ask a question and print the answer; without a question, chat.

    What is piped in is the question, or what the question is about. The answer is not kept unless --store says so;
    what functions keep is. Sources that the answer cites are listed below it. What the model asks meanwhile is asked in
    the terminal; without one it is printed, and the exit code is 3; --answer goes on with it. In a chat, what is pasted
    is one question.

    Functions that are called or fail, and approvals that are needed, are a line each on standard error. A server that
    runs on the same data folder is asked; one with authentication, if there is a key for it. --backend, --plugins-dir
    and --no-store mean this process.
    """
    _check_options(ctx, as_json=as_json, as_events=as_events, remote=url is not None)
    named = _named(functions, request["tool_choice"])
    parts = [file_part(path) for path in paths]
    text = read_question(question)
    chat = not text and _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not (as_json or as_events)
    _check_question(text, parts, answer, previous, chat=chat)
    if chat and url is not None and store is False:
        raise Misuse("--no-store: a server that keeps nothing cannot go on with a chat; ask single questions")
    interactive = is_somebody_there()
    shows = not (quiet or as_json or as_events)
    tree: AgentTree | None = None
    with leaving_by_signals() as runner:
        loaded = load(ctx) if url is None else None
        if loaded is not None and (url := _server_beside(ctx, loaded, api_key, store)) is not None and not quiet:
            click.echo(f"antwort: asking {url}, the server of this folder", err=True)
        if loaded is None or url is not None:
            client: ResponseClient = RemoteClient(str(url), api_key, show_calls=shows)
        else:
            scratch = not (_is_kept(loaded, previous, answer) or store)
            local = _in_process(loaded, named, probe=not no_probe, scratch=scratch, show_calls=shows)
            # What brings an answer is kept.
            client, store = local, chat or bool(store or answer) or (interactive and scratch)
            if not (as_json or as_events) and _is_terminal(sys.stderr):
                tree = AgentTree(sys.stderr)
                local.watch_agents(tree.take)
            if interactive:  # what waits for the user is offered where there is one
                named |= dict.fromkeys(local.waiting_functions(), "")
        wish = _request(request, [*named], previous_response_id=previous, store=store, include=_RESULTS)
        text_printer = partial(_text_printer, tree, shows=shows)
        with _started(runner, client), _failures_told_once(told=shows and not ctx.meta.get(DEBUG)):
            if chat:
                Chat(runner, client, wish, parts, partial(text_printer, stream=True)).run()
                return
            stream = _is_terminal(sys.stdout) if stream is None else stream
            printer = WholeResponse if as_json else EventLines if as_events else partial(text_printer, stream=stream)
            if answer is not None:
                going_on = partial(answer_by_id, runner, client, wish, printer, name=answer, text=text)
            else:
                going_on = partial(converse, runner, client, {**wish, "input": user_input(text, parts)}, printer)
            check_outcome(going_on(interactive=interactive))


def _server_beside(ctx: click.Context, loaded: LoadedConfig, key: str | None, store: bool | None) -> str | None:
    """Return the server that runs on the same data folder, if it can do what is asked; None if there is none."""
    if store is False or _given(ctx, "backend") or _given(ctx, "plugins_dir"):
        return None
    return running_server(loaded.config) if key or is_anonymous(loaded.config) else None


def _check_options(ctx: click.Context, *, as_json: bool, as_events: bool, remote: bool) -> None:
    """Refuse options that say different things, or nothing together."""
    if as_json and as_events:
        raise Misuse("--json and --events exclude each other")
    if remote and _given(ctx, "backend"):
        raise Misuse("--url asks a server, which has a model; --backend is for an answer in this process")
    if not remote and _given(ctx, "api_key") and _given(ctx, "backend"):
        raise Misuse("--api-key is for --url; the key of a backend comes from ANTWORT_BACKENDS__DEFAULT__API_KEY")


def _check_question(text: str, files: Sequence[JSON], answer: str | None, previous: str | None, *, chat: bool) -> None:
    """Refuse what is neither a question nor an answer."""
    if answer is not None and (files or previous is not None or not text):
        raise Misuse("--answer takes a text, and goes on with what was asked: leave out --file and --previous")
    if not (text or files or chat):
        raise Misuse("there is nothing to ask: give a question, or pipe it in")


def _is_kept(loaded: LoadedConfig, previous: str | None, answer: str | None) -> bool:
    """Tell whether a response that is gone on from can be here: in a database that there is. None is made to look."""
    kept = bool(previous or answer) and current(database_url(loaded.config)) is not None
    if answer is not None and not kept:
        raise Misuse("--answer: nothing is kept here that could wait; --url asks a running server")
    return kept


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _named(functions: Sequence[str], choice: str | None) -> dict[str, str]:
    """Return the functions to offer, with the one that must be called, and the options that name them."""
    named = dict.fromkeys(functions, "--function")
    return named if choice in (None, *_CHOICES, *functions) else {**named, str(choice): "--tool-choice"}


def _request(texts: Mapping[str, str | None], functions: Sequence[str], **others: object) -> JSON:
    """Return what every request has; options that were not given are left to who answers."""
    cleaned = {name: clean(text) for name, text in texts.items() if text is not None}
    choice = cleaned.pop("tool_choice", None)
    others["tools"] = [{"type": "function", "name": name} for name in functions] or None
    others["tool_choice"] = choice if choice in (None, *_CHOICES) else {"type": "function", "name": choice}
    return {**cleaned, **{name: value for name, value in others.items() if value is not None}}


def _text_printer(tree: AgentTree | None, *, shows: bool, stream: bool) -> AnswerText:
    """Return what prints an answer, with the calls on standard error if `shows` says so, above the tree of agents."""
    before = None if tree is None else tree.end
    if not shows:
        return AnswerText(stream=stream, before=before)
    return AnswerWithCalls(partial(click.echo, err=True) if tree is None else tree.say, stream=stream, before=before)


@contextlib.contextmanager
def _failures_told_once(*, told: bool) -> Iterator[None]:
    """Keep the log from telling of functions that fail, with their tracebacks, if they have a line already."""
    logger = logging.getLogger("antwort.functions")
    before = logger.level
    if told:
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


def _in_process(
    loaded: LoadedConfig, functions: Mapping[str, str], *, probe: bool, scratch: bool, show_calls: bool
) -> LocalClient:
    choice = choose_model(loaded, probe=probe)
    app = choice.app()
    if choice.note and not app.config.backends:  # else something better than rules answers
        click.echo(f"antwort: {choice.note}", err=True)
    configure_logging("error", "console", redactor=app.redactor)  # what fails is told in one line
    return LocalClient(app, functions, scratch=scratch, show_calls=show_calls)
