"""YAML in which every key knows its line, and `${VAR}` stands for the content of an environment variable."""

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from antwort.config.layers import Layer
from antwort.config.origins import Origin, join
from antwort.config.problems import Problem
from antwort.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float"))
_RESOLVED = _SCALARS | {f"{_TAG}merge"}
_MOST_VALUES = 100_000
_DEEPEST = 100
_LONG = 10_000
"""Characters from which on it pays to read a document in C."""
_LARGEST_BITS = 64

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}|\$\{")
_BODY = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::-(?P<default>.*))?", re.DOTALL)


_RESOLVERS = {
    first: [resolver for resolver in resolvers if resolver[0] in _RESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    """The safe loader, except that dates stay text: no setting is a date, and many a version looks like one."""

    yaml_implicit_resolvers = _RESOLVERS


class _QuickLoader(yaml.composer.Composer, getattr(yaml, "CSafeLoader", object)):  # type: ignore[misc]
    """The same with a parser in C, if PyYAML has that: several times as fast, which tells with thousands of keys.

    Its nodes are put together in Python: in C, nesting without end would end the process.
    """

    yaml_implicit_resolvers = _RESOLVERS

    def __init__(self, text: str) -> None:
        yaml.composer.Composer.__init__(self)
        super(yaml.composer.Composer, self).__init__(text)


def read_document(text: str, *, name: str, environ: Mapping[str, str]) -> Layer:
    """Read the text of a configuration file. Raise ConfigError if it is not YAML or not a mapping; collect the rest."""
    reader = _NodeReader(lambda node: Origin("file", name, node.start_mark.line + 1), environ)
    root = _compose(text, name)
    if root is None:
        return reader.layer
    values = reader.value(root, "")
    if isinstance(values, dict):
        reader.layer.values = values
    elif values is not None:
        raise ConfigError("the configuration must be a mapping of keys to values", where=f"{name}:{_line(root)}")
    return reader.layer


def read_flow(text: str, *, key: str, origin: Origin) -> tuple[Any, list[Problem]]:
    """Read a list or mapping written in one line, as the content of an environment variable."""
    reader = _NodeReader(lambda _: origin, None)
    try:
        root = _compose(text, str(origin))
    except ConfigError as error:
        return None, [Problem(key, error.message, origin)]
    return (None if root is None else reader.value(root, key)), reader.layer.problems


def interpolate(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Replace `${VAR}` and `${VAR:-default}`; also return the names used. Raise ValueError if that cannot be done.

    As in a shell the default also stands for a variable that is empty; `$${` is a literal `${`.
    """
    used: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        body = _BODY.fullmatch(match["body"] or "")
        if body is None or "${" in (body["default"] or ""):
            raise ValueError("'${' must be followed by NAME} or NAME:-default}; write '$${' for a literal '${'")
        used.append(body["name"])
        value = environ.get(body["name"])
        if body["default"] is not None:
            return value or body["default"]
        if value is None:
            variable = f"${{{body['name']}}}"
            raise ValueError(f"the environment variable in {variable} is not set; set it or give a default")
        return value

    return _REFERENCE.sub(replaced, text), tuple(used)


def _compose(text: str, name: str) -> yaml.Node | None:
    if len(text) >= _LONG and yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError, RecursionError):  # told below, in the same words everywhere
            return _QuickLoader(text).get_single_node()
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = name if mark is None else f"{name}:{mark.line + 1}"
        raise ConfigError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except yaml.reader.ReaderError as error:
        where = f"{name}:{text.count(chr(10), 0, error.position) + 1}"
        raise ConfigError("not valid YAML: a control character that is not allowed", where=where) from None
    except RecursionError:
        raise ConfigError("nested too deeply", where=name) from None
    finally:
        if loader is not None:
            loader.dispose()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _NodeReader:
    """One walk over the nodes of a document. Without `environ` nothing is interpolated."""

    def __init__(self, origin: Callable[[yaml.Node], Origin], environ: Mapping[str, str] | None) -> None:
        self.layer = Layer()
        self._origin = origin
        self._environ = environ
        self._constructor = _Loader("")
        self._seen = 0
        self._stopped = False

    def value(self, node: yaml.Node, key: str, depth: int = 0) -> Any:
        """Return the value of a node, and note its origin and those of all below it."""
        if self._exceeds(node, key, depth):
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, key, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return self._sequence(node, key, depth)
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return self._text(node, key)
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node, key)
        return self._problem(key, f"the YAML tag '{node.tag.replace(_TAG, '!!')}' is not supported", node)

    def _exceeds(self, node: yaml.Node, key: str, depth: int) -> bool:
        """Tell whether to stop: by aliases a small file can repeat, and even contain, itself."""
        self._seen += 1
        if not self._stopped and (depth > _DEEPEST or self._seen > _MOST_VALUES):
            self._stopped = True
            self._problem(key, "nested too deeply" if depth > _DEEPEST else "too many values", node)
        return self._stopped

    def _mapping(self, node: yaml.MappingNode, key: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, key_node, value_node in self._pairs(node, key, depth):
            inner = join(key, name)
            self.layer.origins[inner] = self._origin(key_node)
            values[name] = self.value(value_node, inner, depth + 1)
        return values

    def _sequence(self, node: yaml.SequenceNode, key: str, depth: int) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            inner = join(key, index)
            self.layer.origins[inner] = self._origin(item)
            values.append(self.value(item, inner, depth + 1))
        return values

    def _pairs(self, node: yaml.MappingNode, key: str, depth: int) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return the pairs of a mapping and, after them, those it takes over with `<<`."""
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            elif not isinstance(key_node, yaml.ScalarNode):
                self._problem(key, "a key must be plain text", key_node)
            elif key_node.value in pairs:
                first, second = _line(pairs[key_node.value][0]), _line(key_node)
                self._problem(join(key, key_node.value), f"given twice, on lines {first} and {second}", key_node)
            else:
                # The text as written: `on` and `8080` are names here, whatever they would be as values.
                pairs[self._checked(key_node, key)] = (key_node, value_node)
        for source in merged:
            if not isinstance(source, yaml.MappingNode):
                self._problem(key, "'<<' must refer to a mapping", source)
            elif not self._exceeds(source, key, depth):
                for name, key_node, value_node in self._pairs(source, key, depth + 1):
                    pairs.setdefault(name, (key_node, value_node))
        return [(name, *nodes) for name, nodes in pairs.items()]

    def _text(self, node: yaml.ScalarNode, key: str) -> str | None:
        text = self._checked(node, key)
        if self._environ is None:
            return text
        try:
            text, used = interpolate(text, self._environ)
        except ValueError as error:
            self._problem(key, str(error), node)
            return None
        origin = self.layer.origins.get(key)
        if used and origin is not None:
            self.layer.origins[key] = Origin(origin.kind, origin.name, origin.line, used)
        return text

    def _scalar(self, node: yaml.ScalarNode, key: str) -> Any:
        try:
            value = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError):
            return self._problem(key, f"not a valid {node.tag.removeprefix(_TAG)}", node)
        if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
            return self._problem(key, "too large a number", node)
        return value

    def _checked(self, node: yaml.ScalarNode, key: str) -> str:
        """Return the text of a node, without the halves of characters that YAML escapes can make."""
        text = str(node.value)
        clean = text.encode("utf-8", "replace").decode()
        if clean != text:
            self._problem(key, "not valid Unicode text", node)
        return clean

    def _problem(self, key: str, message: str, node: yaml.Node) -> None:
        self.layer.problems.append(Problem(key, message, self.layer.origins.get(key) or self._origin(node)))
