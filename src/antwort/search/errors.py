"""How a search fails because of what is behind it: databases and models. Models and clients read the messages."""

from typing import Self

from antwort.errors import FunctionError


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
