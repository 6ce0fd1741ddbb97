"""Batches of requests for messages, as clients send them and are told of them."""

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import beyond_limit, field_error, read_document, wrong_pattern, wrong_type
from antwort.wire.requests import decode_body

MOST_REQUESTS = 100_000
_NAME = "^[a-zA-Z0-9_-]{1,64}$"
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class BatchedRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request of a batch."""

    custom_id: Annotated[str, Meta(pattern=_NAME, description="A name of your own, which no other request has.")]
    params: Annotated[
        msgspec.Raw,
        Meta(
            description="What `/v1/messages` takes, but for `stream`; what is wrong with it is told in the result.",
            extra_json_schema={"type": "object"},
        ),
    ]


class CreateMessageBatch(Struct, kw_only=True, forbid_unknown_fields=True):
    """Many requests for messages."""

    requests: Annotated[
        list[BatchedRequest], Meta(min_length=1, max_length=MOST_REQUESTS, description="What is to be asked.")
    ]


class MessageCounts(Struct, kw_only=True):
    """What became of the requests of a batch; all are being processed until it has ended."""

    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class MessageBatch(Struct, kw_only=True):
    """A batch of requests for messages."""

    id: str
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageCounts
    ended_at: Moment | None
    created_at: Moment
    expires_at: Moment
    archived_at: Moment | None = None
    cancel_initiated_at: Moment | None
    results_url: str | None


class MessageBatchPage(Struct, kw_only=True):
    """A page of batches."""

    data: Sequence[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(Struct, kw_only=True):
    """What is said of a batch that was deleted."""

    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


class MessageResult(Struct, kw_only=True):
    """A line of the results of a batch."""

    custom_id: str
    result: Annotated[
        JSON,
        Meta(description="`{type: succeeded, message}`, `{type: errored, error}`, `{type: canceled}` or `expired`."),
    ]


def moment(seconds: int) -> str:
    """Return a moment as it is told."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


# --- the body of a request --------------------------------------------------------------------------------------------


CheckParams = Callable[[bytes, str], None]
"""Raises a BadRequestError for params that are too much; told with where they stand."""
_DEEP, _DEEPER = 200, 100
"""Brackets from which on params may be nested deeply, and by how many more levels they must be readable still."""


class _Params(Struct):
    stream: msgspec.Raw = msgspec.Raw()


class _Envelope(Struct, forbid_unknown_fields=True):
    requests: Annotated[list[msgspec.Raw], Meta(min_length=1)]


_decoder = functools.cache(lambda: msgspec.json.Decoder(_Envelope))
_raw_decoder = functools.cache(lambda: msgspec.json.Decoder(msgspec.Raw))
_request_decoder = functools.cache(lambda: msgspec.json.Decoder(BatchedRequest))
_params_decoder = functools.cache(lambda: msgspec.json.Decoder(_Params))


def read_message_batch(body: bytes | bytearray, check: CheckParams) -> tuple[int, bytes]:
    """Return how many requests a batch has, and these as the lines of a file; BadRequestError names what is wrong.

    What is wrong with the `params` of one is told in its result, unless nobody could make a request of them.
    """
    requests = decode_body(_decoder(), body, "requests", _raw_decoder()).requests
    if len(requests) > MOST_REQUESTS:
        raise beyond_limit("requests", "array", above=True, bound=MOST_REQUESTS, given=len(requests))
    lines: list[bytes] = []
    names: dict[str, int] = {}
    for index, raw in enumerate(requests):
        request = _request(raw, f"requests[{index}]")
        name = request.custom_id
        if name.endswith("\n"):  # `$` lets it pass
            raise wrong_pattern(f"requests[{index}].custom_id", _NAME)
        if (first := names.setdefault(name, index)) != index:
            raise BadRequestError(
                f"Duplicate 'requests[{index}].custom_id': '{name}' names requests[{first}], too.",
                param=f"requests[{index}].custom_id",
                code="duplicate_custom_id",
            )
        params = _params(bytes(request.params), f"requests[{index}].params")
        check(params, f"requests[{index}].params")
        lines.append(b'{"custom_id":%s,"body":%s}\n' % (msgspec.json.encode(name), params))
    return len(lines), b"".join(lines)


def _request(raw: msgspec.Raw, where: str) -> BatchedRequest:
    try:
        return _request_decoder().decode(raw)
    except msgspec.ValidationError as error:
        raise field_error(str(error), BatchedRequest, partial(read_document, bytes(raw)), where) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _unreadable(where) from None


def _params(found: bytes, where: str) -> bytes:
    """Return params as they are, in one line."""
    if not found.startswith(b"{"):
        raise wrong_type(where, "an object", read_document(found))
    try:
        if found.count(b"[") + found.count(b"{") > _DEEP:  # whoever makes the request may stand lower than we do here
            msgspec.json.decode(b"[" * _DEEPER + found + b"]" * _DEEPER, type=msgspec.Raw)
        if _params_decoder().decode(found).stream == msgspec.Raw(b"true"):
            raise BadRequestError(
                f"'{where}.stream' is true, and nobody reads the stream of a request of a batch.",
                param=f"{where}.stream",
                code="streaming_unsupported",
            )
        return msgspec.json.format(found, indent=-1) if b"\n" in found or b"\r" in found else found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _unreadable(where) from None


def _unreadable(where: str) -> BadRequestError:
    return BadRequestError(
        f"'{where}' cannot be read as JSON, or is nested too deeply.", param=where, code="invalid_value"
    )
