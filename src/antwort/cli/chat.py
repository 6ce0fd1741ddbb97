"""`antwort run` without a question: a conversation in the terminal."""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import click

import antwort
from antwort.cli.clients import ResponseClient
from antwort.cli.event_loop import LeavingRunner
from antwort.cli.output import CommandFailure, failure_of
from antwort.cli.questions import converse
from antwort.cli.terminal import AnswerText, check_outcome, clean, open_calls, user_input
from antwort.errors import APIError, did_you_mean
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
    "/help": "show this list",
    "/quit": "leave, as Ctrl-D does",
}


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
        self._request = request
        self._files = files
        self._printer = printer
        self._previous: str | None = request.get("previous_response_id")

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
                    self._answer(line)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()

    def _command(self, line: str) -> None:
        if line == "/new":
            self._previous = None
            click.echo("A new conversation.")
        elif line == "/help":
            for name, text in COMMANDS.items():
                click.echo(f"{name.ljust(8)}{text}")
        else:
            click.echo(f"There is no command '{line}'{did_you_mean(line, COMMANDS) or '; /help lists them.'}")

    def _answer(self, line: str) -> None:
        request = {**self._request, "input": user_input(line, self._files)}
        request.pop("previous_response_id", None)
        if self._previous is not None:
            request["previous_response_id"] = self._previous
        printer = self._printer()
        try:
            response = converse(self._runner, self._client, request, lambda: printer, interactive=True)
            if response.get("status") in {"completed", "incomplete"} and not open_calls(response):
                self._previous, self._files = response["id"], ()
            check_outcome(response)
        except (KeyboardInterrupt, click.Abort):
            printer.finish_line()
            click.echo("(stopped)")
        except (CommandFailure, APIError) as error:
            printer.finish_line()
            (error if isinstance(error, CommandFailure) else failure_of(error)).show()
