"""What a step of a script may expect of the request it answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antwort.backends.base import ModelRequest
from antwort.errors import DefinitionError, did_you_mean

Fields = Mapping[str, Any]
_FIELDS = frozenset(ModelRequest.__struct_fields__)
_LONGEST = 200
_IDS = frozenset({"id", "call_id"})
"""Keys whose values are no texts: random digits would be found in them now and then."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Properties that a request must have; made by `matching`."""

    tools: tuple[str, ...] = ()
    without_tools: tuple[str, ...] = ()
    last: str | Fields | None = None
    text: str | None = None
    types: tuple[str, ...] | None = None
    fields: Fields = field(default_factory=dict)

    def mismatches(self, request: ModelRequest) -> list[str]:
        """Say in which way a request is not as expected; an empty list if it is."""
        offered = [str(tool.get("name")) for tool in request.tools]
        found = [f"tools: expected '{name}' among {_excerpt(offered)}" for name in self.tools if name not in offered]
        found += [f"without_tools: '{name}' is offered" for name in self.without_tools if name in offered]
        last = request.items[-1] if request.items else {}
        if self.last is not None and not _has(last, self.last):
            found.append(f"last: expected {_excerpt(self.last)} in {_excerpt(last)}")
        if self.text is not None and not any(_has(item, self.text) for item in request.items):
            found.append(f"text: expected {_excerpt(self.text)} in {_excerpt(list(request.items))}")
        types = [item.get("type", "message") for item in request.items]
        if self.types is not None and types != list(self.types):
            found.append(f"types: expected {_excerpt(list(self.types))}, got {_excerpt(types)}")
        return found + self._field_mismatches(request)

    def _field_mismatches(self, request: ModelRequest) -> list[str]:
        return [
            f"{name}: expected {_excerpt(wanted)}, got {_excerpt(value)}"
            for name, wanted in self.fields.items()
            if (value := getattr(request, name)) != wanted
        ]


Matcher = Expectation | Callable[[ModelRequest], object]
"""What `expect` and `by` take: the result of `matching`, or a function that returns False or fails an assertion."""


def matching(
    *,
    tools: Sequence[str] = (),
    without_tools: Sequence[str] = (),
    last: str | Fields | None = None,
    text: str | None = None,
    types: Sequence[str] | None = None,
    **fields: Any,
) -> Expectation:
    """Describe a request, for `expect` and `by` of a step.

    tools           names of functions that must be offered to the model
    without_tools   names that must not be offered
    last            a text in the last item, or a mapping of keys the last item must have with these values
    text            a text in any item
    types           the types of all items, in order
    Any other keyword is a field of `ModelRequest` and its exact value: `model`, `tool_choice`, `temperature`, …
    """
    for name in fields:
        if name not in _FIELDS:
            hint = did_you_mean(name, _FIELDS | {"tools", "without_tools", "last", "text", "types"})
            raise DefinitionError(f"a request has no '{name}'{hint or '; use a field of ModelRequest'}")
    expected = tuple(types) if types is not None else None
    return Expectation(tuple(tools), tuple(without_tools), last, text, expected, fields)


def mismatches(matcher: Matcher, request: ModelRequest) -> list[str]:
    """Say in which way a request does not fit a matcher; an empty list if it does."""
    if isinstance(matcher, Expectation):
        return matcher.mismatches(request)
    try:
        fits = matcher(request)
    except AssertionError as error:
        return [str(error) or f"an assertion in {_name(matcher)} failed"]
    except Exception as error:  # noqa: BLE001 (a matcher that trips over the request does not fit it, and says so)
        return [f"{_name(matcher)} raised {error!r}"]
    return [f"{_name(matcher)} returned False"] if fits is False else []


def described(request: ModelRequest) -> str:
    """Return a request in one line."""
    tools = ", ".join(str(tool.get("name")) for tool in request.tools) or "none"
    last = _excerpt(request.items[-1]) if request.items else "nothing"
    return f"model '{request.model}', tools {tools}, {len(request.items)} items, the last {last}"


def _has(item: Fields, wanted: str | Fields) -> bool:
    if isinstance(wanted, str):
        return any(wanted in text for text in _texts(item))
    return all(key in item and item[key] == value for key, value in wanted.items())


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() if key not in _IDS for text in _texts(inner)]
    if isinstance(value, Sequence):
        return [text for inner in value for text in _texts(inner)]
    return []


def _excerpt(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _name(matcher: Callable[..., object]) -> str:
    return getattr(matcher, "__name__", repr(matcher))
