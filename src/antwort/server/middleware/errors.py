"""Whatever goes wrong, the client gets the OpenAI envelope."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.errors import APIError, InternalServerError
from antwort.functions.http import as_api_error, error_response
from antwort.server.middleware.request_id import REQUEST_ID


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
        except Exception as error:
            api_error = as_api_error(error, f"{scope['method']} {scope['path']}")
            if begun:
                raise  # the answer cannot be taken back; the server closes the connection
            await error_response(_with_request_id(api_error, scope))(scope, receive, send)


def _with_request_id(error: APIError, scope: Scope) -> APIError:
    if isinstance(error, InternalServerError) and REQUEST_ID in scope:
        return InternalServerError(f"{error.message} (request id {scope[REQUEST_ID]})")
    return error
