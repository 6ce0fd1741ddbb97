"""What a Qdrant client raises, as our errors: of what the database says only the log has the words."""

import asyncio
import json
import logging
import re
from types import TracebackType

import grpc  # type: ignore[import-untyped]
import httpx
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from antwort.provider import FunctionError
from antwort.providers.file_search.errors import NoCollection, VectorStoreUnavailable
from antwort.providers.file_search.vectors.points import dimensions_error

logger = logging.getLogger(__name__)

_CODES = {
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 0,
    grpc.StatusCode.DEADLINE_EXCEEDED: 0,
}
"""What a gRPC status is in HTTP; 0 if there was no answer."""
_ABOUT_KEY = re.compile(r"api.key|jwt|bearer|access", re.IGNORECASE)
_SUBJECT = "The vector database"
_LOGGED = 500
"""Characters of it that are logged."""


class KeyRefused(VectorStoreUnavailable):
    """The database does not take the key."""


class Translated:
    """A context whose errors are ours. With `already`, it is no error that something is there."""

    def __init__(self, server: str, *, already: bool = False) -> None:
        self._server = server
        self._already = already

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Raise what is meant."""
        # What has no words, such as a timeout, is told by its kind.
        status, message = 500, str(error) or type(getattr(error, "source", error)).__name__
        match error:
            case UnexpectedResponse():
                status = error.status_code or 500
                message = error.content.decode(errors="replace")
            case QdrantException():  # of a limit on requests; there are no others
                status = 429
            case grpc.aio.AioRpcError():
                status, message = _CODES.get(error.code(), 500), error.details() or ""
            case json.JSONDecodeError() | UnicodeDecodeError() | AssertionError():  # the client asserts what it needs
                message = "the answer is not one that Qdrant gives"
            case ResponseHandlingException() | httpx.HTTPError() | OSError() | asyncio.TimeoutError():
                status = 0
            case ApiException() | grpc.RpcError() | grpc.aio.BaseError() | httpx.InvalidURL() | httpx.StreamError():
                status = 500
            case _:
                return False
        if status in {400, 409} and self._already and "already exists" in message:
            return True
        raise self._meant(status, message) from None

    def _meant(self, status: int, message: str) -> FunctionError:
        if status == 404:
            return NoCollection("There is no such vector store.")
        if (wrong := dimensions_error(message)) is not None:
            return wrong
        said = " ".join(message[:_LOGGED].split())
        if status == 0:
            logger.warning("vector database at %s: %s; check 'qdrant.url' and 'qdrant.timeout'", self._server, said)
        else:
            logger.warning("vector database at %s: status %s: %s", self._server, status, said)
        if status == 401 or (status == 403 and _ABOUT_KEY.search(message)):
            told = "refuses the key. Its operator must check 'qdrant.api_key'."
            return KeyRefused.at(self._server, _SUBJECT, told)
        failure = VectorStoreUnavailable.at(self._server, _SUBJECT, _problem(status))
        if 400 <= status < 500 and status != 429:
            failure.for_operator += f" It says: {said}"
        return failure


def _problem(status: int) -> str:
    if status == 0:
        return "cannot be reached."
    if status == 429:
        return "has reached its limit of requests. Try again later."
    if 400 <= status < 500:
        return f"refuses this with status {status}; the log says why. Its operator must see to its limits."
    return f"failed with status {status}."
