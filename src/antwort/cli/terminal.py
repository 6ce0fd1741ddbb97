"""What `antwort run` reads (the question, what is piped in, files) and prints (the text, the response, every event)."""

import base64
import contextlib
import json
import mimetypes
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

import click

from antwort.cli.clients import ResponseClient
from antwort.cli.output import CommandFailure, Misuse, print_json
from antwort.types import JSON

_FOUND = 3
"""Files that are named of those that were found."""
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete", "response.cancelled"})
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_MARK = re.compile(r"[\[【](?P<numbers>\d+(?:, ?\d+)*)[^\]】]*[\]】]")
"""How texts name the sources that they cite."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters by which a text could do more to a terminal than be read, or be read as another one."""


def read_question(argument: str | None) -> str:
    """Return the question: the argument, what is piped in, or the first about the second; empty if there is neither."""
    stdin: TextIO | None = sys.stdin  # None in a process that was started without
    piped = "" if stdin is None or stdin.isatty() else stdin.buffer.read().decode(errors="replace").strip()
    return "\n\n".join(part for part in (clean(argument or "").strip(), piped) if part)


def clean(text: str) -> str:
    """Return a text without the halves of characters that arguments which are not UTF-8 consist of."""
    return text.encode(errors="replace").decode()


def harmless(text: str) -> str:
    """Return a text that a terminal only shows."""
    return text.translate(_CONTROLS)


def user_input(text: str, files: Sequence[JSON]) -> str | list[JSON]:
    """Return the `input` of a request: the text alone, or a message with files before it."""
    if not files:
        return text
    content = [*files, {"type": "input_text", "text": text}] if text else list(files)
    return [{"type": "message", "role": "user", "content": content}]


def file_part(path: Path) -> JSON:
    """Return a file as a part of a message: images to be seen, everything else to be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Misuse(f"--file {path}: cannot be read: {error.strerror or error}") from None
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    url = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    if kind in _IMAGES:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": clean(path.name), "file_data": url}


class Printer(Protocol):
    """Shows a response."""

    def take(self, event: JSON) -> None:
        """Take an event as it comes."""

    def end(self) -> None:
        """Take the end of the response, whatever its status."""


class AnswerText:
    """Prints the text of the answer: as it comes, or at once. Several messages are paragraphs."""

    def __init__(self, *, stream: bool, before: Callable[[], None] | None = None) -> None:
        self._before = before
        """Called before anything is printed."""
        self._stream = stream
        self._is_interrupted = False
        self._pieces: list[str] = []
        self._sources: list[str] = []
        self._found: list[str] = []
        self._is_terminal = sys.stdout.isatty()
        self.response_id: str | None = None
        """The response that is printed, once it is known."""

    def take(self, event: JSON) -> None:
        """Print a piece."""
        kind = event.get("type")
        if isinstance(response := event.get("response"), dict) and "id" in response:
            self.response_id = str(response["id"])
        if kind in _ENDS:
            response = event.get("response") or {}
            self._sources = list(cited_sources(response))
            self._found = [] if self._sources else list(found_files(response))
        elif kind in _TEXT:
            self._write(str(event.get("delta", "")))
        elif kind == "response.output_item.added" and self._pieces and event.get("item", {}).get("type") == "message":
            self._write("\n" if self._is_interrupted else "\n\n")
            self._is_interrupted = False

    def _write(self, piece: str) -> None:
        if self._before is not None and self._stream:
            self._before()
        piece = piece.translate(_CONTROLS) if self._is_terminal else piece
        self._pieces.append(piece)
        if self._stream:
            click.echo(piece, nl=False)

    def end(self) -> None:
        """Print what is left, and the end of the line."""
        if self._before is not None:
            self._before()
        if not self._stream:
            click.echo("".join(self._pieces), nl=False)
        self.finish_line()
        if self._sources:
            click.echo("\nSources:")
            for source in self._sources:
                click.echo(f"  {harmless(source) if self._is_terminal else source}")
        elif self._found:  # a small model reads what was found, and cites nothing
            files = ", ".join(self._found[:_FOUND])
            click.echo(f"\nFound, and not cited: {harmless(files) if self._is_terminal else files}")

    def make_room(self) -> None:
        """Begin a new line where something else is written in between, and people see both."""
        if self._stream and self._is_terminal and self._pieces:
            self.finish_line()
            self._is_interrupted = True

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


async def ask(client: ResponseClient, request: Mapping[str, Any], printer: Printer) -> JSON:
    """Show a response while it is made, and return it. Without an end it is a CommandFailure.

    That of one which is made in the background is there as it began: it may wait for somebody.
    """
    response: JSON | None = None
    begun: JSON = {}
    message = "the answer broke off before its end"
    async with contextlib.aclosing(client.respond(request)) as events:
        async for event in events:
            printer.take(event)
            kind = event.get("type")
            if kind in _ENDS:
                response = event.get("response")
            elif kind == "response.in_progress":
                begun = event.get("response") or begun
            elif kind == "error":
                begun = {}
                message = str(event.get("message") or (event.get("error") or {}).get("message") or message)
    if response is None:
        if begun.get("background"):
            return begun
        raise CommandFailure(message)
    printer.end()
    return response


def answer_text(response: JSON) -> str:
    """Return what a response says; several messages are paragraphs."""
    messages = [item for item in response.get("output", ()) if item.get("type") == "message"]
    parts = [part for item in messages for part in item.get("content") or ()]
    return "\n\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def cited_sources(response: JSON) -> Iterator[str]:
    """Yield the web pages and files that an answer cites, each once, in a line: with its number in the text, if any."""
    seen: set[str] = set()
    for item in response.get("output", ()):
        for part in item.get("content") or () if item.get("type") == "message" else ():
            for line in _sources(part.get("text", ""), part.get("annotations") or ()):
                if line not in seen:
                    seen.add(line)
                    yield line


def found_files(response: JSON) -> Iterator[str]:
    """Yield the names of the files that searches have found, the best first, each once."""
    items = [item for item in response.get("output", ()) if isinstance(item.get("results"), list)]
    names = [str(one.get("filename") or "") for item in items for one in item["results"] if isinstance(one, dict)]
    yield from dict.fromkeys(" ".join(name.split()) for name in names if name.strip())


def _sources(text: str, annotations: Sequence[JSON]) -> Iterator[str]:
    before: Counter[int] = Counter()
    for annotation in annotations:
        name = _source_name(annotation)
        if name is None:
            continue
        start = int(annotation.get("start_index") or annotation.get("index") or 0)
        mark = _MARK.match(text, start)
        numbers = mark["numbers"].replace(" ", "").split(",") if mark else []
        place = before[start]  # of several numbers in one pair of brackets, each has an annotation
        before[start] += 1
        yield f"[{numbers[place]}] {name}" if place < len(numbers) else name


def _source_name(annotation: JSON) -> str | None:
    """Return what a source is called; None for what is no source."""
    if annotation.get("type") == "url_citation":
        title, url = " ".join(str(annotation.get("title") or "").split()), str(annotation.get("url"))
        return f"{title}, {url}" if title and title != url else url
    if annotation.get("type") == "file_citation":
        name, file_id = str(annotation.get("filename") or ""), str(annotation.get("file_id"))
        return f"{name} ({file_id})" if name else file_id
    return None


def check_outcome(response: JSON) -> None:
    """Raise a CommandFailure that says why a response is not a complete answer, if it is not."""
    status = response.get("status")
    if status == "failed":
        raise CommandFailure((response.get("error") or {}).get("message") or "the response failed")
    if status != "completed":
        reason = (response.get("incomplete_details") or {}).get("reason")
        raise CommandFailure(f"the answer is {status}{f' ({reason})' if reason else ''}")
    if calls := open_calls(response):
        raise CommandFailure(f"the model calls {', '.join(calls)}, which the server does not have")


def open_calls(response: JSON) -> list[str]:
    """Return the functions that a response leaves to its client."""
    return [item["name"] for item in response.get("output", ()) if item.get("type") == "function_call"]
