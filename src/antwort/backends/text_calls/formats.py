"""The ways in which models write calls of functions as text, and how each is read.

What is decided about the beginning of a text holds whatever follows: so it does not matter how a text was split.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON

Offered = Mapping[str, JSON]
"""The functions that may be called: their parameters, by name."""


class TextCall(NamedTuple):
    """A call as a model wrote it; arguments that are no JSON are passed on, so that the model is told."""

    name: str
    arguments: str


class TextBlock(NamedTuple):
    """A part of a text that is decided: the calls in it, or text if there are none."""

    end: int
    calls: tuple[TextCall, ...] = ()


# --- where a call may begin ------------------------------------------------------------------------------------------

_CLOSERS = {
    "<tool_call>": "</tool_call>",  # Hermes, Qwen
    "<function_call>": "</function_call>",
    "<|tool_call|>": "",  # Granite
    "<|python_tag|>": "",  # Llama
    "[TOOL_CALLS]": "",  # Mistral
}
_FUNCTION, _FUNCTION_END = "<function=", "</function>"  # Llama, Qwen Coder
_FENCES = ("json", "tool_call", "tool_calls", "function_call")
_KEYS = frozenset({"arguments", "function", "id", "name", "parameters", "tool", "tool_calls", "type"})
"""What a JSON object that is a call begins with."""

BEGINNINGS = "<[`{"
"""The characters that a call can begin with."""

_fence = compiled_on_use(r"```[ \t]*(\w*)\s*")
_function_tag = compiled_on_use(r"<function=([\w.-]{1,128})>")
_begun_function_tag = compiled_on_use(r"<function=[\w.-]{0,128}")
_named = compiled_on_use(r"\s*([\w.-]{1,128})\s*(?:\[ARGS\])?\s*(?=\{)")
_begun_named = compiled_on_use(r"\s*[\w.-]{0,128}\s*(?:\[(?:A(?:R(?:G(?:S\]?)?)?)?)?)?\s*")
_head = compiled_on_use(r'(?:\[\s*)?\{\s*"(\w*)"\s*:')
_begun_head = compiled_on_use(r'(?:\[\s*)?(?:\{\s*(?:"\w*(?:"\s*)?)?)?')
_blank = compiled_on_use(r"\s*")
_between = compiled_on_use(r"[\s,;]*")


def read_block(text: str, start: int, offered: Offered, *, fresh: bool, ended: bool) -> TextBlock | None:
    """Read what begins at a place; None if more of the text is needed.

    Bare JSON is looked at only if it is `fresh`: the first on its line. `ended`: nothing follows the text.
    """
    if text[start] == "`":
        return _read_fence(text, start, offered, ended=ended)
    if text.startswith(_FUNCTION, start):
        return _read_function(text, start, offered, ended=ended)
    for opener, closer in _CLOSERS.items():
        if text.startswith(opener, start):
            return _read_tagged(text, start + len(opener), closer, offered, ended=ended)
    if not ended and any(opener.startswith(text[start:]) for opener in (*_CLOSERS, _FUNCTION)):
        return None
    if fresh and text[start] in "{[":
        return _read_bare(text, start, offered, ended=ended)
    return TextBlock(start + 1)


def _read_bare(text: str, start: int, offered: Offered, *, ended: bool) -> TextBlock | None:
    likely = _may_call(text, start, ended=ended)
    if likely is None:
        return None
    if not likely:
        return TextBlock(start + 1)
    end, _ = _json_end(text, start, "", ended=ended)
    return None if end is None else TextBlock(end, _calls_in(text[start:end], offered, explicit=False))


def _read_fence(text: str, start: int, offered: Offered, *, ended: bool) -> TextBlock | None:
    if len(text) - start < 3 and "```".startswith(text[start:]) and not ended:
        return None
    found = _fence.match(text, start)
    if found is None:
        return TextBlock(start + 1)
    opened = found.end()
    if opened == len(text) and not ended:
        return None if any(name.startswith(found[1]) for name in _FENCES) else TextBlock(start + 3)
    if (found[1] and found[1] not in _FENCES) or text[opened : opened + 1] not in {"{", "["}:
        return TextBlock(start + 3)
    likely = _may_call(text, opened, ended=ended)
    if likely is None:
        return None
    return _read_values(text, opened, "```", offered, explicit=False, ended=ended) if likely else TextBlock(opened + 1)


def _read_tagged(text: str, start: int, closer: str, offered: Offered, *, ended: bool) -> TextBlock | None:
    begin = _end_of(_blank, text, start)
    if begin == len(text) and not ended:
        return None
    if text.startswith(("{", "["), begin):
        return _read_values(text, begin, closer, offered, explicit=True, ended=ended)
    if closer:
        if text.startswith(_FUNCTION, begin):
            inner = _read_function(text, begin, offered, ended=ended)
            return inner if inner is None else _closed(text, inner.end, closer, inner.calls, ended=ended)
        return None if not ended and _FUNCTION.startswith(text[begin:]) else TextBlock(start)
    return _read_named(text, start, offered, ended=ended)


def _read_named(text: str, start: int, offered: Offered, *, ended: bool) -> TextBlock | None:
    """Read a call whose name stands before its arguments."""
    found = _named.match(text, start)
    if found is None:
        return None if not ended and _begun_named.fullmatch(text, start) else TextBlock(start)
    end, _ = _json_end(text, found.end(), "", ended=ended)
    if end is None:
        return None
    return TextBlock(end, (TextCall(found[1], text[found.end() : end]),) if found[1] in offered else ())


def _read_function(text: str, start: int, offered: Offered, *, ended: bool) -> TextBlock | None:
    found = _function_tag.match(text, start)
    if found is None:
        return None if not ended and _begun_function_tag.fullmatch(text, start) else TextBlock(start + 1)
    if found[1] not in offered:
        return TextBlock(found.end())
    begin = _end_of(_blank, text, found.end())
    if begin == len(text) and not ended:
        return None
    return _read_function_body(text, begin, found[1], offered[found[1]], ended=ended)


def _read_function_body(text: str, begin: int, name: str, parameters: JSON, *, ended: bool) -> TextBlock | None:
    if text.startswith("{", begin):
        end, _ = _json_end(text, begin, _FUNCTION_END, ended=ended)
        if end is None:
            return None
        return _closed(text, end, _FUNCTION_END, (TextCall(name, text[begin:end]),), ended=ended)
    end = text.find(_FUNCTION_END, begin)
    if end < 0 and not ended:
        return None
    body = text[begin:end] if end >= 0 else text[begin:]
    call = TextCall(name, _tagged_arguments(body, parameters))
    return TextBlock(end + len(_FUNCTION_END) if end >= 0 else len(text), (call,))


def _read_values(
    text: str, start: int, closer: str, offered: Offered, *, explicit: bool, ended: bool
) -> TextBlock | None:
    """Read JSON values up to what closes them. All of them must be calls."""
    calls: list[TextCall] = []
    are_calls = True
    while True:
        end, whole = _json_end(text, start, closer, ended=ended)
        if end is None:
            return None
        found = _calls_in(text[start:end], offered, explicit=explicit)
        calls += found
        are_calls = are_calls and bool(found)
        following = _end_of(_between, text, end)
        if closer and following == len(text) and not ended:
            return None
        if not (closer and whole and text.startswith("{", following)):
            return _closed(text, end, closer, tuple(calls) if are_calls else (), ended=ended)
        start = following


def _closed(text: str, end: int, closer: str, calls: tuple[TextCall, ...], *, ended: bool) -> TextBlock | None:
    """Return a block with what closes it, if that is there: some models forget it, some close brackets twice."""
    if not closer:
        return TextBlock(end, calls)
    following = end
    while following < len(text) and text[following] in " \t\r\n}]":
        following += 1
    if text.startswith(closer, following):
        return TextBlock(following + len(closer), calls)
    if not ended and closer.startswith(text[following:]):
        return None
    return TextBlock(end, calls)


def _may_call(text: str, start: int, *, ended: bool) -> bool | None:
    """Tell by its first key whether JSON may be a call; None if that is not known yet."""
    found = _head.match(text, start)
    if found is not None:
        return found[1] in _KEYS
    return None if not ended and _begun_head.fullmatch(text, start) else False


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


# --- JSON ------------------------------------------------------------------------------------------------------------

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_tokens = {
    closer: compiled_on_use(rf"{_STRING}|[\"{{}}\[\]]" + (f"|{re.escape(closer)}" if closer else ""), re.DOTALL)
    for closer in ("", "```", _FUNCTION_END, *_CLOSERS.values())
}
_name_in = compiled_on_use(r'"(?:name|function|tool)"\s*:\s*"([\w.-]+)"')
_arguments_in = compiled_on_use(r'"(?:arguments|parameters)"\s*:\s*')
_parameter = compiled_on_use(
    r"<parameter=([\w.-]+)>(.*?)(?:</parameter>|(?=<parameter=)|\Z)",
    re.DOTALL,
)


def _json_end(text: str, start: int, closer: str, *, ended: bool) -> tuple[int | None, bool]:
    """Return where the JSON that begins at a place ends, and whether its brackets are closed; None if that is to come.

    What closes the block around it ends it as well, unless it stands in a string.
    """
    depth = 0
    for token in _tokens[closer].finditer(text, start):
        match token[0]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if depth == 0:
                    return token.end(), True
            case '"':
                break  # a string that is still open
            case other if other == closer:
                return token.start(), False
    if not ended:
        return None, False
    cut = text.find(closer, start) if closer else -1
    return (cut if cut >= 0 else len(text)), False


def _calls_in(raw: str, offered: Offered, *, explicit: bool) -> tuple[TextCall, ...]:
    """Return the calls that JSON stands for; none unless all of them are of functions that are offered.

    `explicit`: the model has marked it as a call, so it need not have arguments.
    """
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _broken_call(raw, offered)
    entries = value if isinstance(value, list) else [value]
    if len(entries) == 1 and isinstance(entries[0], dict) and isinstance(entries[0].get("tool_calls"), list):
        entries = entries[0]["tool_calls"]
    calls = [_call(entry, offered, explicit=explicit) for entry in entries]
    return tuple(call for call in calls if call is not None) if all(calls) else ()


def _call(entry: Any, offered: Offered, *, explicit: bool) -> TextCall | None:
    if not isinstance(entry, dict):
        return None
    if isinstance(entry.get("function"), dict):
        entry = entry["function"]
    name = next((entry[key] for key in ("name", "function", "tool") if isinstance(entry.get(key), str)), None)
    key = next((key for key in ("arguments", "parameters") if key in entry), None)
    if name is None or name not in offered or not (explicit or key):
        return None
    arguments = entry[key] if key else None
    if isinstance(arguments, str):
        return TextCall(name, arguments)
    return TextCall(name, msgspec.json.encode(arguments or {}).decode())


def _broken_call(raw: str, offered: Offered) -> tuple[TextCall, ...]:
    """Return what is meant for a call and is no JSON: what stands in the place of the arguments goes with it."""
    name, arguments = _name_in.search(raw), _arguments_in.search(raw)
    if name is None or arguments is None or name[1] not in offered:
        return ()
    return (TextCall(name[1], raw[arguments.end() :].rstrip()),)


def _tagged_arguments(body: str, parameters: JSON) -> str:
    """Return arguments of `<parameter=key>value</parameter>` as JSON; anything else as it is."""
    if not body.strip():
        return "{}"
    found = _parameter.findall(body)
    if not found:
        return body.strip()
    properties = parameters.get("properties")
    types = properties if isinstance(properties, dict) else {}
    return msgspec.json.encode({key: _typed(value, types.get(key)) for key, value in found}).decode()


def _typed(value: str, schema: Any) -> Any:
    text = value.removeprefix("\n").removesuffix("\n")
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
