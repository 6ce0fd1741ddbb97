"""Hosted tools: how a function looks on the wire as a tool of the OpenAI API.

A tool is a small class: what a request may say of it are attributes, and the life of a call are four methods: `begin`,
`events`, `end`, and, for a call that a client sends back, `read_arguments` with `read_output`.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from typing_extensions import override

from antwort.errors import DefinitionError
from antwort.functions.results import ToolResult
from antwort.types import JSON

_ITEM = re.compile(r"(?=program$|.+_call$|.+_output$|.+:.)[a-zA-Z][a-zA-Z0-9_:.-]{0,63}")
"""Types of items that a request may have, too: what a client was given it can send back."""
SET_BY_SERVER = frozenset({"type", "sequence_number", "output_index", "item_id"})
"""Fields of an event that no tool sets."""


class HostedCall(msgspec.Struct, frozen=True, dict=True):
    """A call of a hosted tool, as the model has made it."""

    call_id: str
    name: str
    arguments: str
    """JSON, as the model has written it: nothing of it is checked when the call begins."""
    approval: str | None = None
    """The id of the approval that it was made after, if somebody was asked."""

    @functools.cached_property
    def decoded(self) -> JSON:
        """The arguments; empty if they are no JSON object."""
        try:
            value = msgspec.json.decode(self.arguments or "{}")
        except (msgspec.DecodeError, UnicodeError):
            return {}
        return value if isinstance(value, dict) else {}

    def text(self, name: str) -> str:
        """Return an argument that is a text; empty if there is none."""
        value = self.decoded.get(name)
        return value if isinstance(value, str) else ""


class ItemEvent(msgspec.Struct, frozen=True):
    """An event of an item: `response.<item type>.<kind>`, or `response.<item type>_<part>.<kind>` of a part of it."""

    kind: str
    data: Mapping[str, Any] = {}
    """Its fields besides `type`, `sequence_number`, `output_index` and `item_id`."""
    part: str | None = None
    names_item: bool = True
    """Whether it has an `item_id`."""

    def type_of(self, item_type: str) -> str:
        """Return the type of the event for an item."""
        return f"response.{item_type}.{self.kind}" if self.part is None else self._of_part(item_type)

    def _of_part(self, item_type: str) -> str:
        return f"response.{item_type}_{self.part}.{self.kind}"


_COMPLETED = (ItemEvent("completed"),)


class ItemEnd(msgspec.Struct, frozen=True):
    """What the items of a call say when it has ended."""

    fields: Mapping[str, Any] = {}
    """Fields of its item; those that it had and that are not named stay."""
    status: str | None = None
    """Of the item; None is `completed`, or what its type has for a failure."""
    events: Sequence[ItemEvent] | None = None
    """The last events of the item; None is `completed`, or nothing after a failure."""
    items: Sequence[Mapping[str, Any]] = ()
    """Further items, each with a `type` of `output_items`; their status is `completed` if they do not say it."""

    def events_after(self, *, failed: bool) -> Sequence[ItemEvent]:
        """Return the last events of the item."""
        if self.events is not None:
            return self.events
        return () if failed else _COMPLETED


class HostedTool:
    """A tool of the OpenAI API that a function answers: give one to `@function(hosted=…)`.

    class Weather(HostedTool):
        types = ("weather",)
        item = "weather_call"
        phases = ("in_progress", "searching")

        def begin(self, call):
            return {"place": call.text("place")}

    Override what is different. An exception in a method is logged and fails no response: the item goes without what the
    method would have said. `id`, `type` and `status` of an item are the server's.
    """

    types: tuple[str, ...] = ()
    """The tool types it answers in a request, such as `web_search` and `web_search_preview`."""
    item: str | None = None
    """The type of its output item; None for a function whose calls are shown like those of any other."""
    output_items: tuple[str, ...] = ()
    """The types of further items that `end` makes; they and the item have the same `call_id`."""
    phases: tuple[str, ...] = ()
    """The events `response.<item>.<phase>` before the call runs, in order."""
    arriving: Mapping[str, Any] = {}
    """Fields that `output_item.added` has with these values, since `events` tells how they arrive."""
    includes: Mapping[str, str] = {}
    """Fields of the item that only a request sees that asks for them: the value in `include`, and the field."""
    tool_defaults: Mapping[str, Any] = {}
    """What the echo of the tool has besides what the request said."""
    offered_with: tuple[str, ...] = ()
    """Functions that are offered with this one when a request names the type, with the same options."""
    narrows: tuple[str, ...] = ()
    """Optional arguments, lists of texts, that choose among what options of the same names list in the tool.

    A model is offered them only if there are several to choose among, and only these: it knows of no others.
    """
    only_named: bool = False
    """Whether it is one only for requests that name the type; for others it is a function like any other."""
    id_prefix: str | None = None
    """What ids of its items begin with; None makes it of the first letters of the type."""
    secrets: tuple[str, ...] = ()
    """Fields of the tool that nobody is told again, and that are stored nowhere but sealed."""
    opens: bool = False
    """Whether a tool of its types is no function itself, but stands for those that `Provider.open_tool` finds.

    A request may have several such tools, each with a `server_label` of its own.
    """

    def check(self, tool: Mapping[str, Any]) -> object:
        """Look at the tool as a request names it; a FunctionError or BadRequestError refuses the request."""

    def begin(self, call: HostedCall) -> Mapping[str, Any]:  # noqa: ARG002 - for those who override it, as below
        """Return the item's own fields as the call begins."""
        return {}

    def events(self, item: Mapping[str, Any]) -> Iterable[ItemEvent]:  # noqa: ARG002
        """Return the events that follow when the item was added; a function has more of them by `ctx.event`."""
        return map(ItemEvent, self.phases)

    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:  # noqa: ARG002
        """Return what the items say of the result, which may be a failure."""
        return ItemEnd(result.item)

    def read_arguments(self, item: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
        """Return the arguments of a call whose item a client sends back; None if it is another function's.

        They are what the item shows as `arguments`; an item that has none is not for the model.
        """
        shown = item.get("arguments")
        return shown if isinstance(shown, str) else None

    def read_output(self, item: Mapping[str, Any]) -> str | None:
        """Return what the model reads of the result, from the item that shows it: the second, if there are two.

        None is for one that does not show it. It is what the item has as `output`, a text or parts with texts.
        """
        output = item.get("output")
        if not isinstance(output, list):
            return output if isinstance(output, str) else None
        texts = [part.get("text") for part in output if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))


class OpenedFunction(msgspec.Struct, frozen=True):
    """One of the functions that a tool of a request stands for; its calls are made by the function that is the tool's.

    That one gets the arguments as a text, `arguments`, as the model has written them.
    """

    name: str
    """By which clients know it. Models do so too, if no other function of the request has that name."""
    label: str
    """The `server_label` of the tool."""
    description: str
    parameters: JSON
    tool: HostedTool
    """How its calls look."""
    options: Mapping[str, Any]
    """What its calls get as `ctx.options`."""
    approval: Literal["always", "never"] = "never"
    repeatable: bool = False
    """Whether a call may be made again after a crash."""
    resumes: bool = False
    """Whether the function that makes its calls is called again with those that were under way, and `ctx.attached`.

    It has to find out what came of them: they may have been made.
    """
    changed: bool = False
    """Whether it is described otherwise than when somebody was asked about a call of it: he is asked again then."""


class OpenedItem(msgspec.Struct, frozen=True):
    """An item that stands in the output before all that the model says."""

    fields: Mapping[str, Any]
    """All but its `id`; its `status` is `completed` if they do not say it."""
    id_prefix: str
    arriving: Mapping[str, Any] = {}
    """Fields that `output_item.added` has with these values."""
    events: Sequence[ItemEvent] = ()
    renews: bool = False
    """Whether it takes the place of an earlier one: a response that goes on after a pause shows it, too."""


class OpenedTool(msgspec.Struct, frozen=True):
    """What a tool of a request stands for."""

    functions: Sequence[OpenedFunction] = ()
    items: Sequence[OpenedItem] = ()
    deferred: bool | None = None
    """Whether models are to find the functions before they are offered them, if the request does not say it.

    None is for those that are only found where there are very many.
    """


def check_hosted(tool: object) -> None:
    """Raise DefinitionError unless what a tool says of itself can be used."""
    if not isinstance(tool, HostedTool):  # such as the class instead of an object
        example = f"{tool.__name__}()" if isinstance(tool, type) else "Hosted(types=('name',), item='name_call')"
        raise DefinitionError(f"`hosted` is a HostedTool, such as {example}, not {tool!r:.80}")
    name = type(tool).__name__
    if not tool.types or not _are_texts(tool.types):
        raise DefinitionError(f"{name} needs a tuple of tool types, such as types=('name', 'name_preview')")
    for field in ("phases", "offered_with", "narrows", "output_items", "secrets"):
        if not _are_texts(getattr(tool, field)):
            raise DefinitionError(f"{name}: `{field}` is a tuple of texts")
    for item in (tool.item, *tool.output_items):
        if item is not None and not _ITEM.fullmatch(str(item)):
            raise DefinitionError(
                f"{name}: '{item}' is no type of an item; one ends in _call or _output, such as 'tool_call', "
                "or has a colon, such as 'acme:tool'"
            )
    includes: object = tool.includes
    if not isinstance(includes, Mapping) or not _are_texts((*includes, *includes.values())):
        raise DefinitionError(f"{name}: `includes` maps a value of `include` to the field it shows, both texts")
    for field in ("tool_defaults", "arriving"):
        try:
            msgspec.json.encode(dict(getattr(tool, field)))
        except Exception as error:
            raise DefinitionError(f"{name}: `{field}` is no JSON object: {error}") from error


def _are_texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) for value in values)


# --- the declarative form, for functions that need no class of their own ---------------------------------------------


_Describe = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Hosted(HostedTool):
    """How a function shows itself as a hosted tool, said in options; see `HostedTool`, which can do more."""

    def __init__(  # noqa: PLR0917 - plug-ins may give them in this order
        self,
        types: tuple[str, ...],
        item: str | None = None,
        describe: _Describe | None = None,
        phases: tuple[str, ...] = (),
        streamed_field: str | None = None,
        includes: Mapping[str, str] | None = None,
        tool_defaults: Mapping[str, Any] | None = None,
        check: Callable[[Mapping[str, Any]], object] | None = None,
        companions: tuple[str, ...] = (),
        narrows: tuple[str, ...] = (),
        *,
        only_named: bool = False,
        output_item: str | None = None,
        output_field: str | None = None,
        output_fields: tuple[str, ...] = (),
        output_of_error: Callable[[str], Mapping[str, Any]] | None = None,
        read_arguments: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None,
        read_output: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        """Take the attributes of a `HostedTool`, and functions that stand for its methods.

        `describe` makes the item's own fields out of the arguments, `check` and the readers are as the methods.
        `streamed_field` is a text of the item that has events of its own after the first phase: `delta` and `done`.
        `output_item` is the type of a second item, with the result: as text in the only part of `output`, or in
        `output_field`, or as those `output_fields` of a result's item, which `output_of_error` makes of the text of a
        failure. `companions` are functions that are offered with this one.
        """
        self.types, self.item, self.phases = types, item, phases
        self.includes = {} if includes is None else includes
        self.tool_defaults = {} if tool_defaults is None else tool_defaults
        self.offered_with, self.narrows, self.only_named = companions, narrows, only_named
        self.output_items = () if output_item is None else (output_item,)
        if streamed_field is not None:
            self.arriving = {streamed_field: ""}
        self._describe, self._check = describe, check
        self._streamed = streamed_field
        self._output_field, self._output_fields, self._output_of_error = output_field, output_fields, output_of_error
        self._read_arguments, self._read_output = read_arguments, read_output
        if output_fields and output_of_error is None:
            raise DefinitionError("Hosted: `output_fields` needs `output_of_error`: calls may fail")
        check_hosted(self)

    @override
    def check(self, tool: Mapping[str, Any]) -> object:
        return None if self._check is None else self._check(tool)

    @override
    def begin(self, call: HostedCall) -> Mapping[str, Any]:
        fields = {} if self._describe is None else self._describe(call.decoded)
        if not self.output_items or self._output_fields or self._output_field is not None:
            return fields
        return {"arguments": call.arguments, **fields}

    @override
    def events(self, item: Mapping[str, Any]) -> list[ItemEvent]:
        events = [ItemEvent(phase) for phase in self.phases]
        field = self._streamed
        text = None if field is None else item.get(field)
        if field is not None and isinstance(text, str):
            told = [ItemEvent("delta", {"delta": text}, field)] if text else []
            events[1:1] = [*told, ItemEvent("done", {field: text}, field)]
        return events

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        if not self.output_items:
            return ItemEnd(result.item)
        given = result.item
        fields = {name: given[name] for name in given if name not in self._output_fields}
        whole = self._output_field is not None or bool(self._output_fields)
        status = "completed" if whole else None  # what came of the call is said by the second item
        second = {"type": self.output_items[0], **self._output(call, result)}
        return ItemEnd(fields, status, (), (second,))

    def _output(self, call: HostedCall, result: ToolResult) -> JSON:
        if self._output_fields:
            made = self._output_of_error
            given = made(result.output) if made is not None and result.is_error else result.item
            return {name: value for name, value in given.items() if name in self._output_fields}
        if self._output_field is not None:
            status = "incomplete" if result.is_error else "completed"
            return {"status": status, self._output_field: result.output}
        part: JSON = {"type": "output_text", "text": result.output, "annotations": [], "logprobs": []}
        described = {} if self._describe is None else self._describe(call.decoded)
        return {"output": [part], **{name: described[name] for name in described if name != "arguments"}}

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
        return super().read_arguments(item) if self._read_arguments is None else self._read_arguments(item)

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        if self._read_output is not None:
            return self._read_output(item)
        if self._output_field is not None:
            text = item.get(self._output_field)
            return text if isinstance(text, str) else None
        return super().read_output(item)
