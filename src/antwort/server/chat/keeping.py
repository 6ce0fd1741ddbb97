"""Keeping a chat completion while it is passed through: as one piece, or put together of the chunks of a stream."""

import json
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antwort.concurrency.large_work import LargeWork
from antwort.runs.limits import TenantLimits
from antwort.storage.chat_completions import ChatCompletions, NewChat, new_chat_id
from antwort.types import JSON
from antwort.wire.chat.stored import check_messages, read_metadata
from antwort.wire.field_errors import missing_parameter

logger = logging.getLogger(__name__)

Fields = dict[str, msgspec.Raw]
LARGE = 64 * 1024
"""Bytes from which on an answer is read on a thread."""
_REPLACED = frozenset({"role", "id", "type", "name", "index"})
"""Texts of which each chunk has all, if it has any."""
_LONGEST_INTEGER = 19
"""Characters from which on an integer may be too large to be written again."""
_decode_fields = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.encode


class ChatKeeper:
    """Keeps the completions that are to be kept."""

    def __init__(self, chats: ChatCompletions, limits: TenantLimits, large_work: LargeWork) -> None:
        self._chats = chats
        self._limits = limits
        self._large_work = large_work

    async def begin(self, fields: Fields, model: str, tenant: str) -> "ChatKeeping":
        """Take out of a request what only this server is told, and return what keeps its answer.

        Model servers are told neither `store` nor `metadata`: what is kept here need not be kept there, and many refuse
        fields that they do not know. A BadRequestError names what cannot be kept.
        """
        del fields["store"]
        metadata = read_metadata(fields.pop("metadata", None))
        if (messages := fields.get("messages")) is None:
            raise missing_parameter("messages")
        await self._large_work.run_if(len(bytes(messages)) >= LARGE, check_messages, messages)
        await self._limits.check_room(tenant, "send it with 'store': false")
        return ChatKeeping(self, self._large_work, tenant, WantedChat(model, metadata, messages))

    async def keep(self, tenant: str, wanted: "WantedChat", chat_id: str, model: Any, answer: bytes) -> None:
        """Keep a completion; `model` is what it names as its own."""
        models = dict.fromkeys(name for name in (wanted.model, model) if isinstance(name, str))
        chat = NewChat(chat_id, [*models], wanted.metadata, msgspec.Raw(answer), wanted.messages)
        await self._chats.keep(tenant, chat)


class ChatKeeping:
    """Keeps one completion, under an id of this server: those of model servers may be the same twice."""

    def __init__(self, keeper: ChatKeeper, large_work: LargeWork, tenant: str, wanted: "WantedChat") -> None:
        self._keeper = keeper
        self._large_work = large_work
        self._tenant = tenant
        self._wanted = wanted
        self.id = new_chat_id()

    async def whole(self, body: bytes) -> bytes:
        """Keep an answer that came as a whole, and return it as the client gets it."""
        found = await self._large_work.run_if(len(body) >= LARGE, self._read, body)
        if found is None:
            logger.warning("an answer is no chat completion, so it is not kept although the request has 'store'")
            return body
        answer, model = found
        await self._keep(answer, model)
        return answer

    async def assembled(self, chunks: "ChatChunks") -> None:
        """Keep what was put together of a stream, if it is complete."""
        found = await self._large_work.run_if(chunks.size >= LARGE, chunks.completion)
        if found is None:
            logger.info("a stream ended before its chat completion was complete, so it is not kept")
            return
        await self._keep(_written(found), found.get("model"))

    async def _keep(self, answer: bytes, model: Any) -> None:
        await self._keeper.keep(self._tenant, self._wanted, self.id, model, answer)

    def _read(self, body: bytes) -> tuple[bytes, Any] | None:
        found = _read_json(body)
        if not isinstance(found, dict) or not isinstance(found.get("choices"), list):
            return None
        found |= {"id": self.id, "object": "chat.completion", "metadata": self._wanted.metadata}
        found = {"created": int(time.time()), "usage": None, **found}
        return _written(found), found.get("model")


class WantedChat(Struct, frozen=True):
    """What a request says of the completion that is to be kept."""

    model: str | None
    metadata: dict[str, str]
    messages: msgspec.Raw


# --- streams ----------------------------------------------------------------------------------------------------------


class _Pieces(list[str]):
    """The pieces of a text."""


class _Numbered(dict[int, JSON]):
    """What is in a list by its index."""


class ChatChunks:
    """Puts a completion together of the chunks of a stream, which get its id."""

    def __init__(self, chat_id: str) -> None:
        self._id = msgspec.Raw(_encode(chat_id))
        self._head: JSON = {"id": chat_id, "object": "chat.completion", "created": None, "model": "", "usage": None}
        self._choices: dict[int, JSON] = {}
        self._is_broken = False
        self.is_over = False
        """Whether its end mark has come."""
        self.size = 0
        """Bytes that it was put together of."""

    def frames(self, events: Sequence[bytes]) -> bytes:
        """Take events and return them as the client gets them: without the end mark, and what is behind it."""
        frames: list[bytes] = []
        for data in events:
            if self.is_over or data == _END:
                self.is_over = True
                break
            frames.append(b"data: %s\n\n" % self._taken(data).replace(b"\n", b"\ndata: "))
        return b"".join(frames)

    def _taken(self, data: bytes) -> bytes:
        self.size += len(data)
        chunk = _read_json(data)
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
            self._is_broken = self._is_broken or (isinstance(chunk, dict) and "error" in chunk)
            return data
        shown = self._shown(data, chunk)
        try:
            for choice in chunk.pop("choices"):
                self._add(choice)
        except RecursionError:
            self._is_broken = True
        self._head |= {name: value for name, value in chunk.items() if value is not None and name not in _OWN}
        return shown

    def _shown(self, data: bytes, chunk: JSON) -> bytes:
        """Return a chunk with the id of this server, and whatever else it has as it was written."""
        try:
            return _encode(_decode_fields(data) | {"id": self._id})
        except (msgspec.MsgspecError, UnicodeDecodeError):  # half a character: whoever joins the texts has all of it
            return json.dumps({**chunk, "id": self._head["id"]}, separators=(",", ":")).encode()

    def _add(self, choice: Any) -> None:
        if not isinstance(choice, dict) or not isinstance(choice.get("index", 0), int):
            self._is_broken = True
            return
        delta = choice.pop("delta", None)
        known = self._choices.setdefault(choice.get("index", 0), {"message": {}, "logprobs": None})
        if isinstance(delta, dict):
            _merge(known["message"], delta)
        if choice.get("finish_reason") is not None:
            known["finish_reason"] = choice["finish_reason"]
        if isinstance(choice.get("logprobs"), dict):
            known["logprobs"] = known["logprobs"] or {}
            _merge(known["logprobs"], choice["logprobs"])

    def completion(self) -> JSON | None:
        """Return the completion; None if it is not complete."""
        if self._is_broken or not self._choices or any("finish_reason" not in one for one in self._choices.values()):
            return None
        try:
            choices = [_choice(index, choice) for index, choice in sorted(self._choices.items())]
        except RecursionError:
            return None
        created = self._head["created"]
        return {**self._head, "created": int(time.time()) if created is None else created, "choices": choices}


def _choice(index: int, choice: JSON) -> JSON:
    message = {"role": "assistant", "content": None, "refusal": None, **_grown(choice["message"])}
    if message.get("tool_calls"):  # streams begin with an empty text, whatever follows
        message["content"] = message["content"] or None
    end = {"logprobs": _grown(choice["logprobs"]), "finish_reason": choice["finish_reason"]}
    return {"index": index, "message": message, **end}


_END = b"[DONE]"
_OWN = frozenset({"id", "object", "metadata"})


def _merge(into: JSON, delta: JSON) -> None:
    """Add what a chunk says to what was said before."""
    for name, value in delta.items():
        known = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, str) and name not in _REPLACED:
            if not isinstance(known, _Pieces):
                known = into[name] = _Pieces()
            known.append(value)
        elif isinstance(value, dict):
            if not isinstance(known, dict):
                known = into[name] = {}
            _merge(known, value)
        elif isinstance(value, list):
            into[name] = _extended(known, value)
        else:
            into[name] = value


def _extended(known: Any, more: list[Any]) -> Any:
    """Add to a list; what has an index in it, as calls have, is put together of several chunks."""
    if not more:  # what there is, or is to be, is not told by it
        return [] if known is None else known
    if not all(isinstance(one, dict) and isinstance(one.get("index"), int) for one in more):
        if not isinstance(known, list):
            known = []
        known += more
        return known
    if not isinstance(known, _Numbered):
        known = _Numbered()
    for one in more:
        _merge(known.setdefault(one["index"], {}), one)
    return known


def _grown(value: Any) -> Any:
    """Return what was put together as it is written."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Numbered):
        return [
            _grown({name: one for name, one in part.items() if name != "index"}) for _, part in sorted(value.items())
        ]
    if isinstance(value, dict):
        return {name: _grown(one) for name, one in value.items()}
    return value


# --- JSON of model servers --------------------------------------------------------------------------------------------


def _read_json(data: bytes) -> Any:
    """Return a value; also one with halves of characters, which servers write that cut texts anywhere. None if none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(data, parse_constant=_number, parse_float=_number, parse_int=_number)
        except (ValueError, RecursionError):
            return None


def _number(text: str) -> float | None:
    """Return a number as it can be written again; None for one that cannot."""
    if text.lstrip("-").isdigit() and len(text) < _LONGEST_INTEGER:
        return int(text)
    found = float(text)
    return found if math.isfinite(found) else None


def _written(value: JSON) -> bytes:
    """Return a value as JSON; halves of characters that came apart are joined, and others replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
