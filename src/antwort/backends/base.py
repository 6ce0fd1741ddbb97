"""The seam between the engine and model servers: what a turn asks for, what comes back, and what stands between."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from antwort.errors import BadRequestError
from antwort.http1.shared_bytes import WORTHWHILE, SharedBytes
from antwort.types import JSON
from antwort.wire.client_tools import OUTPUTS
from antwort.wire.responses import Usage

FileReading = Literal["text", "pdf", "any"]
"""Which files a model server is given as they are: only texts, PDF too, or whatever there is, by URL as well."""


UNFINISHED = "unfinished"
"""Why a turn stopped whose server ended its stream and did not say why: nobody knows whether it is all there."""


class EncodedTools(list[msgspec.Raw]):
    """What, put into a JSON list, is a list of tools; `size` is how many bytes they have.

    `to_end` is the rest of a body from the first of them on: they are its last field. Its last part, if that is so much
    that it is better not copied each time, is the `ending`.
    """

    __slots__ = ("ending", "size", "to_end")

    def __init__(self, parts: Iterable[msgspec.Raw], ending: SharedBytes | None = None) -> None:
        super().__init__(parts)
        views = [memoryview(part) for part in self]
        self.size = sum(map(len, views))
        if ending is None and views and len(views[-1]) >= WORTHWHILE:
            ending = SharedBytes(b"%s]}" % views[-1])
        self.ending = ending
        end: list[bytes | memoryview] = [*views[-1:], b"]}"] if ending is None else [ending]
        self.to_end: Sequence[bytes | memoryview] = [*(part for view in views[:-1] for part in (view, b",")), *end]


class ToolDefinitions(tuple[JSON, ...]):  # noqa: SLOT001 - it has room for what is made of it
    """Definitions of functions that nobody changes: what a backend makes of them is made once, and kept with them.

    `shared` are some at the end that other requests have as well, with what was made of them. What comes `later` stands
    behind those, so that what was sent before stays the beginning of what is sent.
    """

    _shared: "ToolDefinitions | None"
    _own: tuple[JSON, ...]
    _later: tuple[JSON, ...]
    _encoded: dict[Callable[[JSON], JSON], EncodedTools]
    _made: dict[Callable[["ToolDefinitions"], EncodedTools], EncodedTools]
    _totals: dict[Callable[[JSON], int], int]

    @override
    def __new__(
        cls, definitions: Iterable[JSON] = (), shared: "ToolDefinitions | None" = None, later: Iterable[JSON] = ()
    ) -> Self:
        own, last = tuple(definitions), tuple(later)
        made = super().__new__(cls, (*own, *shared, *last) if shared else own + last)
        made._own, made._shared, made._later = own, shared, last
        made._encoded, made._made, made._totals = {}, {}, {}
        return made

    def followed_by(self, definitions: Iterable[JSON]) -> "ToolDefinitions":
        """Return them with others behind them; what was made of them is not made again."""
        return ToolDefinitions((), self, definitions)

    @property
    def named(self) -> tuple[JSON, ...]:
        """Those that the request names, if it names any."""
        if self._later:
            return () if self._shared is None else self._shared.named
        return () if self._shared is None else self._own

    def encoded(self, shaped: Callable[[JSON], JSON]) -> EncodedTools:
        """Return them as JSON, each in the shape that a function gives it; a BadRequestError if that cannot be.

        An element of it stands for several: to put a thousand together would cost more than the rest of a request.
        """
        found = self._encoded.get(shaped)
        if found is None:
            found = self._encoded[shaped] = self._encode(shaped)
        return found

    def _encode(self, shaped: Callable[[JSON], JSON]) -> EncodedTools:
        try:
            own, later = (
                [msgspec.json.encode(shaped(definition)) for definition in some] for some in (self._own, self._later)
            )
        except UnicodeEncodeError:
            raise BadRequestError("The tools hold text that is not valid Unicode.", param="tools") from None
        except RecursionError:
            raise BadRequestError("The tools are nested too deeply.", param="tools") from None
        parts = [msgspec.Raw(b",".join(own))] if own else []
        shared = self._shared.encoded(shaped) if self._shared else EncodedTools([])
        if later:
            return EncodedTools([*parts, *shared, msgspec.Raw(b",".join(later))])
        return EncodedTools([*parts, *shared], shared.ending)

    def made(self, make: Callable[["ToolDefinitions"], EncodedTools]) -> EncodedTools:
        """Return what a function makes of all of them, which is kept as well."""
        found = self._made.get(make)
        if found is None:
            found = self._made[make] = make(self)
        return found

    def total(self, counted: Callable[[JSON], int]) -> int:
        """Return the sum of what a function counts in each."""
        found = self._totals.get(counted)
        if found is None:
            shared = self._shared.total(counted) if self._shared else 0
            found = self._totals[counted] = sum(map(counted, (*self._own, *self._later))) + shared
        return found


class ModelRequest(msgspec.Struct):
    """One model turn. Items are wire items in order; tools are function definitions in the Responses shape.

    Tools that are `ToolDefinitions` are the same objects in many turns; nobody may change them.
    """

    model: str
    items: Sequence[JSON]
    instructions: str | None = None
    tools: Sequence[JSON] = ()
    tool_choice: str | JSON | None = None
    """`auto`, `none`, `required`, or `{"type": "function", "name": …}`; None leaves it to the model server."""
    allowed: frozenset[str] | None = None
    """The names of the tools that may be called, if these are some of them; what is made of it is up to the backend."""
    parallel_tool_calls: bool | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    """Asked for log probabilities with so many alternatives; None for none."""
    effort: str | None = None
    """How much to think."""
    summary: str | None = None
    """How to sum up the thoughts, where the model server does that: `auto`, `concise`, `detailed`."""
    text_format: JSON | None = None
    """`text.format` of the request: text, json_object or json_schema."""
    verbosity: str | None = None
    user: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    tenant: str = ""
    short: bool = False
    """Whether its items are known to be few and short, so that nobody has to look how much there is of them."""
    deadline: float | None = None
    """When the answer must be complete, on the clock of `time.monotonic()`."""
    extra: JSON = {}
    """Fields of the request for the model server, beyond the API; its backend takes them."""
    headers: Mapping[str, str] = {}
    """Headers beside those of the configuration: by them the model server's spans belong to the turn's."""
    tried: list[str] = []
    """The backends that were asked, one for each try: whoever asks takes note. Copies of a request share it."""


class WholeCall(msgspec.Struct, frozen=True, gc=False):
    """A function call of a turn that came as a whole."""

    id: str | None
    name: str
    arguments: str


class WholeTurn(msgspec.Struct, frozen=True, gc=False):
    """A turn that came as a whole, and has a text, calls and nothing else."""

    text: str | None
    calls: Sequence[WholeCall]
    usage: Usage | None
    reason: str

    def feed(self, sink: "TurnSink") -> None:
        """Feed it in pieces."""
        if self.text:
            sink.text_burst([self.text])
        for index, call in enumerate(self.calls):
            sink.tool_call(index, call_id=call.id, name=call.name, arguments=call.arguments)
        if self.usage is not None:
            sink.usage(self.usage)
        sink.finish(self.reason)


class TurnSink(Protocol):
    """Takes a turn as it arrives. All methods but `flush` only take note; `flush` passes on what came in one read."""

    def whole_turn(self, turn: WholeTurn) -> None:
        """Take a turn at once, of which nothing was taken before, and nothing follows."""

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer; `logprobs` in the Responses shape (token, logprob, bytes, top_logprobs)."""

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of the answer that came together, none of them empty; each remains a piece."""

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts."""

    def summary(self, delta: str) -> None:
        """Take a piece of a summary of the model's thoughts, which some servers give in their place."""

    def opaque(self, content: str) -> None:
        """Take the thoughts as the model server wants them back, in a form that only it can read."""

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a function call. `index` tells calls of one turn apart; the first piece has the name."""

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""

    def finish(self, reason: str) -> None:
        """Take why the model stopped: `stop`, `length`, `tool_calls`, `content_filter`, `unfinished`."""

    async def flush(self) -> None:
        """Pass on what was taken since the last flush. It waits while the client does not read: the backpressure.

        What a turn ends with is passed on by whoever has asked.
        """


def quick_flush(sink: object) -> Callable[[], bool] | None:
    """Return what does the same as `flush` of a sink if nothing has to be waited for, and tells whether it has done so.

    That is the `flush_now` of those sinks that have one, and None for the others.
    """
    found: Callable[[], bool] | None = getattr(sink, "flush_now", None)
    return found


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that can be asked."""

    id: str
    owned_by: str
    created: int = 0
    context_window: int | None = None
    """How many tokens it takes, if the list says so."""


class ModelBackend(Protocol):
    """A model server.

    `run` performs one turn and feeds the sink. Failures are API errors (502, 503, 504, 429, 400) that name the backend;
    after the first piece was fed nothing is retried.
    """

    name: str

    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it serves."""

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count the input tokens of a turn with the model's own tokenizer; None if the server does not do that."""

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes, None if that is not known."""

    async def close(self) -> None:
        """Give connections back."""


class BackendWrapper:
    """A backend that adds something to another; as it stands, nothing."""

    def __init__(self, backend: ModelBackend) -> None:
        self.name = backend.name
        self.backend = backend

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn."""
        await self.backend.run(request, sink)

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it serves."""
        return await self.backend.models()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count the input tokens of a turn; None if the server does not do that."""
        return await self.backend.count_tokens(request)

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes, None if that is not known."""
        return await self.backend.context_window(model)

    async def close(self) -> None:
        """Give connections back."""
        await self.backend.close()


# --- servers that are sent less ---------------------------------------------------------------------------------------


class AllowedTools(BackendWrapper):
    """Gives a model server only those tools that may be called: what a model does not see it does not call."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(request if request.allowed is None else _narrowed(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_narrowed(request))


def _narrowed(request: ModelRequest) -> ModelRequest:
    allowed = request.allowed
    if allowed is None:
        return request
    return replace(request, tools=ToolDefinitions(tool for tool in request.tools if tool["name"] in allowed))


_IMAGE = "input_image"
_UNSEEN: JSON = {"type": "input_text", "text": "[An image, which this model cannot see.]"}


class WithoutImages(BackendWrapper):
    """Gives a model server no images of results. Those that a user sends go to it as they are: it may refuse them."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(_blind(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_blind(request))


def _blind(request: ModelRequest) -> ModelRequest:
    if not any(map(_has_image, request.items)):
        return request
    return replace(request, items=[_without_images(item) if _has_image(item) else item for item in request.items])


def _has_image(item: JSON) -> bool:
    output = item.get("output")
    return isinstance(output, list) and item.get("type") in OUTPUTS and any(map(_is_image, output))


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == _IMAGE


def _without_images(item: JSON) -> JSON:
    return {**item, "output": [_UNSEEN if _is_image(part) else part for part in item["output"]]}
