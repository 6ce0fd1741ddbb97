"""How file search fails because of what is behind it: databases and models. Models and clients read the messages."""

import contextlib
from collections.abc import Iterator
from typing import Self

from antwort.provider import BadRequestError, ConflictError, FunctionError, QueueFullError, ServiceUnavailableError


class Unavailable(FunctionError):  # noqa: N818 - it says a state
    """A server behind us cannot be used now. Models and clients read the message: no address is in it."""

    def __init__(self, message: str, *, for_operator: str | None = None) -> None:
        super().__init__(message)
        self.for_operator = for_operator or message
        """The same with host and port, for whoever configured them."""

    @classmethod
    def at(cls, server: str, subject: str, what: str) -> Self:
        """Say of a server, which is called `subject`, what is the case."""
        return cls(f"{subject} {what}", for_operator=f"{subject} at {server} {what}")


class EmbeddingUnavailable(Unavailable):
    """The text cannot be embedded now."""

    status = "unavailable"


class VectorStoreUnavailable(Unavailable):
    """The vector database cannot be reached, did not answer in time, or not as it should."""

    away = False
    """Nobody answers: it is not this request that it cannot do."""


class NoCollection(FunctionError):  # noqa: N818
    """There is no such collection."""


class WrongDimensions(FunctionError):  # noqa: N818
    """A vector has another length than those of the collection."""

    def __init__(self, wanted: int, got: int) -> None:
        super().__init__(f"The vector has {got} dimensions, those of the vector store have {wanted}.")
        self.wanted = wanted
        self.got = got


class FileSearchError(FunctionError):
    """The search could not be done, and that is nobody's fault who asked for it."""


@contextlib.contextmanager
def as_api_errors(more: str = "") -> Iterator[None]:
    """Turn what goes wrong behind us into what an API client understands."""
    try:
        yield
    except QueueFullError:  # that is a 429
        raise
    except (VectorStoreUnavailable, EmbeddingUnavailable, FileSearchError) as error:
        raise ServiceUnavailableError(f"{error}{more}") from error
    except NoCollection:
        raise ConflictError("The vector store is not ready; try again in a moment.") from None
    except FunctionError as error:
        raise BadRequestError(str(error), code="invalid_value") from None
