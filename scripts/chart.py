"""Render the Helm chart in deploy/chart without Helm, and write deploy/kubernetes/antwort.yaml from it.

Templates of the chart use little of what Helm knows: values by their paths, `if`, `if not`, `else`, `toYaml`,
`nindent`, `quote` and `sha256sum`. All else is an error here, and so are a value that is missing and a block that is
not closed.

python scripts/chart.py
"""

import copy
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "chart"
MANIFESTS = ROOT / "deploy" / "kubernetes" / "antwort.yaml"
RELEASE = "antwort"
_HEAD = (
    "# Rendered from ../chart with its values by `make manifests`; do not edit. A test holds that they are the same.\n"
)
_PIECE = re.compile(r"(\{\{.*?\}\})", re.DOTALL)
_ACTION = re.compile(r"\{\{(?P<left>-?) ?(?P<text>.*?) ?(?P<right>-?)\}\}", re.DOTALL)
_PATH = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]*)+")

Tree: TypeAlias = Mapping[str, Any]


class ChartError(ValueError):
    """A template that cannot be rendered."""


def values() -> dict[str, Any]:
    """Return the values that the chart comes with."""
    return cast("dict[str, Any]", yaml.safe_load((CHART / "values.yaml").read_text()))


def merged(base: Tree, changes: Tree) -> dict[str, Any]:
    """Return values with some of them changed, as Helm merges them."""
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def rendered(changes: Tree | None = None, release: str = RELEASE) -> dict[str, str]:
    """Return the manifests by the names of their templates, without those that come to nothing."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": merged(values(), changes or {}),
        "Release": {"Name": release},
        "Chart": {"AppVersion": about["appVersion"]},
    }
    found = {path.name: render(path.read_text(), scope) for path in sorted((CHART / "templates").iterdir())}
    return {name: text for name, text in found.items() if text.strip()}


def manifests() -> str:
    """Return all manifests with the values of the chart, as one file."""
    return _HEAD + "".join(f"---\n{text.strip()}\n" for text in rendered().values())


def render(template: str, scope: Tree) -> str:
    """Return a template with its actions executed."""
    written: list[str] = []
    blocks: list[bool] = []
    trims = False
    for piece in _PIECE.split(template):
        action = _ACTION.fullmatch(piece)
        if action is None:
            if "{{" in piece or "}}" in piece:
                raise ChartError(f"an action is not closed: {piece[:80]!r}")
            text = piece.lstrip() if trims else piece
        else:
            if action["left"] and written:
                written[-1] = written[-1].rstrip()
            shown = all(blocks)
            text = _executed(action["text"], scope, blocks)
            text = text if shown else ""
        trims = action is not None and bool(action["right"])
        if action is not None or all(blocks):
            written.append(text)
    if blocks:
        raise ChartError("a block has no end")
    return "".join(written)


def _executed(text: str, scope: Tree, blocks: list[bool]) -> str:
    """Open, turn or close a block, or return what an expression comes to."""
    word, _, rest = text.partition(" ")
    if word == "if":
        negated = rest.startswith("not ")
        value = _found(rest.removeprefix("not ").strip(), scope)
        blocks.append(bool(value) is not negated)
    elif text in {"else", "end"}:
        if not blocks:
            raise ChartError(f"'{text}' without a block")
        last = blocks.pop()
        if text == "else":
            blocks.append(not last)
    else:
        return _piped(text, scope)
    return ""


def _piped(text: str, scope: Tree) -> str:
    first, *others = [part.strip() for part in text.split("|")]
    is_yaml = first.startswith("toYaml ")
    value = _found(first.removeprefix("toYaml ").strip(), scope)
    result = to_yaml(value) if is_yaml else value
    for part in others:
        name, _, argument = part.partition(" ")
        if name not in _FILTERS:
            raise ChartError(f"'{part}' is not known here")
        result = _FILTERS[name](result, argument)
    if isinstance(result, bool) or not isinstance(result, str | int):
        raise ChartError(f"'{text}' comes to {result!r}, which is written by toYaml only")
    return str(result)


def _found(path: str, scope: Tree) -> Any:
    if not _PATH.fullmatch(path):
        raise ChartError(f"'{path}' is not known here")
    value: Any = scope
    for name in path.split(".")[1:]:
        if not isinstance(value, Mapping) or name not in value:
            raise ChartError(f"there is no value '{path}'")
        value = value[name]
    return value


def to_yaml(value: Any) -> str:
    """Return a value in YAML, with keys in order, as Helm does."""
    text: str = yaml.safe_dump(value, width=10**9, allow_unicode=True)
    return text.removesuffix("...\n").rstrip("\n")


def _nindent(text: Any, width: str) -> str:
    return "".join(f"\n{' ' * int(width)}{line}" for line in str(text).split("\n"))


_FILTERS: dict[str, Callable[[Any, str], str]] = {
    "nindent": _nindent,
    "quote": lambda value, _: json.dumps(str(value), ensure_ascii=False),
    "sha256sum": lambda value, _: hashlib.sha256(str(value).encode()).hexdigest(),
}


def main() -> int:
    """Write the manifests."""
    MANIFESTS.write_text(manifests())
    print(f"wrote {MANIFESTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
