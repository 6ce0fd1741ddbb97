"""The provider `variables`."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator
from typing_extensions import override

from antwort.provider import (
    Context,
    Counter,
    Field,
    FunctionError,
    GrepScanner,
    LargeWork,
    LineCounter,
    LineScanner,
    Provider,
    Reference,
    Variable,
    VariableScope,
    VariableView,
    fenced,
    function,
    parse_lines,
    scan,
    steady_mark,
    text_of,
    whole_characters,
)
from antwort.providers.variables.json_grammar import parse_path
from antwort.providers.variables.json_scanner import JsonScanner, NotJsonError
from antwort.providers.variables.resources import VariableResources
from antwort.providers.variables.routes import VariableRoutes, VariablesSettings

_MOST_NAMES = 30
_SAMPLES = 10
"""Parts of a value that is too large to be read."""


async def summarized(variables: VariableView, variable: Variable, length: int, work: LargeWork) -> Mapping[str, Any]:
    """Return a summary with `length` bytes of the value itself: most of them from its head, the rest from its tail."""
    summary: dict[str, Any] = {"key": variable.key, "kind": variable.kind, "size": variable.size}
    if variable.kind == "bytes":
        head = b"".join([chunk async for chunk in variables.read(variable, 0, 32)])
        return {**summary, "first_bytes": head.hex(" ")}
    if variable.kind == "json":
        summary["structure"] = await _structure(variables, variable, work)
    else:
        counter = LineCounter()
        await scan(variables.read(variable), counter, work)
        summary["lines"] = counter.lines
    split = variable.size if variable.size <= length else length * 2 // 3
    summary["head"] = await _read(variables, variable, 0, split)
    if split < variable.size:
        summary["tail"] = await _read(variables, variable, variable.size - (length - split), length)
    return summary


def instructions(length: int) -> str:
    """Return what a model is told that summarizes a value."""
    return (
        f"Summarize the text in at most {length} characters, for somebody who cannot see it: what it is, how it is "
        "organized, what matters in it. Say nothing that does not stand there."
    )


async def sampled(variables: VariableView, variable: Variable, most: int) -> str:
    """Return a text or, of one with more than `most` bytes, parts from all over it with their positions."""
    if variable.size <= most:
        return await _read(variables, variable, 0, variable.size)
    size, step = most // _SAMPLES, (variable.size - most // _SAMPLES) // (_SAMPLES - 1)
    starts = [number * step for number in range(_SAMPLES)]
    parts = [
        f"[at byte {start:,} of {variable.size:,}]\n{await _read(variables, variable, start, size)}" for start in starts
    ]
    return "\n\n".join(parts)


async def _read(variables: VariableView, variable: Variable, start: int, size: int) -> str:
    end = min(start + size, variable.size)
    data = b"".join([chunk async for chunk in variables.read(variable, start, end)])
    return text_of(data, from_start=start == 0, to_end=end == variable.size)


async def _structure(variables: VariableView, variable: Variable, work: LargeWork) -> str:
    """Tell what a JSON document consists of, without reading it into memory."""
    scanner = JsonScanner(["\0"], 0, counts=True)
    try:
        await scan(variables.read(variable), scanner, work)
    except NotJsonError as error:
        return f"no valid JSON: {error}"
    if scanner.names:
        shown = ", ".join(scanner.names[:_MOST_NAMES]) + (", …" if scanner.children > _MOST_NAMES else "")
        return f"object with {scanner.children:,} members: {shown}"
    return {"[": f"array of {scanner.children:,}", "{": "empty object"}.get(scanner.first, "a single value")


_SUMMARIES = 200
"""Summaries that are remembered."""
_LISTED = 50
_LONGEST_CHARACTER = 4
_MODEL_PATIENCE = 300.0
"""Seconds that a summary may take."""


def _name(key: Any) -> Any:
    """Read a key: a reference, also as the text or the object that one is written as, is the name that stands in it.

    A name gives nobody more than he has: whatever it says, the variable is looked for as one of the agent's.
    """
    if isinstance(key, str) and key.lstrip().startswith("{") and "$ref" in key[:20]:
        try:
            key = msgspec.json.decode(key)
        except msgspec.DecodeError:
            return key
    if isinstance(key, Reference):
        return key.name
    if isinstance(key, dict) and len(key) == 1 and isinstance(key.get("$ref"), str):
        return key["$ref"]
    return key


Key = Annotated[str, BeforeValidator(_name), Field(description="A key, or the id of a reference.")]

NewKey = Annotated[str, Field(min_length=1, max_length=256)]
Scope = Annotated[VariableScope, Field(description="Who sees it.")]


class VariablesProvider(Provider[VariablesSettings]):
    """Values by key, in scopes that agents share: of any size, read in parts, handed on by reference."""

    reads = Counter("reads_total", "Reads of variables, by how much was asked for.", ["part"])

    def __init__(self, settings: VariablesSettings | None = None) -> None:
        super().__init__(settings)
        self.parts = (VariableRoutes(self),)
        self.resources = (VariableResources(lambda: self.services.values),)
        self._summaries: OrderedDict[tuple[str, int, bool], Mapping[str, Any]] = OrderedDict()
        for part in ("start", "offset", "lines", "grep", "json_path"):
            self.reads.labels(part)  # so that each shows from the beginning

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self._work = LargeWork()
        try:
            yield
        finally:
            self._work.close()

    @function(references=("value",), spill=False, in_order=True)
    async def store_set(
        self,
        ctx: Context,
        key: NewKey,
        value: Annotated[Any, Field(description="Any JSON; a reference is kept without copying.")],
        scope: Scope = "agent",
        expires_in: Annotated[float | None, Field(gt=0, description="Seconds.")] = None,
    ) -> dict[str, Any]:
        """Store a variable. Returns its reference: {"$ref": id} stands for this value in any function's arguments."""
        expires_in = self._expiry(scope, expires_in)
        if isinstance(value, Reference):
            source = await ctx.variables.find(value.name)
            made = await ctx.variables.promote(source, key, scope=scope, expires_in=expires_in)
        else:
            made = await ctx.variables.set(key, value, scope=scope, expires_in=expires_in)
        return {**made.reference, "version": made.version, "size": made.size}

    @function(references=("key",), reads_references=True, spill=False, attach=True, in_order=True)
    async def store_get(
        self,
        ctx: Context,
        key: Key,
        *,
        offset: Annotated[int | None, Field(description="First byte; negative: from the end.")] = None,
        limit: Annotated[int | None, Field(ge=1, description="Bytes to return.")] = None,
        lines: Annotated[str | None, Field(description="Lines, such as 10-20.")] = None,
        grep: Annotated[str | None, Field(description="Only lines that match a regular expression.")] = None,
        json_path: Annotated[str | None, Field(description="A part of JSON, such as $.items[0].name.")] = None,
    ) -> str:
        """Retrieve a variable, or a part of it: by offset and limit, lines, grep or json_path."""
        parts = {"offset": offset, "lines": lines, "grep": grep, "json_path": json_path}
        asked = [name for name, part in parts.items() if part is not None]
        if len(asked) > 1:
            raise FunctionError(f"Ask for one part at a time, not for {' and '.join(asked)}.")
        variable = await ctx.variables.find(key)
        room = await ctx.room()
        most = min(limit or self.settings.max_read, self.settings.max_limit)
        most = most if room is None else min(most, room)
        self.reads.labels(asked[0] if asked else "start").inc()
        if variable.kind == "bytes" and not await self._is_text(ctx, variable):
            raise FunctionError(f"'{variable.key}' is binary ({variable.size:,} bytes): it cannot be read as text.")
        if lines is not None:
            return await self._lines(ctx, variable, lines, most)
        if grep is not None:
            return await self._grep(ctx, variable, grep, most)
        if json_path is not None:
            return await self._json_path(ctx, variable, json_path, most)
        return await self._part(ctx, variable, offset or 0, most)

    @function(references=("key",), spill=False, attach=True, in_order=True)
    async def store_ref(self, ctx: Context, key: Key) -> dict[str, Any]:
        """Get a reference handle to a variable as it is now. Give it to functions and agents in place of the value."""
        variable = await ctx.variables.find(key)
        return {**variable.reference, "key": variable.key, "kind": variable.kind, "size": variable.size}

    @function(spill=False, attach=True, in_order=True)
    async def store_list(
        self,
        ctx: Context,
        scope: VariableScope | None = None,
        after: Annotated[str | None, Field(description="Goes on after this id.")] = None,
        prefix: Annotated[str, Field(description="Only keys that begin with it.")] = "",
    ) -> str:
        """List all variables: key, kind, bytes, scope, id."""
        found = await ctx.variables.list(scope=scope, prefix=prefix, after=after, limit=_LISTED + 1)
        if not found:
            of_these = f" whose key begins with '{prefix[:80]}'" if prefix else ""
            return f"There are no variables{of_these}" + (" after that one." if after else "." if prefix else " yet.")
        shown = [f"{one.key}: {one.kind}, {one.size}, {one.scope}, {one.id}" for one in found[:_LISTED]]
        if len(found) > _LISTED:
            shown.append(f"… and more, after={found[_LISTED - 1].id}")
        return "\n".join(shown)

    @function(references=("key",), spill=False, attach=True, timeout=_MODEL_PATIENCE)
    async def store_summarize(
        self,
        ctx: Context,
        key: Key,
        length: Annotated[int, Field(ge=100, le=10_000, description="Characters of the summary.")] = 1000,
        with_model: Annotated[bool, Field(description="In words, by a model: slower.")] = False,
    ) -> Mapping[str, Any]:
        """Get a summary of a variable: its size, structure, head and tail, or what a model says of it."""
        variable = await ctx.variables.find(key)
        known = (variable.id, length, with_model)
        if known not in self._summaries:
            summarize = self._in_words if with_model else self._plainly
            self._summaries[known] = await summarize(ctx, variable, length)
            if len(self._summaries) > _SUMMARIES:
                self._summaries.popitem(last=False)
        self._summaries.move_to_end(known)
        return self._summaries[known]

    @function(spill=False, in_order=True, offer="on_request")  # five definitions are enough for those who ask for none
    async def store_append(
        self,
        ctx: Context,
        key: NewKey,
        value: Annotated[Any, Field(description="To a text, a text; to a JSON array, any element.")],
        scope: Scope = "agent",
    ) -> dict[str, Any]:
        """Append to a variable, or begin one: cheap however large it is. Returns its new reference."""
        made = await ctx.variables.append(key, value, scope=scope, expires_in=self._expiry(scope, None))
        return {**made.reference, "version": made.version, "size": made.size}

    @function(spill=False, attach=True, in_order=True, offer="on_request")
    async def store_delete(self, ctx: Context, key: NewKey, scope: Scope = "agent") -> dict[str, Any]:
        """Delete a variable, all versions: references to it lead nowhere then."""
        if not await ctx.variables.delete(key, scope=scope) and not ctx.attached:  # else it was deleted before a crash
            found = await ctx.variables.find(key)
            if found.id == key:
                raise FunctionError(f"Delete it by its key: this is a version of '{found.key}', scope '{found.scope}'.")
            raise FunctionError(
                f"There is no variable '{found.key}' in the scope '{scope}', but one in the scope '{found.scope}'."
            )
        return {"key": key, "scope": scope, "deleted": True}

    async def _plainly(self, ctx: Context, variable: Variable, length: int) -> Mapping[str, Any]:
        return await summarized(ctx.variables, variable, length, self._work)

    async def _in_words(self, ctx: Context, variable: Variable, length: int) -> Mapping[str, Any]:
        if variable.kind == "bytes":
            raise FunctionError(f"'{variable.key}' is binary: a model cannot read it.")
        shown = await sampled(ctx.variables, variable, self.settings.max_summarized)
        prompt = fenced(shown, "a variable", mark=steady_mark(shown))  # the same one, should the call begin again
        answer = await ctx.call_model(prompt, instructions=instructions(length))
        if not answer.is_answer:
            raise FunctionError(f"The model gave no summary: {answer.reason or answer.status}. Try it without a model.")
        return {"key": variable.key, "kind": variable.kind, "size": variable.size, "summary": answer.text[: 2 * length]}

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _part(self, ctx: Context, variable: Variable, offset: int, most: int) -> str:
        size = variable.size
        start = min(max(offset + size if offset < 0 else offset, 0), size)
        end = min(start + max(most, _LONGEST_CHARACTER), size)
        data = b"".join([chunk async for chunk in ctx.variables.read(variable, start, end)])
        lead, data = whole_characters(data, from_start=start == 0, to_end=end == size)
        start += lead
        end = start + len(data)
        text = data.decode(errors="replace")
        if start == 0 and end == size:
            return text
        following = "" if end == size else f"; go on with offset={end}"
        return f"[bytes {start}-{end} of {size}{following}]\n{text}"

    async def _lines(self, ctx: Context, variable: Variable, lines: str, most: int) -> str:
        first, last = parse_lines(lines)
        scanner = LineScanner(first, last, most)
        await scan(ctx.variables.read(variable), scanner, self._work)
        if not scanner.text() and scanner.line < first:
            raise FunctionError(f"'{variable.key}' has only {scanner.line:,} lines.")
        return scanner.text() + ("\n[… cut; ask for fewer lines …]" if scanner.is_cut else "")

    async def _grep(self, ctx: Context, variable: Variable, pattern: str, most: int) -> str:
        scanner = GrepScanner(pattern, most)
        await scan(ctx.variables.read(variable), scanner, self._work)
        if not scanner.count:
            return f"No line matches '{pattern[:80]}'."
        more = scanner.count - len(scanner.shown)
        return "\n".join(scanner.shown) + (f"\n[… {more} more …]" if more else "")

    async def _json_path(self, ctx: Context, variable: Variable, path: str, most: int) -> str:
        scanner = JsonScanner(parse_path(path), most)
        try:
            await scan(ctx.variables.read(variable), scanner, self._work)
        except NotJsonError as error:
            raise FunctionError(f"'{variable.key}' is no valid JSON: {error}.") from None
        if not scanner.found:
            members = f" It has {', '.join(scanner.names[:20])}." if scanner.names else ""
            raise FunctionError(f"Nothing in '{variable.key}' is at {path[:80]}.{members}")
        cut = "\n[… cut …]" if scanner.is_cut else ""
        if scanner.is_single:
            return _part_text(scanner.found[0]) + cut
        return f"[{','.join(part.decode(errors='replace') for part in scanner.found)}]{cut}"

    async def _is_text(self, ctx: Context, variable: Variable) -> bool:
        """Tell whether bytes begin like a text."""
        head = b"".join([chunk async for chunk in ctx.variables.read(variable, 0, 1024)])
        return b"\0" not in head and "\ufffd" not in text_of(head, from_start=True, to_end=variable.size <= 1024)

    def _expiry(self, scope: VariableScope, expires_in: float | None) -> float | None:
        return self.settings.expires_in if expires_in is None and scope == "tenant" else expires_in


def _part_text(part: bytes) -> str:
    """Return a part of JSON; of a string, what it says."""
    if part.startswith(b'"'):
        try:
            return str(msgspec.json.decode(part))
        except ValueError:  # it is cut
            pass
    return part.decode(errors="replace")
