"""The shape of the events and answers of the Responses API, as far as a turn is read from them."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

__all__ = ["Answer", "Event", "decode_answer", "decode_event"]

NOTHING = Raw(b"null")


class Event(Struct, gc=False):
    """An event of a stream. Whole responses stay unread: all but the last are of no use here."""

    type: str = ""
    output_index: int | None = None
    """Where the item stands; some servers do not tell."""
    content_index: int = 0
    summary_index: int = 0
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    logprobs: Any = None
    item: Any = None
    response: Raw = NOTHING
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


class Answer(Struct):
    """A response."""

    status: str | None = None
    output: list[Any] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    detail: Any = None
    message: Any = None
    """Of an error that has no object of its own, like `detail`."""


decode_event = msgspec.json.Decoder(Event).decode
decode_answer = msgspec.json.Decoder(Answer).decode
