"""The messages of the protocol: JSON-RPC over HTTP, whose answers are JSON or a stream of events."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from antwort.provider import JSON, HttpAnswer
from antwort.providers.mcp.errors import McpHttpError, McpProtocolError, said

_AT_ONCE = 512 * 1024
"""Bytes that are decoded on the event loop; more takes a thread."""
_LINES_AT_ONCE = 1000
"""Lines of a stream after which others have their turn."""
_LONGEST_PLACE = 1024
"""Characters of the name of an event."""
_MILLISECONDS = re.compile(r"[0-9]{1,9}")
_PAUSE, _LEAST_PAUSE, _LONGEST_PAUSE = 1.0, 0.1, 60.0
"""Seconds after which a stream that has ended is asked for again: usually, and within which bounds a server says it."""
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
OnRequest = Callable[[JSON], Awaitable[None]]
"""Gets what a server wants to know while it answers."""


def header_value(text: str) -> str:
    """Return a text as a header of the protocol has it: what a header cannot carry is in base64."""
    if _VISIBLE.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode(errors='replace')).decode()}?="


def request_body(number: int | None, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request; one without a number is a notification."""
    message: JSON = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        message["id"] = number
    return msgspec.json.encode(message)


async def decoded(data: bytes) -> JSON:
    """Return a message; McpProtocolError if it is none."""
    try:
        if len(data) <= _AT_ONCE:
            message = msgspec.json.decode(data)
        else:
            message = await asyncio.to_thread(msgspec.json.decode, data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise McpProtocolError("The answer of the server is not JSON.") from None
    if not isinstance(message, dict):
        raise McpProtocolError("The answer of the server is no message of the protocol.")
    return message


def _taken_by_nobody(_method: object) -> None:
    """Take a notification that is of no use."""


class AnswerEvents:
    """Reads a stream of events while it comes, until the answer to a request is there."""

    def __init__(
        self,
        number: int,
        on_request: OnRequest,
        on_answer: Callable[[], None],
        on_notification: Callable[[object], None] = _taken_by_nobody,
    ) -> None:
        self._on_notification = on_notification
        self._number = number
        self._on_request = on_request
        self._on_answer = on_answer
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._is_stream: bool | None = None
        self.answer: JSON | None = None
        self.last_id: str | None = None
        """What the server calls its last event, if it can go on after that in another stream."""
        self.pause = _PAUSE
        """Seconds after which it is to be asked for that."""

    def begin_again(self) -> None:
        """Take another stream from here on."""
        self._rest.clear()
        self._data.clear()

    async def take(self, piece: bytes) -> None:
        """Take the next piece of a body; one that is JSON as a whole is not read here."""
        if self._is_stream is None and (begin := piece.lstrip()):
            self._is_stream = begin[:1] not in {b"{", b"["}
        if not self._is_stream or self.answer is not None:
            return
        self._rest += piece
        if b"\n" in piece:
            lines = bytes(self._rest).split(b"\n")
            self._rest = bytearray(lines.pop())
            for start in range(0, len(lines), _LINES_AT_ONCE):
                await self._take_lines(lines[start : start + _LINES_AT_ONCE])
                await asyncio.sleep(0)  # there may be very many, of nothing

    async def _take_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].rstrip(b"\r").removeprefix(b" "))
            elif self._data and line in (b"", b"\r"):
                data, self._data = b"\n".join(self._data), []
                if data.strip() and self.answer is None:
                    await self._take_message(await decoded(data))
            elif line.startswith((b"id:", b"retry:")):
                self._take_place(line)

    def _take_place(self, line: bytes) -> None:
        name, _, given = line[:_LONGEST_PLACE].decode(errors="replace").partition(":")
        if name == "id" and _VISIBLE.fullmatch(given := given.strip()):
            self.last_id = given
        elif name == "retry" and _MILLISECONDS.fullmatch(given := given.strip()):
            self.pause = min(max(int(given) / 1000, _LEAST_PAUSE), _LONGEST_PAUSE)

    async def _take_message(self, message: JSON) -> None:
        if "method" not in message and message.get("id") in (self._number, None):  # of any type
            self.answer = message
            self._on_answer()
        elif "method" in message and message.get("id") is not None:
            await self._on_request(message)
        elif "method" in message:
            self._on_notification(message["method"])


class StreamedEvents:
    """Reads a stream of events that has no end."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._kind = ""
        self._data: list[bytes] = []

    async def of(self, piece: bytes) -> AsyncIterator[tuple[str, bytes]]:
        """Give the events that are whole with a piece: their types, and their data."""
        self._rest += piece
        if b"\n" not in piece:
            return
        lines = bytes(self._rest).split(b"\n")
        self._rest = bytearray(lines.pop())
        for number, line in enumerate(lines):
            if number % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)  # there may be very many, of nothing
            if line in (b"", b"\r"):
                kind, data, self._kind, self._data = self._kind, self._data, "", []
                if data:
                    yield kind or "message", b"\n".join(data)
            elif line.startswith(b"event:"):
                self._kind = line[6:].strip().decode(errors="replace")
            elif line.startswith(b"data:"):
                self._data.append(line[5:].rstrip(b"\r").removeprefix(b" "))


async def read_answer(answer: HttpAnswer, events: AnswerEvents) -> JSON:
    """Return the result in an answer; McpHttpError or McpProtocolError say why there is none."""
    if events.answer is not None:
        return result_of(events.answer)
    if answer.content_type == "application/json" and answer.body:
        try:
            message = await decoded(answer.body)
        except McpProtocolError:
            if answer.status < 400:
                raise
            message = {}
        if answer.status < 400 or isinstance(message.get("error"), dict):
            return result_of(message, answer.status)
    if answer.status >= 400:
        raise McpHttpError(f"The server answered with the status {answer.status}.", answer.status)
    if answer.status >= 300:
        raise McpHttpError(f"The server redirects ({answer.status}), which is not followed.", answer.status)
    raise McpProtocolError("The server has ended its answer without a result.")


def result_of(message: JSON, status: int = 200) -> JSON:
    """Return the result in a message; McpProtocolError says why there is none."""
    error, result = message.get("error"), message.get("result")
    if isinstance(error, dict):
        code = error.get("code")
        words = said(error.get("message")) or "The server has refused the request."
        data = error.get("data")
        raise McpProtocolError(
            words,
            code if isinstance(code, int) else -32603,
            status if status >= 400 else 0,
            data.get("supported") if isinstance(data, dict) else None,
        )
    if not isinstance(result, dict):
        raise McpProtocolError("The answer of the server has no result.")
    return result
