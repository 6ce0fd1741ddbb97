"""uvicorn's WebSocket protocol, with what this server does otherwise."""

import logging
from collections.abc import Iterable, Iterator
from struct import pack
from typing import Any, cast

from typing_extensions import override
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN

from antwort.errors import BadRequestError
from antwort.server.http.client_connections import CommonState
from antwort.server.sockets.connection import TEXTS

logger = logging.getLogger(__name__)


_UNTOLD = ("without completing handshake", "Invalid UTF-8 sequence")

logger.setLevel(logging.WARNING)
# uvicorn takes a handshake that was refused with an answer of its own for one that was forgotten, and a client's text
# that is not UTF-8 for an error of the server's, with a traceback. The client is told: its connection ends with 1007.
logger.addFilter(lambda record: not any(words in str(record.msg) for words in _UNTOLD))

_CLOSE_TIMEOUT = 2.0
"""Seconds that a client gets to answer the end of its connection."""
_WHOLE_TEXT = 0x80 | Opcode.TEXT
"""How a frame begins that is a text, and all of it."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Leaves the end of a connection to the app, and keeps the headers and frames of clients out of the log."""

    def __init__(self, state: CommonState) -> None:
        super().__init__(state.websocket_config, cast("Any", state), {})
        self.logger = self.conn.logger = logger
        self.conn.debug = False  # it would log every frame and, of the handshake, the credentials
        self.close_timeout = _CLOSE_TIMEOUT

    @override
    def handle_connect(self, event: Request) -> None:
        try:
            self.conn.process_request(event)
        except (InvalidHandshake, UnicodeError) as error:
            # The one would be answered here, with plain text; the other is a key that is no ASCII: left to itself, it
            # would end this connection without an answer, and have it counted as open for ever.
            self.conn.handshake_exc = error
            return
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["extensions"][TEXTS] = {}

    def refusal(self) -> BadRequestError | None:
        """Say what is wrong with a handshake that the library does not take; None if it does."""
        error = self.conn.handshake_exc
        if error is None:
            return None
        reason = f": {error}" if isinstance(error, InvalidHandshake) else ""  # with the header's value, of any bytes
        return BadRequestError(
            f"The handshake of the WebSocket is not valid{reason.encode('ascii', 'replace').decode()[:200]}.",
            code="invalid_handshake",
            headers={"sec-websocket-version": "13"},  # for those who speak another
        )

    @override
    async def send(self, message: Any) -> None:
        texts = message.get(TEXTS)
        if texts is None:
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected:
            raise ClientDisconnected
        if self.close_sent:
            return
        if self.conn.state is not OPEN:
            raise ClientDisconnected
        self.transport.write(b"".join((*self.conn.data_to_send(), *framed(texts))))

    @override
    def shutdown(self) -> None:
        """Wait for the app, which was told: it closes when the response that is being made is over."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()


def framed(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield texts, each behind the head of its frame, of a connection without extensions, as all of ours are.

    In the library a frame costs as much as all the rest of an event.
    """
    for text in texts:
        size = len(text)
        if size < 126:
            yield pack("!BB", _WHOLE_TEXT, size)
        elif size < 65536:
            yield pack("!BBH", _WHOLE_TEXT, 126, size)
        else:
            yield pack("!BBQ", _WHOLE_TEXT, 127, size)
        yield text
