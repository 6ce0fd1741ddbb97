"""What `antwort run` prints of a response: the text, the whole object, or every event."""

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import click

from antwort.cli.failures import Failure
from antwort.cli.output import print_json
from antwort.cli.responders import Responder
from antwort.types import JSON

__all__ = ["AnswerText", "EventLines", "Printer", "WholeResponse", "ask", "check_outcome", "open_calls"]


_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete", "response.cancelled"})
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Characters by which a text could do more to a terminal than be read."""


class Printer(Protocol):
    """Shows a response."""

    def take(self, event: JSON) -> None:
        """Take an event as it comes."""

    def end(self) -> None:
        """Take the end of the response, whatever its status."""


class AnswerText:
    """Prints the text of the answer: as it comes, or at once. Several messages are paragraphs."""

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._pieces: list[str] = []
        self._is_terminal = sys.stdout.isatty()

    def take(self, event: JSON) -> None:
        """Print a piece."""
        kind = event.get("type")
        if kind in _TEXT:
            self._write(str(event.get("delta", "")))
        elif kind == "response.output_item.added" and self._pieces and event.get("item", {}).get("type") == "message":
            self._write("\n\n")

    def _write(self, piece: str) -> None:
        piece = piece.translate(_CONTROLS) if self._is_terminal else piece
        self._pieces.append(piece)
        if self._stream:
            click.echo(piece, nl=False)

    def end(self) -> None:
        """Print what is left, and the end of the line."""
        if not self._stream:
            click.echo("".join(self._pieces), nl=False)
        self.finish_line()

    def finish_line(self) -> None:
        """Begin a new line unless the text did."""
        if self._pieces and not self._pieces[-1].endswith("\n"):
            self._pieces.append("\n")
            click.echo()


class EventLines:
    """Prints every event as a line of JSON."""

    def take(self, event: JSON) -> None:
        """Print an event."""
        click.echo(json.dumps(event, ensure_ascii=False))

    def end(self) -> None:
        """Print nothing: it was all said."""


class WholeResponse:
    """Prints the response object."""

    def __init__(self) -> None:
        self._response: JSON | None = None

    def take(self, event: JSON) -> None:
        """Keep the response as it is at the end."""
        if event.get("type") in _ENDS:
            self._response = event.get("response")

    def end(self) -> None:
        """Print it."""
        print_json(self._response)


async def ask(responder: Responder, request: Mapping[str, Any], printer: Printer) -> JSON:
    """Show a response while it is made, and return it. Without an end it is a Failure."""
    response: JSON | None = None
    message = "the answer broke off before its end"
    async with contextlib.aclosing(responder.respond(request)) as events:
        async for event in events:
            printer.take(event)
            kind = event.get("type")
            if kind in _ENDS:
                response = event.get("response")
            elif kind == "error":
                message = str(event.get("message") or (event.get("error") or {}).get("message") or message)
    if response is None:
        raise Failure(message)
    printer.end()
    return response


def check_outcome(response: JSON) -> None:
    """Raise a Failure that says why a response is not a complete answer, if it is not."""
    status = response.get("status")
    if status == "failed":
        raise Failure((response.get("error") or {}).get("message") or "the response failed")
    if status != "completed":
        reason = (response.get("incomplete_details") or {}).get("reason")
        raise Failure(f"the answer is {status}{f' ({reason})' if reason else ''}")
    if calls := open_calls(response):
        raise Failure(f"the model calls {', '.join(calls)}, which the server does not have")


def open_calls(response: JSON) -> list[str]:
    """Return the functions that a response leaves to its client."""
    return [item["name"] for item in response.get("output", ()) if item.get("type") == "function_call"]
