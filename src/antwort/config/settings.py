"""The base of every section of the configuration and of every provider's settings, what its types and values say."""

import os
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    SecretBytes,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union without None, or the type itself."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(inner for member in get_args(annotation) for inner in alternatives(member))
    return () if annotation is type(None) else (annotation,)


def metadata_of(field: FieldInfo) -> list[Any]:
    """Return what is said of a field, or of one of the alternatives that its type has."""
    found, left = list(field.metadata), [field.annotation]
    while left:
        annotation = left.pop()
        if get_origin(annotation) is Annotated:
            found += get_args(annotation)[1:]
            left.append(get_args(annotation)[0])
        elif get_origin(annotation) in (Union, types.UnionType):
            left += get_args(annotation)
    return found


def is_secret_type(annotation: Any) -> bool:
    """Tell whether values of this type hide themselves."""
    return any(kind in (SecretStr, SecretBytes) for kind in alternatives(annotation))


def is_model(kind: Any) -> bool:
    """Tell whether a type is a model, and not a union or container of models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the models a value of this type may be: itself, or the items of a list or mapping."""
    found: list[type[BaseModel]] = []
    for kind in alternatives(annotation):
        if is_model(kind):
            found.append(kind)
        else:
            found.extend(model for item in _item_types(kind) for model in models_in(item))
    return tuple(found)


def secret_fields(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields whose value may be read from a file named by `<field>_file`."""
    fields = model.model_fields
    return [
        name
        for name, field in fields.items()
        if SecretStr in alternatives(field.annotation) and f"{name}_file" not in fields
    ]


def known_keys(kinds: Iterable[Any]) -> list[str]:
    """Return every key that some model among the types would accept."""
    keys: dict[str, None] = {}
    for model in filter(is_model, kinds):
        for name, field in model.model_fields.items():
            keys |= dict.fromkeys([name, *_aliases(field)])
        keys |= dict.fromkeys(f"{name}_file" for name in secret_fields(model))
    return list(keys)


def types_at(model: type[BaseModel], path: Sequence[str | int]) -> tuple[Any, ...]:
    """Return the types a value at this path may have; none where the model leaves them open."""
    kinds: tuple[Any, ...] = (model,)
    for part in path:
        kinds = tuple(inner for kind in kinds for inner in _step(kind, part))
    return kinds


def _step(kind: Any, part: str | int) -> tuple[Any, ...]:
    if is_model(kind):
        fields: Mapping[str, FieldInfo] = kind.model_fields
        return tuple(
            inner
            for name, field in fields.items()
            if part == name or part in _aliases(field)
            for inner in alternatives(field.annotation)
        )
    return tuple(inner for item in _item_types(kind) for inner in alternatives(item) if inner is not Any)


def _item_types(kind: Any) -> tuple[Any, ...]:
    """Return the type of the items of a list, or of the values of a mapping."""
    arguments = tuple(argument for argument in get_args(kind) if argument is not Ellipsis)
    container = get_origin(kind)
    if not isinstance(container, type):
        return ()
    if issubclass(container, Mapping):
        return arguments[1:]
    return arguments if issubclass(container, list | tuple | set | frozenset | Sequence) else ()


def _aliases(field: FieldInfo) -> list[str]:
    choices = field.validation_alias
    every = choices.choices if isinstance(choices, AliasChoices) else [choices, field.alias]
    return [alias for alias in every if isinstance(alias, str)]


class Settings(BaseModel):
    """Typed settings: unknown keys are errors, values cannot be changed, secrets may come from files.

    For a field `x` of type `SecretStr` the key `x_file` may be given instead: a path, relative to the working folder,
    whose content without the newline at its end becomes the value. A section without content counts as empty.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _read_input(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        values = dict(data)
        for name, field in cls.model_fields.items():
            if values.get(name, ...) is None and is_model(field.annotation):
                values[name] = {}
            elif values.get(name) is False and _has_off(field.annotation):
                values[name] = "off"  # which is what YAML reads as false
        for name in secret_fields(cls):
            _read_secret(values, name)
        return values


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension that is chosen with settings of its own."""

    name: str
    """Its name, or the 'module:Class' that `use` gives."""
    given: Mapping[str, Any]
    """The settings that were given with it; those that are secret are a SecretStr."""

    def shown(self) -> dict[str, Any]:
        """Return the keys that choose it, as a configuration has them."""
        return {"use" if ":" in self.name else "name": self.name, **self.given}


Choice: TypeAlias = str | Extension
"""Which extension there is to be: the name of one, its 'module:Class', or either with settings of its own."""


class Seldom:
    """Marks a section that few configurations have, and whose model is deferred: it is built for those that have it."""

    def __get_pydantic_core_schema__(
        self, section: type[Settings], _: GetCoreSchemaHandler
    ) -> core_schema.PlainValidatorFunctionSchema:
        return core_schema.no_info_plain_validator_function(section.model_validate)


def _has_off(annotation: Any) -> bool:
    """Tell whether a value of this type may be the word `off`, and may not be false."""
    kinds = alternatives(annotation)
    return bool not in kinds and any(get_origin(kind) is Literal and "off" in get_args(kind) for kind in kinds)


def _read_secret(values: dict[str, Any], name: str) -> None:
    """Replace `<name>_file` by the content of the file it names."""
    key = f"{name}_file"
    path = values.pop(key, None)
    if path is None:
        return
    if not isinstance(path, str | os.PathLike):
        raise _refused(key, path, "must be the path of a file")
    if values.get(name) is not None:
        raise _refused(key, path, f"give either '{name}' or '{key}' ({path}), not both")
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise _refused(key, path, f"cannot read {path}: not UTF-8 text") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise _refused(key, path, f"cannot read {path}: {reason}") from None
    if not secret:
        raise _refused(key, path, f"the file {path} is empty")
    values[name] = secret


def _refused(key: str, value: Any, reason: str) -> ValidationError:
    """Build an error that pydantic reports at the key itself, not at the whole section."""
    cause = PydanticCustomError("secret_file", "{reason}", {"reason": reason})
    return ValidationError.from_exception_data("secret", [InitErrorDetails(type=cause, loc=(key,), input=value)])


# --- values -----------------------------------------------------------------------------------------------------------


def named_paths(value: Any, name: str = "") -> Iterator[tuple[str, Path]]:
    """Yield every file and folder that a model or raw settings name, with the dotted key: paths, and those in URLs."""
    if isinstance(value, Path):
        yield name, value
    elif isinstance(value, SecretStr):
        yield from named_paths(value.get_secret_value(), name)
    elif isinstance(value, str):
        yield from ((name, path) for path in _in_url(value))
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from named_paths(getattr(value, field), _below(name, field))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from named_paths(part, _below(name, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from named_paths(part, name)


def _below(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _in_url(text: str) -> Iterator[Path]:
    """Yield the file of a SQLite database, and the folder of the socket of a PostgreSQL one."""
    if text.startswith("sqlite:///"):
        yield Path(text.removeprefix("sqlite:///"))
    elif "://" in text:
        try:
            url = urlsplit(text)
            hosts = [unquote(url.hostname or ""), *parse_qs(url.query).get("host", [])]
        except ValueError:  # no URL, as others have said or will say
            return
        yield from (Path(host) for host in hosts if host.startswith("/"))
