"""`antwort run`."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from antwort.cli.agent_tree import AgentTree
from antwort.cli.chat import Chat
from antwort.cli.clients import LocalClient, RemoteClient, ResponseClient
from antwort.cli.event_loop import LeavingRunner, leaving_by_signals
from antwort.cli.model import backend_option, choose_model, probe_option
from antwort.cli.options import config_options, json_option, load
from antwort.cli.output import Misuse
from antwort.cli.questions import answer_by_id, converse, is_somebody_there
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
from antwort.storage.upgrade import current
from antwort.types import JSON


@click.command()
@click.argument("question", required=False)
@click.option("--function", "functions", multiple=True, metavar="NAME", help="Function to offer; repeatable.")
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
@click.option("--url", metavar="URL", help="Ask a running server instead of answering in this process.")
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
    """
    _check_options(ctx, as_json=as_json, as_events=as_events, remote=url is not None)
    parts = [file_part(path) for path in paths]
    text = read_question(question)
    if answer is not None and (parts or previous is not None or not text):
        raise Misuse("--answer takes a text, and goes on with what was asked: leave out --file and --previous")
    chat = not text and _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not (as_json or as_events)
    if not (text or parts or chat):
        raise Misuse("there is nothing to ask: give a question, or pipe it in")
    if chat and url is not None and store is False:
        raise Misuse("--no-store: a server that keeps nothing cannot go on with a chat; ask single questions")
    interactive = is_somebody_there()
    tree: AgentTree | None = None
    with leaving_by_signals() as runner:
        if url is not None:
            client: ResponseClient = RemoteClient(url, api_key)
        else:
            loaded = load(ctx)
            # An earlier response can only be in a database that there is; none is created to look for it.
            goes_on = (previous or answer) and current(database_url(loaded.config)) is not None
            if answer is not None and not goes_on:
                raise Misuse("--answer: nothing is kept here that could wait; --url asks a running server")
            store = store or answer is not None  # what brings an answer is kept
            scratch = not store and not goes_on
            local = _in_process(loaded, functions, probe=not no_probe, scratch=scratch)
            client, store = local, chat or bool(store) or (interactive and scratch)
            if not (as_json or as_events) and _is_terminal(sys.stderr):
                tree = AgentTree(sys.stderr)
                local.watch_agents(tree.take)
            if interactive:  # what waits for the user is offered where there is one
                functions = [*functions, *(name for name in local.waiting_functions() if name not in functions)]
        wish = _request(request, functions, previous_response_id=previous, store=store)
        with _started(runner, client):
            if chat:
                Chat(runner, client, wish, parts).run()
                return
            before = None if tree is None else tree.end
            printer = partial(_printer, as_json=as_json, as_events=as_events, stream=stream, before=before)
            if answer is not None:
                going_on = partial(answer_by_id, runner, client, wish, printer, name=answer, text=text)
            else:
                going_on = partial(converse, runner, client, {**wish, "input": user_input(text, parts)}, printer)
            check_outcome(going_on(interactive=interactive))


def _check_options(ctx: click.Context, *, as_json: bool, as_events: bool, remote: bool) -> None:
    """Refuse options that say different things, or nothing together."""

    def given(name: str) -> bool:
        return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    if as_json and as_events:
        raise Misuse("--json and --events exclude each other")
    if remote and given("backend"):
        raise Misuse("--url asks a server, which has a model; --backend is for an answer in this process")
    if not remote and given("api_key"):
        raise Misuse("--api-key is for --url; the key of a backend comes from ANTWORT_BACKENDS__DEFAULT__API_KEY")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _request(texts: Mapping[str, str | None], functions: Sequence[str], **others: object) -> JSON:
    """Return what every request has; options that were not given are left to who answers."""
    cleaned = {name: clean(text) for name, text in texts.items() if text is not None}
    tools = [{"type": "function", "name": name} for name in functions]
    given = {name: value for name, value in {**others, "tools": tools or None}.items() if value is not None}
    return {**cleaned, **given}


def _printer(
    *, as_json: bool, as_events: bool, stream: bool | None, before: Callable[[], None] | None = None
) -> Printer:
    if as_json:
        return WholeResponse()
    if as_events:
        return EventLines()
    return AnswerText(stream=_is_terminal(sys.stdout) if stream is None else stream, before=before)


@contextlib.contextmanager
def _started(runner: LeavingRunner, client: ResponseClient) -> Iterator[None]:
    try:
        runner.run(client.start())
        yield
    finally:
        runner.run(client.close())


def _in_process(loaded: LoadedConfig, functions: Sequence[str], *, probe: bool, scratch: bool) -> LocalClient:
    choice = choose_model(loaded, probe=probe)
    app = choice.app()
    if choice.note and not app.config.backends:  # else something better than rules answers
        click.echo(f"antwort: {choice.note}", err=True)
    configure_logging("error", "console", redactor=app.redactor)  # what fails is told in one line
    return LocalClient(app, functions, scratch=scratch)
