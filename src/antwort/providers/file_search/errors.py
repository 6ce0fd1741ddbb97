"""How file search fails; what is behind it has its own errors, in `antwort.extensions`."""

from antwort.extensions import EmbeddingUnavailable, NoCollection, Unavailable, VectorStoreUnavailable, WrongDimensions
from antwort.provider import FunctionError

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
