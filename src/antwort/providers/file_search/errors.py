"""How file search fails; what is behind it has its own errors, in `antwort.extensions`."""

import contextlib
from collections.abc import Iterator

from antwort.extensions import EmbeddingUnavailable, NoCollection, Unavailable, VectorStoreUnavailable, WrongDimensions
from antwort.provider import BadRequestError, ConflictError, FunctionError, QueueFullError, ServiceUnavailableError

__all__ = [
    "EmbeddingUnavailable",
    "FileSearchError",
    "NoCollection",
    "Unavailable",
    "VectorStoreUnavailable",
    "WrongDimensions",
]


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
