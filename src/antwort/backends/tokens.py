"""How many tokens a request has: counted by its server, else estimated.

The estimate is made for budgets, not for bills: deterministic and linear. Characters count by what they are, in parts
of a token; everything that is not text has a fixed price, or one by its size. For English, code and JSON it tends to be
too high; for other languages it may be too low, and by how much depends on the model's vocabulary.

| What | Tokens |
|---|---|
| ASCII letters and blanks | 1 for 4 |
| ASCII punctuation and line breaks | 1 for 2 |
| ASCII digits, of which many tokenizers take one at a time | 1 for 1 |
| two-byte characters (accents, Greek, Cyrillic, Arabic, …) | 1 for 2 |
| three-byte characters (Chinese, Japanese, Korean, Thai, …) | 1 for 1 |
| four-byte characters (emoji, rare ideographs) | 2 for 1 |
| an image | 85 with `detail: low`, 1,105 otherwise |
| a text file, a PDF file, a file elsewhere | 1 for 4 bytes, 1 for 16 bytes, 1,000 |
| a message, a call, an output, a tool | 5 each, beside their texts |
| the answer's beginning | 3 |
"""

import base64
import binascii
import json
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from antwort.backends.base import ModelRequest, ToolDefinitions
from antwort.backends.http.remote import encode_body
from antwort.backends.http.transport import Timeouts, Transport
from antwort.errors import APIError
from antwort.types import JSON
from antwort.wire.client_tools import as_function

logger = logging.getLogger(__name__)

OVERHEAD = 5
ANSWER = 3
IMAGE_LOW, IMAGE = 85, 1105
DISTANT_FILE = 1000
BYTES_PER_TOKEN, PDF_BYTES_PER_TOKEN = 4, 16
SEALED_PER_TOKEN = 6
"""Characters of sealed thoughts for a token: base64, and some of it is the seal."""

_WORDS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
_DIGITS = b"0123456789"
_MARKS = bytes(byte for byte in range(0x80) if byte not in _WORDS + _DIGITS)
_TWO, _THREE, _FOUR = bytes(range(0xC2, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0xF5))
_FOLLOWING = bytes(range(0x80, 0xC0))
_PRICES = ((_MARKS, 2), (_DIGITS, 4), (_TWO, 2), (_THREE, 4), (_FOUR, 8))
"""Quarters of a token for the bytes that begin a character."""


def estimate_tokens(request: ModelRequest) -> int:
    """Return about how many tokens a model reads for a request; never 0."""
    total = ANSWER + estimate_items(request.items)
    if request.instructions:
        total += OVERHEAD + estimate_text(request.instructions)
    tools = request.tools
    total += tools.total(_tool) if isinstance(tools, ToolDefinitions) else sum(map(_tool, tools))
    if request.text_format is not None:
        total += _json(request.text_format.get("schema"))
    return total


def estimate_items(items: Iterable[JSON]) -> int:
    """Return about how many tokens a model reads for items."""
    return sum(_item(as_function(item)) for item in items)


def estimate_text(text: str) -> int:
    """Return about how many tokens a text has; at least 1 if there is any."""
    data = text.encode("utf-8", "surrogatepass")
    # Leaving bytes out is done in C, so each class costs one quick pass.
    rest = data.translate(None, _WORDS)
    words = len(data) - len(rest)
    if not rest:
        return -(-words // 4)
    rest = rest.translate(None, _FOLLOWING)
    quarters = words
    for kind, price in _PRICES:
        left = rest.translate(None, kind)
        quarters += price * (len(rest) - len(left))
        rest = left
    return -(-quarters // 4)


def _item(item: JSON) -> int:
    match item.get("type") or "message":
        case "message":
            return OVERHEAD + _content(item.get("content"))
        case "function_call":
            return OVERHEAD + _text(item.get("name")) + _text(item.get("arguments"))
        case "function_call_output":
            return OVERHEAD + _content(item.get("output"))
        case "reasoning":
            told = _content(item.get("content"))
            sealed = item.get("encrypted_content")
            return told or (-(-len(sealed) // SEALED_PER_TOKEN) if isinstance(sealed, str) else 0)
    return 0  # what no backend gives to a model


def _content(content: Any) -> int:
    if isinstance(content, list):
        return sum(_part(part) for part in content if isinstance(part, dict))
    return _text(content)


def _part(part: JSON) -> int:
    match part.get("type"):
        case "input_image":
            return IMAGE_LOW if part.get("detail") == "low" else IMAGE
        case "input_file":
            return _file(part)
    return _text(part.get("text")) + _text(part.get("refusal"))


def _file(part: JSON) -> int:
    data = part.get("file_data")
    if not isinstance(data, str) or not data:
        return DISTANT_FILE
    start = data.find(",") + 1 if data.startswith("data:") else 0
    size = (len(data) - start) * 3 // 4
    try:
        is_pdf = base64.b64decode(data[start : start + 8]).startswith(b"%PDF-")
    except (binascii.Error, ValueError):
        is_pdf = False
    return OVERHEAD + -(-size // (PDF_BYTES_PER_TOKEN if is_pdf else BYTES_PER_TOKEN))


def _json(value: Any) -> int:
    if value is None:
        return 0
    return estimate_text(json.dumps(value, ensure_ascii=False, default=str))


def _tool(definition: JSON) -> int:
    return OVERHEAD + _json(definition)


def _text(value: Any) -> int:
    return estimate_text(value) if isinstance(value, str) and value else 0


# --- counted by the server -------------------------------------------------------------------------------------------

PATIENCE = 5.0
"""Seconds to wait for a count; an estimate has to do if it takes longer."""
MISSING_REST = 600.0
"""Seconds after which a server that does not count is asked again: it may be another by then."""
FAILED_REST = 30.0
"""Seconds after which a server that could not be asked is asked again."""

_MISSING = frozenset({401, 403, 404, 405, 415, 422, 501})
"""Statuses that say that there is no such endpoint, or not for us, or not in this shape."""


class TokenEndpoint:
    """Asks a server to count. Every failure is logged and gives None: a count is never worth an error."""

    def __init__(self, name: str, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._transport = transport
        self._clock = clock
        self._rests_until = float("-inf")

    async def ask(self, path: str, body: JSON, tenant: str) -> JSON | None:
        """Return the JSON object a server answers with; None if it gives none."""
        if self._clock() < self._rests_until:
            return None
        connect = min(PATIENCE, self._transport.timeouts.connect)
        try:
            times = Timeouts(connect, PATIENCE, PATIENCE)
            reply = await self._transport.post(path, encode_body(body), timeouts=times, tenant=tenant)
            try:
                content = await reply.read(self._transport.limits.event_bytes)
                self._transport.limits.check_values(content)
            finally:
                reply.abort()
        except APIError as error:
            logger.warning("The backend '%s' could not count tokens: %s", self._name, error.message)
            self._rests_until = self._clock() + FAILED_REST
            return None
        if reply.status == 200:
            return self._object(content)
        if reply.status in _MISSING:
            self.is_missing()
        logger.debug("The backend '%s' does not count tokens: %s answered %d.", self._name, path, reply.status)
        return None

    async def input_tokens(self, path: str, body: JSON, tenant: str) -> int | None:
        """Return the `input_tokens` that a server answers with; None if it gives none."""
        answer = await self.ask(path, body, tenant)
        if answer is None:
            return None
        count = answer.get("input_tokens")
        if isinstance(count, int):
            return count
        self.is_missing()
        return None

    def is_missing(self) -> None:
        """Take note that the server does not count, and leave it alone for a while."""
        self._rests_until = self._clock() + MISSING_REST

    def _object(self, content: bytes) -> JSON | None:
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            logger.debug("The backend '%s' does not count tokens: its answer is no JSON object.", self._name)
            self.is_missing()
            return None
