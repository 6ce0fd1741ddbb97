"""What Python says about a callable: how it runs, what it takes, and what its docstring tells."""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typing_extensions

from antwort.context import Context
from antwort.errors import DefinitionError
from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    import docstring_parser
else:
    docstring_parser = imported_on_use("docstring_parser")


class HandlerKind(Enum):
    """How a handler gives its result."""

    SYNC = "sync"
    """`def`: runs on a worker thread, unless it only computes."""
    ASYNC = "async"
    """`async def`: runs on the event loop."""
    STREAM = "stream"
    """An async generator: what it yields is progress, or a piece of the result."""


def handler_kind(handler: Callable[..., Any]) -> HandlerKind:
    """Tell how to run a callable: a function, a method, a partial, or an object with `__call__`."""
    target = _unwrapped(handler)
    for candidate in (target, getattr(target, "__call__", None)):  # noqa: B004 - it is the method that is inspected
        if inspect.isasyncgenfunction(candidate):
            return HandlerKind.STREAM
        if inspect.iscoroutinefunction(candidate):
            return HandlerKind.ASYNC
    return HandlerKind.SYNC


def type_hints(handler: Callable[..., Any], *, name: str) -> dict[str, Any]:
    """Return the resolved annotations of a callable."""
    target = _unwrapped(handler)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise DefinitionError(
            f"function '{name}': a type hint cannot be resolved ({error}); define the type at module level"
        ) from error


def _unwrapped(handler: Callable[..., Any]) -> Any:
    """Return the callable inside partials."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def is_context(hint: Any) -> bool:
    """Tell whether an annotation asks for the context."""
    if get_origin(hint) is Annotated:
        return is_context(get_args(hint)[0])
    if get_origin(hint) in {typing.Union, types.UnionType}:
        return any(is_context(part) for part in get_args(hint))
    return hint is Context


def read_docstring(handler: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Split a docstring into what the function does and what its parameters mean (Google, NumPy or Sphinx style)."""
    text = _docstring(handler)
    if not text:
        return "", {}
    if not any(map(_begins_section, text.splitlines())):  # as most are: the parser need not try its four styles
        short, _, rest = text.partition("\n")
        return "\n".join(part for part in (short, rest.strip()) if part).strip(), {}
    parsed = docstring_parser.parse(text)
    description = "\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    documented = {found.arg_name: " ".join((found.description or "").split()) for found in parsed.params}
    return description.strip() or text.strip(), documented


def _docstring(handler: Callable[..., Any]) -> str | None:
    """Return what is said of a function, of what a partial call calls, or of what an object does when it is called."""
    text = inspect.getdoc(handler) if inspect.isroutine(handler) or inspect.isclass(handler) else None
    if text is None and isinstance(handler, functools.partial):
        text = inspect.getdoc(_unwrapped(handler))
    if text is None and not inspect.isroutine(handler):
        text = inspect.getdoc(type(handler).__call__) or inspect.getdoc(handler)
    return text


def _begins_section(line: str) -> bool:
    """Tell whether a line may begin what is said of a parameter, in any of the styles."""
    line = line.strip()
    return line.endswith(":") or line.startswith((":", "@", "---", "==="))


def modern(hint: Any) -> Any:
    """Rebuild `typing.TypedDict` with the backport: before Python 3.12 pydantic cannot read the standard one."""
    if typing.is_typeddict(hint) and sys.version_info < (3, 12):
        fields = {
            key: value if _qualified(value) else _qualify(modern(value), key in hint.__required_keys__)
            for key, value in typing_extensions.get_type_hints(hint, include_extras=True).items()
        }
        rebuilt = typing_extensions.TypedDict(hint.__name__, fields)  # type: ignore[misc]
        rebuilt.__doc__ = hint.__doc__
        return rebuilt
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or origin is typing.Literal:
        return hint
    if origin is Annotated:
        return Annotated[(modern(arguments[0]), *arguments[1:])]
    modern_arguments = tuple(modern(part) for part in arguments)
    if modern_arguments == arguments:
        return hint
    if origin is types.UnionType:
        return typing.Union[modern_arguments]  # noqa: UP007 - built from a tuple
    return origin[modern_arguments]


def _qualified(hint: Any) -> bool:
    return get_origin(hint) in {typing_extensions.Required, typing_extensions.NotRequired}


def _qualify(hint: Any, required: bool) -> Any:
    return hint if required else typing_extensions.NotRequired[hint]
