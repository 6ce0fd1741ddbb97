"""uvicorn's WebSocket protocol, with what this server does otherwise."""

import logging
from typing import Any, cast

from typing_extensions import override
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

from antwort.server.common_state import CommonState
from antwort.server.sockets.extension import TEXTS

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)
# uvicorn takes a handshake that was refused with an answer of its own for one that was forgotten.
logger.addFilter(lambda record: "without completing handshake" not in str(record.msg))

_PARTING = 2.0
"""Seconds that a client gets to answer the end of its connection."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Leaves the end of a connection to the app, and keeps the headers and frames of clients out of the log."""

    def __init__(self, state: CommonState) -> None:
        super().__init__(state.websocket_config, cast("Any", state), {})
        self.logger = self.conn.logger = logger
        self.conn.debug = False  # it would log every frame and, of the handshake, the credentials
        self.close_timeout = _PARTING

    @override
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["extensions"][TEXTS] = {}

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
        try:
            for text in texts:
                self.conn.send_text(text)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    @override
    def shutdown(self) -> None:
        """Wait for the app, which was told: it closes when the response that is being made is over."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()
