"""Extensions: parts that are chosen by a name in the settings, and that other packages may bring.

A kind of extension is a group of entry points, in which ours stand like those of strangers. Whoever chooses one names
it, or its class as 'module:Class' or 'path/to/file.py:Class', and may give settings beside that. The class, or what
makes one (a function, or a class method), takes its settings first: the hint of its first parameter says which they
are. What follows is up to the kind. Nothing of an extension is imported before it is chosen.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, cast

from msgspec import Struct
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from antwort.callables import type_hints
from antwort.config import installed
from antwort.config.origins import Origin
from antwort.config.problems import problems_of
from antwort.config.secrets import mask_urls, secret_values
from antwort.config.settings import Choice, Extension, Settings, is_secret_type
from antwort.errors import ConfigError, did_you_mean

T = TypeVar("T")

_LONGEST_CAUSE = 300
_GIVEN = Origin("file")


class _Found(Struct, frozen=True):
    """An extension that can be had, not yet imported."""

    name: str
    origin: str
    """Where it comes from, for people."""
    load: Callable[[], Any]
    missing: str = ""
    """What to do if something that it imports is not there."""

    @property
    def label(self) -> str:
        """Its name, and where it comes from unless the name says that."""
        return f"'{self.name}'" if self.name == self.origin else f"'{self.name}' of {self.origin}"


class ExtensionKind(Generic[T]):
    """A kind of extension, such as vector databases.

    As metadata of a setting of type `Choice` it reads and checks what an operator has written. `members` are what an
    extension must have at least. `has_around`: settings that are not given with it may stand around the choice. What is
    no name but has a meaning of its own, such as a path, `also` takes, and `also_known` says in an error.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        *,
        default: str | None = None,
        members: Sequence[str] = (),
        has_around: bool = False,
        also: Callable[[str], bool] | None = None,
        also_known: str = "",
    ) -> None:
        self.group = group
        self.noun = noun
        self._default = default
        self._members = members
        self._has_around = has_around
        self._also = also
        self._also_known = also_known

    # --- reading a setting -------------------------------------------------------------------------------------------

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _: Any, __: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "examples": self.own_names()}, {"type": "object"}]}

    def read(self, value: object) -> Choice:
        """Read what stands in a configuration; a ValidationError says at which key what is wrong."""
        if isinstance(value, Extension) or (isinstance(value, str) and value == self._default):
            return value
        if isinstance(value, str):
            if self._also is None or not self._also(value):
                found = self._find(value, (), value)
                if ":" in value:
                    self._loaded(found, (), value)
            return value
        if not isinstance(value, Mapping):
            _refuse((), f"must be the name of a {self.noun}, or a mapping with `name` or `use`", value)
        own = dict(value)
        chosen = [(key, own.pop(key)) for key in ("name", "use") if key in own]
        if len(chosen) != 1:
            _refuse((), f"needs exactly one of 'name' and 'use', to say which {self.noun}", None)
        ((key, name),) = chosen
        if not isinstance(name, str) or (":" in name) != (key == "use"):
            meant = "'module:Class' or 'path/to/file.py:Class'" if key == "use" else f"the name of a {self.noun}"
            _refuse((key,), f"must be {meant}", name)
        found = self._find(name, (key,), name)
        target = self._loaded(found, (key,), name)
        return Extension(name, self._as_given(found, self._settings_type(target, (key,), name), own))

    def _as_given(self, found: _Found, model: type[Settings], own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check and return what is given; what is not may yet come from the settings around."""
        try:
            settings = self._validated(found, model, own)
        except ConfigError as error:
            _refuse((), error.message, None)
        except ValidationError as error:
            hidden = _secrets(model, own)
            problems = [
                (one.key, _masked(one.message, hidden))
                for one in problems_of(error, model, own, origin_of=lambda _: _GIVEN)
            ]
            if self._has_around:
                problems = [(key, message) for key, message in problems if _holds(own, key)]
            if problems:
                raise _error(
                    (_location(own, key), _problem_text(own, key, message), None) for key, message in problems
                ) from None
            return {
                key: SecretStr(value) if isinstance(value, str) and _is_secret(model, key) else value
                for key, value in own.items()
            }
        return {name: getattr(settings, name) for name in settings.model_fields_set}

    def _validated(self, found: _Found, model: type[Settings], values: Mapping[str, Any]) -> Settings:
        """Check settings; whatever their class raises besides a ValidationError is a ConfigError."""
        try:
            return model.model_validate(values)
        except (ValidationError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._broken(found, error, _secrets(model, values)) from error

    def _find(self, name: str, at: Sequence[str], value: object) -> _Found:
        try:
            return self.find(name)
        except ConfigError as error:
            _refuse(at, error.message, value)

    def _loaded(self, found: _Found, at: Sequence[str], value: object) -> Any:
        try:
            return self._load(found)
        except ConfigError as error:
            _refuse(at, error.message, value)

    def _settings_type(self, target: Any, at: Sequence[str], value: object) -> type[Settings]:
        try:
            return settings_type(target)
        except ConfigError as error:
            _refuse(at, error.message, value)

    # --- finding -----------------------------------------------------------------------------------------------------

    def own_names(self) -> list[str]:
        """Return the names of those that come with antwort."""
        return sorted(point.name for point in installed.own_points(self.group))

    def names(self) -> list[str]:
        """Return the names of all that are installed."""
        return sorted({point.name for package in installed.packages() for point in package.points(self.group)})

    def find(self, name: str) -> _Found:
        """Return an extension by its name or 'module:Class'; a ConfigError says which there are."""
        if ":" in name:
            return _Found(name, name, lambda: _imported(name))
        for point in installed.own_points(self.group):  # nobody else's is taken for one of ours
            if point.name == name:
                return _of_entry_point(point, installed.DISTRIBUTION, installed.DISTRIBUTION)
        for package in installed.packages():
            for point in package.points(self.group):
                if point.name == name:
                    return _of_entry_point(point, package.name, str(package))
        known = self.names()
        there = ", ".join(filter(None, [*known, self._also_known]))
        raise ConfigError(
            f"unknown {self.noun} '{name}'{did_you_mean(name, known)} (known: {there}); "
            "install the package that brings it, or name it with use: 'module:Class'"
        )

    def _load(self, found: _Found) -> Any:
        """Import an extension; a ConfigError names it, where it comes from, and what to do."""
        try:
            target = found.load()
        except ConfigError as error:
            raise ConfigError(f"the {self.noun} '{found.name}': {error.message.removeprefix('use: ')}") from error
        except ImportError as error:
            if found.missing and not (error.name or "").startswith(installed.DISTRIBUTION):
                raise ConfigError(
                    f"the {self.noun} '{found.name}' needs packages that are not installed: {found.missing}"
                ) from error
            raise self._broken(found, error) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._broken(found, error) from error
        if not callable(target):
            raise ConfigError(f"the {self.noun} {found.label} is no class, but {_excerpt(target)}")
        made = _class_of(target)
        missing = [one for one in self._members if inspect.isclass(made) and not _has(made, one)]
        if missing:
            raise ConfigError(
                f"the {self.noun} {found.label} is no {self.noun}: {made.__name__} lacks {', '.join(missing)}"
            )
        return target

    def _broken(self, found: _Found, error: BaseException, hidden: Iterable[str] = ()) -> ConfigError:
        return ConfigError(
            f"the {self.noun} {found.label} cannot be used: {_one_line(error, hidden)}; "
            "repair or update it, or choose another"
        )

    def declared(self, choice: Choice, attribute: str) -> Any:
        """Return what the class of an extension says of itself; None if it says nothing."""
        found = self.find(choice if isinstance(choice, str) else choice.name)
        return getattr(_class_of(self._load(found)), attribute, None)

    # --- making ------------------------------------------------------------------------------------------------------

    def make(
        self,
        choice: Choice,
        *parts: object,
        key: str,
        around: Mapping[str, Any] | None = None,
    ) -> T:
        """Make the extension that a setting chooses, from its settings and the parts that the kind has for it.

        A setting that is not given with it has the value that `around` has under its name. Whatever goes wrong is a
        ConfigError that names the `key` of the choice.
        """
        name = choice if isinstance(choice, str) else choice.name
        try:
            found = self.find(name)
            target = self._load(found)
            settings = self._settings(found, target, choice, around or {}, key)
            return self._made(found, target, settings, parts)
        except ConfigError as error:
            if error.where is not None or error.message.startswith(key):
                raise
            raise ConfigError(f"{key}: {error.message}") from error

    def _settings(self, found: _Found, target: Any, choice: Choice, around: Mapping[str, Any], key: str) -> Settings:
        model = settings_type(target)
        section = around.get(choice if isinstance(choice, str) else choice.name)
        if not isinstance(section, model):
            values = {name: around[name] for name in model.model_fields if around.get(name) is not None}
        elif isinstance(choice, str):
            return section
        else:
            values = {name: getattr(section, name) for name in section.model_fields_set}
        if isinstance(choice, Extension):
            values |= choice.given
        try:
            return self._validated(found, model, values)
        except ValidationError as error:
            problems = problems_of(error, model, values, origin_of=lambda _: _GIVEN)
            told = [f"{one.key}: {one.message}" if one.key else one.message for one in problems]
            raise ConfigError(f"{key}: {_masked('; '.join(told), _secrets(model, values))}") from None

    def _made(self, found: _Found, target: Any, settings: Settings, parts: Sequence[object]) -> T:
        hidden = [*secret_values(settings)]
        try:
            made = target(settings, *parts)
        except ConfigError as error:
            raise ConfigError(_masked(error.message, hidden), where=error.where) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._broken(found, error, hidden) from error
        if inspect.iscoroutine(made):
            made.close()
        if missing := [one for one in self._members if not hasattr(made, one)]:  # of what a function has made
            kind = type(made).__name__
            raise ConfigError(f"the {self.noun} {found.label} makes no {self.noun}: {kind} lacks {', '.join(missing)}")
        return cast("T", made)


def _has(made: type, member: str) -> bool:
    """Tell whether a class has a member that is more than what a protocol says of it, which does nothing."""
    owner = next((one for one in made.__mro__ if member in one.__dict__), None)
    return owner is not None and not getattr(owner, "_is_protocol", False)


def _class_of(target: Any) -> Any:
    """Return the class whose objects something makes, if it is one of its class methods."""
    return target.__self__ if inspect.ismethod(target) else target


def settings_type(target: Callable[..., Any]) -> type[Settings]:
    """Return the settings that a class or function takes first; a ConfigError if it does not say which."""
    name = getattr(target, "__name__", repr(target))
    made = inspect.unwrap(target.__init__) if inspect.isclass(target) else target
    try:
        hints = type_hints(made, name=name)
        first = next(one for one in inspect.signature(made).parameters if one != "self")
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a hint may be a text, which is executed
        first, hints = "", {}
    hint = hints.get(first)
    if not inspect.isclass(hint) or not issubclass(hint, Settings):
        raise ConfigError(
            f"{name} does not say which settings it takes: its first parameter must have a subclass of Settings as hint"
        )
    return hint


def _of_entry_point(point: EntryPoint, package: str, origin: str) -> _Found:
    cure = f"pip install '{package}[{','.join(point.extras)}]'" if point.extras else ""
    return _Found(point.name, origin, point.load, cure)


def _imported(use: str) -> Any:
    """Import what 'module:Class' or 'path/to/file.py:Class' names."""
    path, _, attribute = use.rpartition(":")
    if not path.endswith(".py"):
        return installed.imported(use)
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"use: there is no file {file}")
    module = installed.module_of_file(file, f"antwort_extension_{file.stem}")
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"use: {file} has no '{attribute}'{did_you_mean(attribute, vars(module))}") from None


def _one_line(error: BaseException, hidden: Iterable[str]) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - a text that cannot be had tells nothing, whatever its author raises
        text = type(error).__name__
    return mask_urls(" ".join(_masked(text, hidden).split()))[:_LONGEST_CAUSE]


def _excerpt(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except BaseException:  # noqa: BLE001 - as above
        return f"an object of {type(value).__name__}"


def _masked(text: str, hidden: Iterable[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, "********") if secret else text
    return text


def _is_secret(model: type[Settings], key: str) -> bool:
    field = model.model_fields.get(key)
    return field is not None and is_secret_type(field.annotation)


def _secrets(model: type[Settings], values: Mapping[str, Any]) -> Sequence[str]:
    """Return the secrets that are given, whether they can be used or not."""
    given = [value for key, value in values.items() if _is_secret(model, key)]
    texts = [value.get_secret_value() if isinstance(value, SecretStr) else value for value in given]
    return [text for text in texts if isinstance(text, str)]


def _holds(own: Mapping[str, Any], key: str) -> bool:
    return key.partition(".")[0] in own


def _location(own: Mapping[str, Any], key: str) -> Sequence[str | int]:
    """Return where in what is given a key is; one that is missing has no place."""
    return [int(part) if part.isdecimal() else part for part in key.split(".")] if _holds(own, key) else ()


def _problem_text(own: Mapping[str, Any], key: str, message: str) -> str:
    return message if _holds(own, key) or not key else f"'{key}': {message}"


def _refuse(at: Sequence[str | int], message: str, value: object) -> NoReturn:
    raise _error([(at, message, value)])


def _error(problems: Iterable[tuple[Sequence[str | int], str, object]]) -> ValidationError:
    """Return an error that pydantic reports at the keys themselves."""
    lines = [
        InitErrorDetails(
            type=PydanticCustomError("extension", "{message}", {"message": message}), loc=tuple(at), input=value
        )
        for at, message, value in problems
    ]
    return ValidationError.from_exception_data("extension", lines)
