"""A backend whose models call functions, whatever their server makes of it."""

import logging
import re
from collections.abc import Coroutine, Sequence
from typing import Any

from typing_extensions import override

from antwort.backends.base import ModelBackend, ModelRequest, TurnSink
from antwort.backends.http.limits import AnswerLimits
from antwort.backends.http.remote import RemoteBackend
from antwort.backends.resilience import BackendWrapper
from antwort.backends.text_calls.prompt import forced_schema, prompted
from antwort.backends.text_calls.sinks import ForcedSink, NativeSink, NoCallError, PromptedSink
from antwort.config import BackendConfig
from antwort.errors import APIError, BadRequestError
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON

logger = logging.getLogger(__name__)

MOST_MODELS = 1000
"""Models of which is remembered what they do not take: clients can invent any number."""
TOO_LONG = "context_length_exceeded"

_TOOLS = r"\b(?:tools?|tool_choice|tool[ -]use|tool[ -]call(?:ing|s)?|functions?|function[ -]call(?:ing|s)?)\b"
_refusal_of_tools = compiled_on_use(
    rf"(?:not|n't|un)\s?support\w*[^.]{{0,60}}{_TOOLS}"  # Ollama, LiteLLM
    rf"|{_TOOLS}[^.]{{0,60}}(?:unsupported|not (?:yet )?(?:supported|permitted|allowed|available|enabled|implemented))"
    rf"|(?:unrecogni[sz]ed|unknown|unexpected|extra|additional)\b[^.]{{0,60}}\b(?:tools|tool_choice)\b"
    r"|tools: extra inputs"  # web frameworks
    r"|support tool use"  # OpenRouter
    r"|--enable-auto-tool-choice|--tool-call-parser|--jinja",  # vLLM, llama.cpp
    re.IGNORECASE,
)
_about_one_function = compiled_on_use(r"\btools?\W{1,4}\d|\bschemas?\b|\bfunction name\b", re.IGNORECASE)


def with_tool_calls(server: RemoteBackend, config: BackendConfig) -> ModelBackend:
    """Return a server whose models call functions as its configuration says."""
    if config.tool_calls == "native":
        return server
    return TextCalls(server, server.limits, always=config.tool_calls == "prompted")


class TextCalls(BackendWrapper):
    """Reads calls that a server leaves in the text; tells models in words how to call where it takes no functions.

    `always`: all models are told in words. Otherwise a server that refuses functions for a model is given none for it
    from then on.
    """

    def __init__(self, backend: ModelBackend, limits: AnswerLimits, *, always: bool) -> None:
        super().__init__(backend)
        self._limits = limits
        self._always = always
        self._prompted: set[str] = set()
        """Models whose server has refused functions."""
        self._talking: set[str] = set()
        """Models whose server has let them talk in the place of a call that they had to make."""
        self._unguided: set[str] = set()
        """Models whose server has refused a schema for a call that must be made."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        if self._always or request.model in self._prompted:
            return self._run_prompted(request, sink)
        if not request.tools:
            return self.backend.run(request, sink)
        if request.tool_choice == "required" or isinstance(request.tool_choice, dict):
            return self._run_forced(request, sink)
        return self._run_native(request, sink, NativeSink(sink, request, self._limits))

    async def _run_forced(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform a turn that must call: natively, and in words with a schema if the server does not see to it."""
        if request.model not in self._talking:
            try:
                await self._run_native(request, sink, ForcedSink(sink, request, self._limits))
            except NoCallError:
                logger.info(
                    "The backend '%s' has let the model '%s' answer without a call that it had to make; such turns are "
                    "told in words from now on, with a schema.",
                    self.name,
                    request.model,
                )
                _remember(self._talking, request.model)
            else:
                return
        await self._run_prompted(request, sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        if self._always or request.model in self._prompted:
            request = prompted(request, guided=False)
        return await self.backend.count_tokens(request)

    async def _run_native(self, request: ModelRequest, sink: TurnSink, reading: NativeSink | ForcedSink) -> None:
        try:
            await self.backend.run(request, reading)
        except APIError as error:
            if reading.begun or not refuses_tools(error, request.tools):
                raise
            logger.warning(
                "The backend '%s' takes no functions for the model '%s', which is told about them in words from now on:"
                " %s",
                self.name,
                request.model,
                error.message,
            )
        else:
            return
        _remember(self._prompted, request.model)
        await self._run_prompted(request, sink)

    async def _run_prompted(self, request: ModelRequest, sink: TurnSink) -> None:
        if not request.tools or request.tool_choice == "none":
            await self.backend.run(prompted(request, guided=False), sink)
            return
        guided = request.model not in self._unguided and forced_schema(request) is not None
        reading = PromptedSink(sink, request, self._limits)
        try:
            await self.backend.run(prompted(request, guided=guided), reading)
        except BadRequestError as error:
            if not guided or reading.begun or error.code == TOO_LONG:
                raise
        else:
            return
        await self.backend.run(prompted(request, guided=False), reading)
        _remember(self._unguided, request.model)  # it was the schema


def refuses_tools(error: APIError, tools: Sequence[JSON] = ()) -> bool:
    """Tell whether a server says that it takes no functions, for this model or at all.

    What is wrong with one of the functions is the client's business: the model would be told in words for all others.
    """
    message = error.message
    if _refusal_of_tools.search(message) is None or _about_one_function.search(message) is not None:
        return False
    return not any(f"{quote}{tool['name']}{quote}" in message for tool in tools for quote in "'\"`")


def _remember(models: set[str], model: str) -> None:
    if len(models) < MOST_MODELS:
        models.add(model)
