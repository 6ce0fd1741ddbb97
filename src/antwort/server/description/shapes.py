"""Shapes of answers and bodies, for the API description; handlers may write the same as plain dictionaries."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antwort.types import JSON
from antwort.wire.responses import ResponseObject

__all__ = [
    "AN_ITEM",
    "ChatRequest",
    "Conversation",
    "DeletedConversation",
    "DeletedResponse",
    "EmbeddingsRequest",
    "InputTokens",
    "ItemList",
    "Model",
    "ModelList",
    "ResponseList",
]

AN_ITEM: JSON = {"$ref": "#/components/schemas/Item"}
"""An item, whichever it is, as a schema."""


class ResponseList(Struct, kw_only=True):
    """A page of responses."""

    object: Literal["list"]
    data: list[ResponseObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ItemList(Struct, kw_only=True):
    """A page of items."""

    object: Literal["list"]
    data: list[JSON]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Struct, kw_only=True):
    """That a response was deleted."""

    id: str
    object: Literal["response"]
    deleted: bool


class InputTokens(Struct, kw_only=True):
    """How many tokens a request would send to the model."""

    object: Literal["response.input_tokens"]
    input_tokens: Annotated[int, Meta(ge=0)]


class Conversation(Struct, kw_only=True):
    """A conversation: items that responses continue."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Struct, kw_only=True):
    """That a conversation was deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


class Model(Struct, kw_only=True):
    """A model that can be asked."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct, kw_only=True):
    """The models that can be asked."""

    object: Literal["list"]
    data: list[Model]


class ChatRequest(Struct, kw_only=True):
    """A request for a chat completion. Whatever else is in it is the model server's business."""

    messages: list[JSON]
    model: str | None = None
    stream: bool | None = None


class EmbeddingsRequest(Struct, kw_only=True):
    """A request for embeddings. Whatever else is in it is the model server's business."""

    input: str | list[Any]
    model: str | None = None
