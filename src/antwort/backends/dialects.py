"""What several dialects do in the same way: items as models get them, usage and log probabilities in any spelling."""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.responses import PLAIN_INPUT, PLAIN_OUTPUT, InputTokensDetails, OutputTokensDetails, Usage

# --- items, as models get them ---------------------------------------------------------------------------------------


class Pieces(io.StringIO):
    """Collects the pieces of a text. It costs no more than the text is long, however small they are."""

    add = io.StringIO.write
    text = io.StringIO.getvalue

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return self.tell() > 0


check_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Fails unless a text is a JSON object."""


def json_arguments(arguments: Any) -> str:
    """Return arguments that are JSON for certain: servers parse those of earlier turns and fail at others."""
    if not isinstance(arguments, str):
        return msgspec.json.encode(arguments or {}).decode()
    try:
        check_object(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _encoded({"invalid_arguments": arguments}) if arguments.strip() else "{}"
    return arguments


def text_of(content: Any) -> str:
    """Return the text of an assistant's message; a refusal is text too."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def with_extra(body: JSON, *extras: JSON) -> JSON:
    """Put further fields into a body, where they replace those that are there; null leaves a field out."""
    for extra in extras:
        for name, value in extra.items():
            if value is None:
                body.pop(name, None)
            else:
                body[name] = value
    return body


def no_call(call_id: Any) -> BadRequestError:
    """Return the error for an output without its call."""
    message = f"No function call found for the output with call_id '{call_id}'."
    return BadRequestError(message, param="input", code="invalid_value")


def no_content(backend: str, kind: Any) -> BadRequestError:
    """Return the error for a part of a type that a server does not take."""
    message = f"The backend '{backend}' cannot be given content of the type '{kind}'."
    return BadRequestError(message, param="input", code="unsupported_content")


def _encoded(value: JSON) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        raise BadRequestError("The request holds text that is not valid Unicode.", param="input") from None


# --- usage and log probabilities, as servers give them ---------------------------------------------------------------


_NUMBER = (int, float)
MOST = 2**53
"""Tokens; what is counted beyond it is no count, and not every reader of JSON can hold it."""
_MOST_ALTERNATIVES = 20
"""What the API lets a request ask for."""
_LOGPROB_SIZE = 40
"""Characters that a log probability counts at least: what a short one has when it is written."""
MOST_WAITING = 1000
"""Log probabilities that are kept for a text that is yet to come; those beyond are of none."""


Tokens = Annotated[int, Meta(ge=0, le=MOST)]


class _Details(Struct, gc=False):
    """What tokens were, of the input or of the output."""

    cached_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    cache_creation_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0


class ChatUsage(Struct, gc=False):
    """Tokens as nearly all servers of Chat Completions count them; nothing in it is odd, or spelled in another way."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    total_tokens: Tokens = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: Tokens = 0
    cache_read_input_tokens: Tokens = 0
    cache_creation_input_tokens: Tokens = 0
    input_tokens_details: None = None
    output_tokens_details: None = None


def usage_of(value: Any) -> Usage | None:
    """Read the tokens used in any of the spellings, as they were decoded; None if there are none."""
    if isinstance(value, ChatUsage):
        return chat_usage(value)
    if not isinstance(value, dict):
        return None
    try:
        return chat_usage(msgspec.convert(value, ChatUsage))
    except msgspec.ValidationError:
        return _odd_usage(value)


def chat_usage(counted: ChatUsage) -> Usage:
    """Return the tokens used as responses count them."""
    prompt, completion = counted.prompt_tokens_details, counted.completion_tokens_details
    cached = counted.prompt_cache_hit_tokens or counted.cache_read_input_tokens
    written = counted.cache_creation_input_tokens
    if prompt is not None:
        cached = prompt.cached_tokens or cached
        written = prompt.cache_write_tokens or prompt.cache_creation_tokens or written
    return Usage(
        counted.prompt_tokens,
        InputTokensDetails(cached, written) if cached or written else PLAIN_INPUT,
        counted.completion_tokens,
        PLAIN_OUTPUT if completion is None else OutputTokensDetails(completion.reasoning_tokens),
        counted.total_tokens or counted.prompt_tokens + counted.completion_tokens,
    )


def _odd_usage(value: JSON) -> Usage:
    """Read the tokens used with care: every part may be missing, be spelled in another way, or be no count."""
    prompt = _object(value, "prompt_tokens_details", "input_tokens_details")
    completion = _object(value, "completion_tokens_details", "output_tokens_details")
    input_tokens = _count(value, "prompt_tokens", "input_tokens")
    output_tokens = _count(value, "completion_tokens", "output_tokens")
    cached = _count(prompt, "cached_tokens") or _count(value, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    written = _count(prompt, "cache_write_tokens", "cache_creation_tokens")
    written = written or _count(value, "cache_creation_input_tokens")
    return Usage(
        input_tokens=input_tokens,
        input_tokens_details=InputTokensDetails(cached, written),
        output_tokens=output_tokens,
        output_tokens_details=OutputTokensDetails(_count(completion, "reasoning_tokens")),
        total_tokens=_count(value, "total_tokens") or input_tokens + output_tokens,
    )


def logprobs_of(value: Any, alternatives: int | None = _MOST_ALTERNATIVES) -> list[JSON] | None:
    """Turn log probabilities into the Responses shape, in which no field is null; None if there are none.

    They have no more alternatives than were asked for. With None nobody asked: there are servers that give them to
    everybody, and they are many times as large as the answer.
    """
    if alternatives is None:
        return None
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not content:
        return None
    return [
        {**_logprob(entry), "top_logprobs": [*map(_logprob, islice(_objects(entry.get("top_logprobs")), alternatives))]}
        for entry in _objects(content)
    ]


def logprobs_size(logprobs: Sequence[JSON]) -> int:
    """Return how many characters log probabilities in the Responses shape count, with their alternatives."""
    return sum(_size(entry) + sum(map(_size, entry.get("top_logprobs") or ())) for entry in logprobs)


def _size(entry: JSON) -> int:
    return max(_LOGPROB_SIZE, len(entry.get("token") or "") + len(entry.get("bytes") or ()))


def _logprob(entry: JSON) -> JSON:
    token, encoded, logprob = str(entry.get("token", "")), entry.get("bytes"), entry.get("logprob")
    return {
        "token": token,
        "bytes": encoded if _are_bytes(encoded) else list(token.encode(errors="replace")),
        "logprob": logprob if isinstance(logprob, _NUMBER) and logprob else 0.0,
    }


def _are_bytes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(byte, int) for byte in value)


def _objects(value: Any) -> Iterator[JSON]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())


def _object(value: JSON, *names: str) -> JSON | None:
    for name in names:
        inner = value.get(name)
        if isinstance(inner, dict):
            return inner
    return None


def _count(value: JSON | None, *names: str) -> int:
    if value:
        for name in names:
            number = value.get(name)
            if number.__class__ is int and 0 <= number <= MOST:  # as it should be
                return number
            if isinstance(number, _NUMBER):
                return min(max(0, int(number)), MOST)
    return 0
