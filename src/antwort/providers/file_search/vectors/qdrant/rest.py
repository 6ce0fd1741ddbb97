"""Qdrant's REST API, as far as it is used: requests by the server's own client, answers read into what they must be."""

import logging
import re
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antwort.extensions import NoCollection, VectorStoreUnavailable
from antwort.provider import JSON, FunctionError, HttpClient, OutboundError, OutboundTimeoutError, TooLargeError
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.points import dimensions_error

logger = logging.getLogger(__name__)

T = TypeVar("T")

PORT = 6333
MOST = 4 << 20
"""Bytes of an answer, if nobody needs more."""
_ABOUT_KEY = re.compile(r"api.key|jwt|bearer|access", re.IGNORECASE)
_SUBJECT = "The vector database"
_LOGGED = 500
"""Characters of what it says that are logged."""
_LARGEST_FIELD = 256 << 10
"""Bytes of attributes, as JSON, that are read."""


class KeyRefused(VectorStoreUnavailable):
    """The database does not take the key."""


# --- answers; what is not named here is skipped, whatever it is -------------------------------------------------------


class Version(Struct):
    """What the server is."""

    version: str


class CollectionName(Struct):
    """A collection of the list."""

    name: str


class Collections(Struct):
    """The list of collections."""

    collections: list[CollectionName]


class Exists(Struct):
    """Whether a collection is there."""

    exists: bool


class VectorParams(Struct):
    """The vectors of a collection; one of several kinds has no size of its own."""

    size: int | None = None


class CollectionParams(Struct):
    """How a collection was made."""

    vectors: VectorParams


class CollectionConfig(Struct):
    """How a collection is."""

    params: CollectionParams


class Collection(Struct):
    """A collection."""

    config: CollectionConfig
    payload_schema: dict[str, Raw] = {}


class Payload(Struct):
    """The payload of a point. A pipeline may have written anything: each field is read by itself."""

    text: Raw | UnsetType = UNSET
    file_id: Raw | UnsetType = UNSET
    filename: Raw | UnsetType = UNSET
    chunk_index: Raw | UnsetType = UNSET
    attributes: Raw | UnsetType = UNSET
    exact: Raw | UnsetType = UNSET
    tenant: Raw | UnsetType = UNSET
    vector_store_id: Raw | UnsetType = UNSET

    def fields(self) -> dict[str, Any]:
        """Return what is there; large things that are no texts are left out."""
        found: dict[str, Any] = {}
        for name in self.__struct_fields__:
            raw = getattr(self, name)
            written = b"" if raw is UNSET else bytes(raw)
            if written and (written[:1] == b'"' or len(written) <= _LARGEST_FIELD):
                found[name] = msgspec.json.decode(written)
        return found


class Point(Struct):
    """A point that was found."""

    id: str | int
    payload: Payload | None = None
    score: float = 0.0


class Points(Struct):
    """Points, best first."""

    points: list[Point]


class Scrolled(Struct):
    """Points in the order of their ids, and where the next ones begin."""

    points: list[Point]
    next_page_offset: str | int | None = None


class Counted(Struct):
    """A number of points."""

    count: int


class FacetHit(Struct):
    """A value, and how many points have it."""

    value: str | int | bool
    count: int


class Facet(Struct):
    """Values."""

    hits: list[FacetHit]


class Nothing(Struct):
    """What nobody needs to know."""


class _Answer(Struct):
    result: Raw


class QdrantRest:
    """Sends requests to one server. Whatever goes wrong is one of our errors; only the log has what the server says."""

    def __init__(self, http: HttpClient, settings: QdrantSettings) -> None:
        parts = urlsplit(settings.url)
        host = parts.hostname or "localhost"
        place = f"[{host}]:{parts.port or PORT}" if ":" in host else f"{host}:{parts.port or PORT}"
        user, at, _ = parts.netloc.rpartition("@")
        self.server = place
        """The host and the port that are asked, to be shown."""
        self._url = f"{parts.scheme}://{user}{at}{place}{parts.path.rstrip('/')}"
        self._http = http
        self._timeout = settings.timeout
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if settings.api_key is not None:
            self._headers["api-key"] = settings.api_key.get_secret_value()

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: JSON | None = None,
        *,
        wait: bool = False,
        most: int = MOST,
    ) -> T:
        """Return the result of a request; with `wait`, when it is done."""
        answer = await self._answer(method, path, body, wait=wait, most=most)
        return self._read(self._read(answer, _Answer).result, kind)

    async def root(self) -> Version:
        """Return what the server is."""
        return self._read(await self._answer("GET", "/", None, wait=False, most=MOST), Version)

    async def create(self, path: str, body: JSON) -> None:
        """Create something; that it is there already is no error."""
        await self._answer("PUT", path, body, wait=False, most=MOST, already=True)

    def lie(self, what: str) -> VectorStoreUnavailable:
        """Return the error for an answer that Qdrant does not give."""
        logger.error("vector database at %s: %s", self.server, what)
        return VectorStoreUnavailable.at(self.server, _SUBJECT, "failed: its answer is not one that Qdrant gives.")

    def away(self, why: str) -> VectorStoreUnavailable:
        """Return the error for a server that does not answer."""
        logger.warning("vector database at %s: %s; check 'qdrant.url' and 'qdrant.timeout'", self.server, why)
        failure = VectorStoreUnavailable.at(self.server, _SUBJECT, "cannot be reached.")
        failure.away = True
        return failure

    async def _answer(
        self, method: str, path: str, body: JSON | None, *, wait: bool, most: int, already: bool = False
    ) -> bytes:
        try:
            answer = await self._http.call(
                method,
                f"{self._url}{path}",
                params={"wait": "true"} if wait else None,
                headers=self._headers,
                body=None if body is None else msgspec.json.encode(body),
                time_limit=self._timeout,
                max_bytes=most,
            )
        except TooLargeError as error:
            raise self.lie(str(error)) from None
        except OutboundTimeoutError:
            raise self.away(f"no answer within {self._timeout:g} seconds") from None
        except OutboundError as error:
            raise self.away(_cause(error)) from None
        if answer.status == 200:
            return answer.body
        message = answer.text()
        if already and answer.status in {400, 409} and "already exists" in message:
            return answer.body
        raise self._refusal(answer.status, message) from None

    def _read(self, body: bytes | Raw, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.lie(str(error)[:_LOGGED]) from None

    def _refusal(self, status: int, message: str) -> FunctionError:
        if status == 404:
            return NoCollection("There is no such vector store.")
        if (wrong := dimensions_error(message)) is not None:
            return wrong
        said = " ".join(message[:_LOGGED].split())
        logger.warning("vector database at %s: status %s: %s", self.server, status, said)
        if status == 401 or (status == 403 and _ABOUT_KEY.search(message)):
            told = "refuses the key. Its operator must check 'qdrant.api_key'."
            return KeyRefused.at(self.server, _SUBJECT, told)
        failure = VectorStoreUnavailable.at(self.server, _SUBJECT, _problem(status))
        if 400 <= status < 500 and status != 429:
            failure.for_operator += f" It says: {said}"
        return failure


def _cause(error: OutboundError) -> str:
    """Say for the log why a server cannot be reached."""
    cause = error.__cause__
    return (cause.strerror if isinstance(cause, OSError) else None) or str(error).rstrip(".")


def _problem(status: int) -> str:
    if status == 429:
        return "has reached its limit of requests. Try again later."
    if 400 <= status < 500:
        return f"refuses this with status {status}; the log says why. Its operator must see to its limits."
    return f"failed with status {status}."


def params(**given: Any) -> dict[str, Any]:
    """Return those settings that are set: the server has its own for the others."""
    return {name: value for name, value in given.items() if value is not None}
