"""How much a model server may send: every dimension of an answer ends somewhere."""

from typing import Any

from msgspec import Struct

from antwort.backends.errors import FAILED
from antwort.config import BackendConfig
from antwort.errors import BadGatewayError

SMALL = 64 * 1024
"""Bytes of JSON that are not worth a look: however many values they hold, they are soon read."""
_MARKS = (b",", b"{", b"[")


class AnswerLimits(Struct, frozen=True):
    """The limits of one backend's answers."""

    backend: str
    header_bytes: int
    event_bytes: int
    answer_bytes: int
    whole_bytes: int
    """The smaller of the two: an answer that came as a whole and has no more is within both."""
    values: int
    calls: int
    items: int
    models: int

    @classmethod
    def of(cls, backend: str, config: BackendConfig) -> "AnswerLimits":
        """Take them from the configuration."""
        return cls(
            backend,
            int(config.max_header_bytes),
            int(config.max_event_bytes),
            int(config.max_answer_bytes),
            int(min(config.max_event_bytes, config.max_answer_bytes)),
            config.max_values,
            config.max_calls,
            config.max_items,
            config.max_models,
        )

    @classmethod
    def default(cls, backend: str) -> "AnswerLimits":
        """Return those of a configuration that says nothing about them."""
        fields: dict[str, Any] = {"url": "http://localhost"}
        return cls.of(backend, BackendConfig(**fields))

    def check_values(self, body: bytes) -> None:
        """Refuse JSON that holds too many values to be read at once, during which nobody else has a turn.

        What may begin or part values is counted, also within texts: that is quick, and no answer has so many.
        """
        if len(body) > SMALL:
            self._count_values(body)

    def _count_values(self, body: bytes) -> None:
        count = 0
        for start in range(0, len(body), SMALL):  # no further than it takes: many marks take long to be counted
            count += sum(body.count(mark, start, start + SMALL) for mark in _MARKS)
            if count > self.values:
                raise self.excess(f"more than {self.values:,} values at once", "max_values")

    def too_many_items(self) -> BadGatewayError:
        """Return the error for a turn in which texts, thoughts and refusals change too often: each begins an item."""
        return self.excess(f"more than {self.items:,} items in one turn", "max_items")

    def excess(self, what: str, setting: str) -> BadGatewayError:
        """Return the error for an answer that goes beyond one; the same request would likely get the same answer."""
        return BadGatewayError(
            f"The backend '{self.backend}' sent {what} (`backends.{self.backend}.{setting}`).", code=FAILED
        )
