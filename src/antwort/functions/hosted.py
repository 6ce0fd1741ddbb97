"""The declarative form of a hosted tool, for functions that need no class of their own."""

from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import override

from antwort.errors import DefinitionError
from antwort.functions.hosted_tool import HostedCall, HostedTool, ItemEnd, ItemEvent, check_hosted
from antwort.functions.results import ToolResult
from antwort.types import JSON

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
