"""One line for each thing that is wrong: which key, why, and what would be right."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from antwort.config.origins import DEFAULT, Origin, join
from antwort.config.secrets import MASK, is_secret_collection, is_secret_name, mask_urls
from antwort.config.settings import is_secret_type, known_keys, types_at
from antwort.errors import ConfigError, did_you_mean

_KINDS = ("file", "environment", "flag", "default")
_LONGEST_VALUE = 80
_PLAIN = {
    "missing": "required, but not given",
    "extra_forbidden": "unknown key",
    "model_type": "input should be a mapping",
    "model_attributes_type": "input should be a mapping",
    "dict_type": "input should be a mapping",
}
_PLAIN_PATTERNS = {
    "^https?://": "must begin with http:// or https://",
    "^(https?://|demo$)": "must begin with http:// or https://",
}
_ELSEWHERE = {"model_list": "a list of LiteLLM; here model servers stand below 'backends', with `models` and `aliases`"}
"""Keys of the configurations of others, and what they are here."""


class Problem(Struct, frozen=True):
    """Something wrong with the value of a key, or with the whole source if the key is empty."""

    key: str
    message: str
    origin: Origin = DEFAULT

    def error(self) -> ConfigError:
        """Return the problem as an error that can be raised."""
        where = None if self.origin.kind == "default" else str(self.origin)
        return ConfigError(f"{self.key}: {self.message}" if self.key else self.message, where=where)


def raised(problems: Iterable[Problem]) -> ConfigError:
    """Return the first problem, in the order of the file, as an error that holds all of them."""
    ordered = sorted(problems, key=lambda problem: (_KINDS.index(problem.origin.kind), problem.origin.line or 0))
    errors = [problem.error() for problem in ordered]
    errors[0].problems = tuple(errors)
    return errors[0]


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    raw: Mapping[str, Any],
    *,
    prefix: str = "",
    origin_of: Callable[[str], Origin],
    also_known: Sequence[str] = (),
) -> list[Problem]:
    """Translate what pydantic found in a raw mapping; `also_known` are names to suggest beside the model's own."""
    found: dict[str, Problem] = {}
    branches: set[str] = set()
    for details in error.errors(include_url=False):
        path, in_union = _path(details["loc"], model, raw)
        key = join(prefix, *path)
        # What is missing was given nowhere, unlike what stands beside it.
        origin = origin_of(join(prefix, *path[:-1]) if details["type"] == "missing" else key)
        message = _message(details, path, model, origin, also_known)
        if in_union:
            branches.add(key)
        if key in found and message not in found[key].message:
            message = f"{found[key].message}, or {message}"
        found[key] = Problem(key, message, origin)
    # Of a union, the branch that got furthest is the one that was meant.
    return [
        problem
        for key, problem in found.items()
        if not (key in branches and any(other.startswith(f"{key}.") for other in branches))
    ]


def _path(location: Iterable[str | int], model: type[BaseModel], raw: Any) -> tuple[list[str | int], bool]:
    """Return the keys of a location without the names of union members that pydantic mixes in, and whether it did."""
    path: list[str | int] = []
    in_union = False
    current = raw
    for part in location:
        if _holds(current, part):
            path.append(part)
            current = current[part]
        elif part in known_keys(types_at(model, path)):
            path.append(part)
            current = None
        else:
            in_union = True
    return path, in_union


def _holds(container: Any, part: str | int) -> bool:
    if isinstance(container, list | tuple):
        return isinstance(part, int) and part < len(container)
    return isinstance(container, Mapping) and part in container


def _message(
    details: ErrorDetails,
    path: Sequence[str | int],
    model: type[BaseModel],
    origin: Origin,
    also_known: Sequence[str],
) -> str:
    kind, value = details["type"], details["input"]
    if kind in {"secret_file", "extension"}:
        return details["msg"]
    if kind == "extra_forbidden" and len(path) == 1 and str(path[0]) in _ELSEWHERE:
        return f"{_PLAIN[kind]}: it is {_ELSEWHERE[str(path[0])]}"
    if kind == "extra_forbidden":
        known = [*known_keys(types_at(model, path[:-1])), *(also_known if len(path) == 1 else ())]
        return _PLAIN[kind] + did_you_mean(str(path[-1]), known)
    text = _reason(details)
    secret = _is_hidden(path, model, origin)
    text = text.replace(value, MASK) if secret and isinstance(value, str) and value else mask_urls(text)
    if kind != "missing" and not secret:
        text += _given_value(value)
    return text + _cure(kind, value, origin)


def _reason(details: ErrorDetails) -> str:
    """Return why a value is refused, in our words where pydantic's are not for operators."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "too_short" and isinstance(value, str):  # pydantic counts a secret like a list
        least = context.get("min_length", 1)
        return f"must have at least {least} character{'s' if least != 1 else ''}"
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", details["msg"]))
    plain = _PLAIN.get(kind) or _PLAIN_PATTERNS.get(context.get("pattern", ""))
    return plain or details["msg"][:1].lower() + details["msg"][1:]


def _given_value(value: Any) -> str:
    """Return ` (got 70000)` for a scalar; lists and mappings are not shown, for they may hold secrets."""
    if isinstance(value, str):
        value = mask_urls(value)
    elif not (value is None or isinstance(value, bool | int | float)):
        return ""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f" (got {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '…'})"


def _cure(kind: str, value: Any, origin: Origin) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes to make it text"
    if isinstance(value, str) and origin.kind == "environment":
        return {"list_type": "; write it as [a, b]", "dict_type": "; write it as {key: value}"}.get(kind, "")
    return ""


def _is_hidden(path: Sequence[str | int], model: type[BaseModel], origin: Origin) -> bool:
    """Tell whether the value at a path is, or might be, a secret."""
    if any(is_secret_name(variable) for variable in origin.variables):
        return True
    kinds = types_at(model, path)
    names = [str(part) for part in path]
    if kinds:
        return any(is_secret_type(kind) for kind in kinds) or is_secret_name(names[-1] if names else "")
    return any(is_secret_name(name) for name in names) or any(is_secret_collection(name) for name in names[:-1])
