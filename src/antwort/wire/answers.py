"""Answers besides responses: pages of lists, conversations, models, counts, and that something is gone."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from antwort.types import JSON
from antwort.wire.items import AnyItem
from antwort.wire.responses import ResponseObject


class ResponseList(Struct, kw_only=True):
    """A page of responses."""

    object: Literal["list"] = "list"
    data: Sequence[ResponseObject]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, data: Sequence[ResponseObject], *, has_more: bool) -> "ResponseList":
        """Make a page of responses."""
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        return cls(data=data, first_id=first, last_id=last, has_more=has_more)


class ItemList(Struct, kw_only=True):
    """A page of items."""

    object: Literal["list"] = "list"
    data: Sequence[AnyItem]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, data: Sequence[JSON], *, has_more: bool) -> "ItemList":
        """Make a page of items."""
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return cls(data=data, first_id=first, last_id=last, has_more=has_more)


class DeletedResponse(Struct, kw_only=True):
    """That a response was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputTokens(Struct, kw_only=True):
    """How many tokens a request would send to the model."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: Annotated[int, Meta(ge=0)]


class Conversation(Struct, kw_only=True):
    """A conversation: items that responses continue."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


class ConversationList(Struct, kw_only=True):
    """A page of conversations."""

    object: Literal["list"] = "list"
    data: Sequence[Conversation]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedConversation(Struct, kw_only=True):
    """That a conversation was deleted."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class Model(Struct, kw_only=True):
    """A model that can be asked, in the words of OpenAI and of Anthropic at once: both have this path."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    type: Literal["model"] = "model"
    display_name: str
    created_at: Annotated[str, Meta(description="`created`, as Anthropic tells it.")]
    lifecycle: Literal["active"] = "active"
    max_input_tokens: Annotated[
        int | None, Meta(description="How many tokens it takes, if its server's list says so.")
    ] = None


class ModelList(Struct, kw_only=True):
    """The models that can be asked."""

    object: Literal["list"] = "list"
    data: Sequence[Model]
    has_more: bool = False
    first_id: str | None
    last_id: str | None
