"""Chat completions that are kept, as clients see them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.types import JSON
from antwort.wire.field_errors import field_error, read_document
from antwort.wire.requests import Metadata


class StoredCompletion(Struct, kw_only=True):
    """A completion as it was answered, with its metadata. Whatever else the model server has written is there, too."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: Sequence[JSON]
    usage: JSON | None
    metadata: dict[str, str]


class StoredCompletionList(Struct, kw_only=True):
    """A page of completions."""

    object: Literal["list"] = "list"
    data: Sequence[StoredCompletion]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoredMessage(Struct, kw_only=True):
    """A message that a completion answers, with what else it was sent with."""

    id: Annotated[str, Meta(description="The id of the completion, and the number of the message.")]
    role: str
    content: str | None
    content_parts: Annotated[Sequence[JSON] | None, Meta(description="Its parts, if it was sent in some.")]


class StoredMessageList(Struct, kw_only=True):
    """A page of messages."""

    object: Literal["list"] = "list"
    data: Sequence[StoredMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedCompletion(Struct, kw_only=True):
    """That a completion was deleted."""

    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True


S = TypeVar("S", bound=Struct)


class _Described(Struct):
    metadata: Metadata | None = None


class _Saying(Struct):
    messages: list[JSON]


def read_metadata(given: msgspec.Raw | None) -> dict[str, str]:
    """Return the metadata of a request; BadRequestError names what does not fit."""
    if given is None:
        return {}
    found = _read({"metadata": given}, _Described).metadata
    return {name: value for name, value in (found or {}).items() if value is not None}


def check_messages(given: msgspec.Raw) -> None:
    """Check that the messages of a request can be kept; BadRequestError names what does not fit."""
    _read({"messages": given}, _Saying)


def _read(fields: Mapping[str, msgspec.Raw], kind: type[S]) -> S:
    body = msgspec.json.encode(fields)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise field_error(str(error), kind, lambda: read_document(body)) from None


def page_of(data: Sequence[JSON], *, has_more: bool) -> dict[str, Any]:
    """Return a page of what has ids."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def stored_message(chat_id: str, number: int, message: JSON) -> JSON:
    """Return a message as it is shown: with an id, and the parts of its content apart."""
    content = message.get("content")
    is_text = content is None or isinstance(content, str)
    shown = {"content": content if is_text else None, "content_parts": None if is_text else content}
    return {"role": "user", "refusal": None, **message, "id": f"{chat_id}-{number}", **shown}
