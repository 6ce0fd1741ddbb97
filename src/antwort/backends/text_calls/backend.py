"""A backend whose models call functions, whatever their server makes of it."""

import logging
import re
from collections.abc import Coroutine, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from antwort.backends.base import BackendWrapper, ModelBackend, ModelRequest, ToolDefinitions, TurnSink
from antwort.backends.http.remote import RemoteBackend
from antwort.backends.http.transport import AnswerLimits
from antwort.backends.text_calls.sinks import ForcedSink, NativeSink, NoCallError, PromptedSink
from antwort.config import BackendConfig
from antwort.errors import APIError, BadRequestError
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, as_function

logger = logging.getLogger(__name__)


_HOW = """\
You can call functions. These are the functions, as JSON:
[{tools}]

To call a function, write its name and its arguments as JSON between <tool_call> and </tool_call>, like this:
<tool_call>
{{"name": "name_of_the_function", "arguments": {{"parameter": "value"}}}}
</tool_call>
{number} The results are given to you in the next message, between <tool_response> and </tool_response>. Never write \
results yourself. If you need no function, answer in plain words."""
_SEVERAL = "You may write several calls, one after the other; then stop."
_ONE = "Write one call only, then stop."
_MUST = "Now you must call one of the functions: answer with nothing but the call."
_MUST_NAMED = "Now you must call the function {name}: answer with nothing but the call."
_mark = compiled_on_use(r"<(?=\s*/?\s*tool_response)", re.IGNORECASE)
_FORMAT = "When you answer without a call, answer with nothing but JSON{schema}."


def prompted(request: ModelRequest, *, guided: bool) -> ModelRequest:
    """Return a turn with the functions and what was called in words.

    `guided`: a choice that leaves the model nothing but a call is also given as the schema of the answer.
    """
    items = plain_items(request.items)
    if not request.tools or request.tool_choice == "none":
        return replace(request, items=items, tools=(), tool_choice=None, parallel_tool_calls=None)
    told = [request.instructions] if request.instructions else []
    told.append(_instructions(request))
    schema = forced_schema(request) if guided else None
    return replace(
        request,
        items=items,
        instructions="\n\n".join(told),
        tools=(),
        tool_choice=None,
        parallel_tool_calls=None,
        text_format=None if schema is None else {"type": "json_schema", "name": "function_call", "schema": schema},
    )


def _instructions(request: ModelRequest) -> str:
    tools = request.tools
    if not isinstance(tools, ToolDefinitions):
        tools = ToolDefinitions(tools)
    described = b",\n".join(bytes(part) for part in tools.encoded(_described)).decode()
    number = _ONE if request.parallel_tool_calls is False else _SEVERAL
    words = [_HOW.format(tools=described, number=number)]
    name = _forced_name(request)
    if name is not None:
        words.append(_MUST_NAMED.format(name=name))
    elif request.tool_choice == "required":
        words.append(_MUST)
    words += _format_words(request.text_format)
    return "\n\n".join(words)


def _described(tool: JSON) -> JSON:
    described: JSON = {"name": tool["name"]}
    if tool.get("description"):
        described["description"] = tool["description"]
    return described | {"parameters": _parameters(tool)}


def _parameters(tool: JSON) -> JSON:
    return tool.get("parameters") or {"type": "object", "properties": {}}


def _forced_name(request: ModelRequest) -> str | None:
    choice = request.tool_choice
    return str(choice.get("name")) if isinstance(choice, dict) else None


def _format_words(text_format: JSON | None) -> list[str]:
    """Return what a model is told about the form of its answer, which no server can enforce while it may call."""
    kind = None if text_format is None else text_format.get("type")
    if text_format is None or kind not in {"json_object", "json_schema"}:
        return []
    schema = msgspec.json.encode(text_format.get("schema")).decode() if kind == "json_schema" else ""
    return [_FORMAT.format(schema=f" that fits this schema: {schema}" if schema else "")]


# --- a choice that leaves nothing but a call -------------------------------------------------------------------------


def forced_schema(request: ModelRequest) -> JSON | None:
    """Return the schema of the calls that a turn must end with; None if it need not."""
    name = _forced_name(request)
    if name is None and request.tool_choice != "required":
        return None
    calls = [_call_schema(tool) for tool in request.tools if name is None or tool["name"] == name]
    if not calls:
        return None
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _call_schema(tool: JSON) -> JSON:
    parameters = _parameters(tool)
    if b'"$ref"' in msgspec.json.encode(parameters):  # which would point elsewhere here
        parameters = {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["name"]}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


# --- what was called before ------------------------------------------------------------------------------------------


def plain_items(items: Sequence[JSON]) -> list[JSON]:
    """Return items with calls as words of the assistant, and their outputs as messages of the user.

    Outputs that follow each other are one message: templates of many models want the two to alternate.
    """
    plain: list[JSON] = []
    names: dict[Any, str] = {}
    for are_outputs, group in groupby(items, _is_output):
        if are_outputs:
            plain.append(_results([as_function(item) for item in group], names))
            continue
        for item in group:
            if item.get("type") in CALLS:
                call = as_function(item)
                names[call.get("call_id")] = str(call.get("name"))
                content = [{"type": "output_text", "text": _call_text(call), "annotations": []}]
                plain.append({"type": "message", "role": "assistant", "content": content})
            else:
                plain.append(item)
    return plain


def _is_output(item: JSON) -> bool:
    return item.get("type") in OUTPUTS


def _call_text(call: JSON) -> str:
    arguments = call.get("arguments")
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    name = msgspec.json.encode(str(call.get("name"))).decode()
    return f'<tool_call>\n{{"name": {name}, "arguments": {written.strip() or "{}"}}}\n</tool_call>'


def _results(outputs: Sequence[JSON], names: Mapping[Any, str]) -> JSON:
    """Return the outputs of calls as one message; as one text unless there are images or files in it.

    An output that has the mark of its own end in it could go on as the user.
    """
    parts: list[JSON] = []
    for output in outputs:
        content = output.get("output")
        name = names.get(output.get("call_id"), "function")
        parts.append(_text(f'<tool_response name="{name}">\n'))
        parts += map(_unmarked, content if isinstance(content, list) else [_text(str(content or ""))])
        parts.append(_text("\n</tool_response>\n"))
    if all(part.get("type") == "input_text" for part in parts):
        parts = [_text("".join(str(part.get("text")) for part in parts).rstrip())]
    return {"type": "message", "role": "user", "content": parts}


def _unmarked(part: JSON) -> JSON:
    """Return a part of an output whose text neither begins nor ends a result."""
    if part.get("type") != "input_text":
        return part
    return {**part, "text": _mark.sub("< ", str(part.get("text")))}


def _text(text: str) -> JSON:
    return {"type": "input_text", "text": text}


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
        choice = request.tool_choice
        if choice is not None and (choice == "required" or isinstance(choice, dict)):
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
