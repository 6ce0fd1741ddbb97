"""A bare WebSocket client, which reads the events of a response and lints them like a stream."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.http.sdk import Served
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from antwort.server.http.sse import DONE, frame
from antwort.testing import LintedStream, lint_stream
from antwort.types import JSON

__all__ = ["Socket", "address", "socket"]

PATIENCE = 60
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def address(stage: Served, path: str = "/v1/responses") -> str:
    """Return the address of the WebSocket."""
    return stage.server.url.replace("http", "ws", 1) + path


@dataclass
class Socket:
    """An open connection."""

    connection: ClientConnection

    def send(self, **fields: Any) -> None:
        """Send a frame."""
        self.connection.send(json.dumps(fields))

    def create(self, text: str | list[JSON] = "Hi", **fields: Any) -> None:
        """Ask for a response."""
        self.send(type="response.create", model="scripted", input=text, **fields)

    def receive(self) -> JSON:
        """Return the next frame."""
        text = self.connection.recv(PATIENCE)
        assert isinstance(text, str)
        event: JSON = json.loads(text)
        return event

    def answer(self) -> LintedStream:
        """Return the events of a response, which keep every rule of a stream."""
        frames = []
        while True:
            text = self.connection.recv(PATIENCE)
            assert isinstance(text, str)
            event = json.loads(text)
            assert "status" not in event, event
            frames.append(frame(event["type"], text.encode()))
            if event["type"] in TERMINAL:
                return lint_stream(b"".join([*frames, DONE]))

    def ask(self, text: str | list[JSON] = "Hi", **fields: Any) -> LintedStream:
        """Ask for a response and return its events."""
        self.create(text, **fields)
        return self.answer()

    def refusal(self) -> JSON:
        """Return the next frame, which is an error with a status."""
        event = self.receive()
        assert event["type"] == "error", event
        assert set(event) - {"stream_id", "sequence_number"} == {"type", "status", "error"}, event
        assert set(event["error"]) - {"headers"} == {"type", "code", "message", "param"}, event
        assert event["error"]["code"], event
        return event

    def end(self) -> int:
        """Wait for the end of the connection and return its code."""
        try:
            found = self.connection.recv(PATIENCE)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006
        raise AssertionError(f"the connection goes on: {found!r}")


@contextlib.contextmanager
def socket(stage: Served, headers: Mapping[str, str] | None = None, **options: Any) -> Iterator[Socket]:
    """Open a connection."""
    connection = connect(address(stage), additional_headers=headers, proxy=None, open_timeout=PATIENCE, **options)
    with connection:
        yield Socket(connection)
