"""The demo model as a backend: a turn that was decided on is fed piece by piece, and its tokens are counted."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.demo.name import DEMO_MODEL
from antwort.backends.dialects import text_of
from antwort.lazy_imports import imported_on_use
from antwort.wire.client_tools import as_function
from antwort.wire.responses import Usage

if TYPE_CHECKING:
    from antwort.backends.demo import turn
else:  # its many patterns are compiled for servers without a model server only, and with their first request
    turn = imported_on_use("antwort.backends.demo.turn")

_CHARACTERS_PER_TOKEN = 4
_WORDS_PER_FLUSH = 4
_WORD = re.compile(r"\S+\s*|\s+")


class DemoBackend:
    """A model in process that needs no network and no weights, and answers the same request with the same bytes.

    Tokens are counted as one for each four characters, rounded up: of the input, the instructions, the texts of the
    items and the tool definitions as JSON; of the output, the text, and names and arguments of calls.
    """

    def __init__(self, name: str = "demo") -> None:
        self.name = name

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn. The text ends at the limit of tokens; a call is made as a whole or not at all."""
        decided, read = turn.decide(request), _read(request)
        limit, used = request.max_output_tokens, 0
        reason = "stop"
        text, room = decided.text or decided.refusal, None if limit is None else limit * _CHARACTERS_PER_TOKEN
        if room is not None and len(text) > room:
            text, reason = text[:room], "length"
        used += _tokens([text])
        await _feed(text, sink.text if decided.text else sink.refusal, request, sink)
        for index, call in enumerate(decided.calls):
            arguments = json.dumps(call.arguments, ensure_ascii=False).encode(errors="replace").decode()
            cost = _tokens([call.name + arguments])
            if limit is not None and used + cost > limit:
                reason = "length"
                break
            used, reason = used + cost, "tool_calls"
            sink.tool_call(index, call_id=f"call_{_seed(read)}{index:02}", name=call.name)
            await _feed(arguments, partial(_feed_arguments, sink, index), request, sink)
        count = _tokens(read)
        sink.usage(Usage(input_tokens=count, output_tokens=used, total_tokens=count + used))
        sink.finish(reason)
        await sink.flush()

    async def models(self) -> Sequence[ModelInfo]:
        """List the one model."""
        return (ModelInfo(DEMO_MODEL, "antwort"),)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens, as `run` does."""
        return _tokens(_read(request))

    async def context_window(self, _model: str) -> None:
        """Return None: rules have no window."""

    async def close(self) -> None:
        """Do nothing: there are no connections."""


async def _feed(text: str, take: Callable[[str], None], request: ModelRequest, sink: TurnSink) -> None:
    """Feed a text word by word if it is to be streamed, and pass it on every few words."""
    pieces = _WORD.findall(text) if request.stream else [text] if text else []
    for number, piece in enumerate(pieces, start=1):
        take(piece)
        if number % _WORDS_PER_FLUSH == 0 or number == len(pieces):
            await sink.flush()


def _feed_arguments(sink: TurnSink, index: int, piece: str) -> None:
    sink.tool_call(index, arguments=piece)


def _read(request: ModelRequest) -> list[str]:
    """Return all texts that the request gives to read; images and files have none."""
    tools = json.dumps(list(request.tools), ensure_ascii=False, default=str) if request.tools else ""
    texts = [request.instructions or "", tools]
    for item in map(as_function, request.items):
        told = (item.get(key) for key in ("role", "call_id", "name", "arguments"))
        texts += (*(str(part) for part in told if part), *(text_of(item.get(key)) for key in ("content", "output")))
    return texts


def _seed(read: Sequence[str]) -> str:
    """Return what the ids of a turn's calls begin with: the same for the same request."""
    ends = "\0".join(f"{len(text)} {text[-_WORDS_PER_FLUSH * 100 :]}" for text in read)
    return hashlib.sha256(ends.encode(errors="replace")).hexdigest()[:22]


def _tokens(texts: Sequence[str]) -> int:
    return sum(-(-len(text) // _CHARACTERS_PER_TOKEN) for text in texts)
