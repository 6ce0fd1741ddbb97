"""Whatever goes wrong, the client gets the OpenAI envelope."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.errors import ServiceUnavailableError
from antwort.web.answers import as_api_error, error_response
from antwort.web.asgi_scope import REQUEST_ID


class ErrorMiddleware:
    """Turn exceptions into error answers. A traceback goes to the log, never to the client."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except asyncio.CancelledError:
            if begun:
                raise
            stopping = ServiceUnavailableError("The server is stopping. Try again.")
            await error_response(stopping)(scope, receive, send)
        except Exception as error:
            # Kept in a name, the error would keep this frame, which keeps it, and with them whatever the request held.
            response = error_response(as_api_error(error, f"{scope['method']} {scope['path']}", scope.get(REQUEST_ID)))
            if begun:
                raise  # the answer cannot be taken back; the server closes the connection
            await response(scope, receive, send)
