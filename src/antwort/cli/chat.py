"""`antwort run` without a question: a conversation in the terminal."""

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import antwort
from antwort.cli.call_lines import AnswerWithCalls
from antwort.cli.clients import ResponseClient
from antwort.cli.event_loop import LeavingRunner
from antwort.cli.output import CommandFailure, Misuse, failure_of, print_json, print_table
from antwort.cli.questions import converse
from antwort.cli.terminal import (
    AnswerText,
    answer_text,
    check_outcome,
    cited_sources,
    clean,
    harmless,
    open_calls,
    user_input,
)
from antwort.cli.traces import drawn_trace
from antwort.errors import APIError, NotFoundError, did_you_mean
from antwort.types import JSON

_PASTED = 0.03
"""Seconds within which the next line of a paste is there, where the terminal does not mark its end."""


class TypedLines:
    """Reads questions from the terminal. EOFError is the end, as it is of `input`.

    A terminal that marks pastes has them edited as one text; elsewhere lines that come at once are taken for one.
    """

    def __init__(self) -> None:
        self._marked = _marks_pastes(_editing())
        self._ended = False

    def read(self, prompt: str) -> str:
        """Return the next question."""
        if self._ended:
            raise EOFError
        lines = [input(prompt)]
        while not self._marked and select.select([sys.stdin], [], [], _PASTED)[0]:
            try:
                lines.append(input())
            except EOFError:
                self._ended = True  # it is the end behind these lines
                break
        return "\n".join(lines)


def _editing() -> ModuleType | None:
    """Give `input` its history and editing, where there is a library for it."""
    with contextlib.suppress(ImportError):
        import readline

        return readline
    return None


def _marks_pastes(readline: ModuleType | None) -> bool:
    """Have pastes marked, and tell whether they will be: GNU Readline can do it, on terminals that can."""
    if readline is None or "libedit" in (readline.__doc__ or "") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    readline.parse_and_bind("set enable-bracketed-paste on")
    return True


COMMANDS = {
    "/new": "forget what was said and start again",
    "/retry": "ask the last question again",
    "/model": "list the models; with a name, that one answers from now on",
    "/functions": "list the functions that can be called",
    "/trace": "tell what was done for the last answer; of another one with its id, all of it with --json",
    "/save": "write the chat into a new file, chat.md or of another name; one that ends in .json has the responses",
    "/help": "show this list",
    "/quit": "leave, as Ctrl-D does",
}
_ALONE = frozenset({"/new", "/retry", "/functions", "/help", "/quit"})
"""Commands that take nothing."""
_SAVED = "chat.md"


@dataclass
class _Exchange:
    """A question, and what came of it."""

    text: str
    files: Sequence[JSON]
    previous: str | None
    """The response that it goes on from."""
    response: JSON = field(default_factory=dict)


class Chat:
    """Reads questions and answers them, each with a `printer` of its own.

    `request` is what every turn asks for; `files` go with the first.
    """

    def __init__(
        self,
        runner: LeavingRunner,
        client: ResponseClient,
        request: Mapping[str, Any],
        files: Sequence[JSON],
        printer: Callable[[], AnswerText],
    ) -> None:
        self._runner = runner
        self._client = client
        self._request = dict(request)
        self._files = files
        self._printer = printer
        self._previous: str | None = self._request.pop("previous_response_id", None)
        self._answered: list[_Exchange] = []
        self._asked: _Exchange | None = None
        """What was asked last, whatever came of it."""
        self._shown: str | None = self._previous
        """The response that was made last, whatever became of it."""
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/new": self._begin_again,
            "/retry": self._retry,
            "/model": self._choose_model,
            "/functions": self._list_functions,
            "/trace": self._trace,
            "/save": self._save,
            "/help": self._help,
        }

    def run(self) -> None:
        """Go on until the user leaves."""
        typed = TypedLines()
        click.echo(f"antwort {antwort.__version__}: {self._client.description}")
        click.echo("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        while True:
            try:
                line = clean(typed.read("> ")).strip()
                if line == "/quit":
                    return
                if line.startswith("/") and "\n" not in line:
                    self._command(line)
                elif line:
                    self._answer(_Exchange(line, self._files, self._previous), self._answered)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()

    def _answer(self, asked: _Exchange, before: Sequence[_Exchange]) -> None:
        """Have a question answered, after what was said before it."""
        request = {**self._request, "input": user_input(asked.text, asked.files)}
        if asked.previous is not None:
            request["previous_response_id"] = asked.previous
        self._asked, printer = asked, self._printer()
        try:
            response = converse(self._runner, self._client, request, lambda: printer, interactive=True)
            if response.get("status") in {"completed", "incomplete"} and not open_calls(response):
                asked.response = response
                self._answered = [*before, asked]
                self._previous, self._files = response["id"], ()
            check_outcome(response)
        except (KeyboardInterrupt, click.Abort):
            printer.finish_line()
            click.echo("(stopped)")
        except (CommandFailure, APIError) as error:
            printer.finish_line()
            _tell(error)
        finally:
            self._shown = printer.response_id or self._shown
        if isinstance(printer, AnswerWithCalls) and printer.failed_calls:
            click.echo("(/trace tells what did not work)", err=True)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        work = self._commands.get(name)
        try:
            if work is None and name != "/quit":
                raise Misuse(f"There is no command '{name}'{did_you_mean(name, COMMANDS) or '; /help lists them.'}")
            if work is None or (rest and name in _ALONE):
                raise Misuse(f"{name} stands alone; /help lists the commands")
            work(rest.strip())
        except (CommandFailure, APIError) as error:
            _tell(error)

    def _begin_again(self, _rest: str) -> None:
        self._previous, self._asked, self._answered = None, None, []
        click.echo("A new conversation.")

    def _help(self, _rest: str) -> None:
        for name, text in COMMANDS.items():
            click.echo(f"{name.ljust(12)}{text}")

    def _retry(self, _rest: str) -> None:
        last = self._asked
        if last is None:
            raise Misuse("nothing was asked yet")
        before = self._answered[:-1] if self._answered and self._answered[-1] is last else self._answered
        self._answer(_Exchange(last.text, last.files, last.previous), before)

    def _choose_model(self, name: str) -> None:
        if name:
            self._runner.run(self._client.check_model(name))
            self._request["model"] = name
            click.echo(f"{harmless(name)} answers from now on.")
            return
        chosen = self._request.get("model")
        for model in self._runner.run(self._client.models()):
            click.echo(harmless(f"{'*' if model == chosen else ' '} {model}"))
        if chosen is None:
            click.echo("None is chosen: the server's default answers.")

    def _list_functions(self, _rest: str) -> None:
        found = self._runner.run(self._client.functions())
        if not found:
            click.echo("There are no functions.")
            return
        offered = {tool["name"] for tool in self._request.get("tools") or ()}
        rows = [(f"{one['name']}{' (asked for)' if one['name'] in offered else ''}", _about(one)) for one in found]
        print_table(("function", "what it does"), rows, flexible=1)

    def _trace(self, rest: str) -> None:
        words = rest.split()
        names = [word for word in words if word != "--json"]
        if len(names) > 1:
            raise Misuse("/trace takes the id of one response")
        name = names[0] if names else self._shown
        if name is None:
            raise Misuse("nothing was answered yet")
        try:
            story = self._runner.run(self._client.trace(name))
        except APIError as error:
            if names or error.status != NotFoundError.status:
                raise
            raise Misuse("nothing is kept of the last answer: it failed before anything was done") from None
        if len(names) < len(words):
            print_json(story)
            return
        for line in drawn_trace(story):
            click.echo(line)

    def _save(self, rest: str) -> None:
        if not self._answered:
            raise Misuse("nothing was answered yet")
        path = Path(rest or _SAVED).expanduser()
        text = _as_json(self._answered) if path.suffix == ".json" else _as_markdown(self._answered)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise Misuse(f"there is a file {path} already; /save takes another name") from None
        except (OSError, ValueError) as error:
            raise CommandFailure(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
        click.echo(f"Saved in {path}.")


def _tell(error: CommandFailure | APIError) -> None:
    (error if isinstance(error, CommandFailure) else failure_of(error)).show()


def _about(function: JSON) -> str:
    """Return what a function does, in a line."""
    first = str(function["description"]).partition("\n")[0]
    return first if function["enabled"] else f"(switched off) {first}"


def _as_json(exchanges: Sequence[_Exchange]) -> str:
    said = [{"input": user_input(one.text, one.files), "response": one.response} for one in exchanges]
    return json.dumps(said, indent=2, ensure_ascii=False) + "\n"


def _as_markdown(exchanges: Sequence[_Exchange]) -> str:
    """Return what was said, with the sources of each answer."""
    parts = []
    for one in exchanges:
        sources = "".join(f"\n- {source}" for source in cited_sources(one.response))
        parts += ["## Question", one.text, f"## {one.response.get('model') or 'Answer'}", answer_text(one.response)]
        parts += [f"Sources:\n{sources}"] if sources else []
    return "\n\n".join(parts) + "\n"
