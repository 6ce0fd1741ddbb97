"""`antwort new`."""

import importlib.resources
import re
import shlex
from pathlib import Path
from string import Template

import click

import antwort
from antwort.cli.groups import Group
from antwort.errors import ConfigError
from antwort.functions import Catalogue

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST = 30
_RESERVED = ("custom",)
"""The registry's own name for functions without a provider."""

_FILES = {
    "pyproject.toml": "pyproject.toml.tmpl",
    "README.md": "README.md.tmpl",
    ".gitignore": "gitignore.tmpl",
    "src/$package/__init__.py": "package.py.tmpl",
    "src/$package/py.typed": None,
    "tests/test_$name.py": "tests.py.tmpl",
}
"""The template of each file; None for an empty one."""

_NEXT = Template("""\
Wrote $target, a package with the provider '$name' and its tests. Next:

  cd $target
  python -m pip install --editable . pytest
  python -m pytest

Then enable it in antwort.yaml:

  providers:
    $name:
      enabled: true

And call its function:

  antwort functions call ${name}_greet '{"person": "Ada"}'""")


@click.group(cls=Group)
def new() -> None:
    """Start something of your own from a template."""


@new.command()
@click.argument("name")
@click.option(
    "--path",
    "parent",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default="this folder",
    help="Folder to write the package into.",
)
def provider(name: str, parent: Path) -> None:
    """Write a package with a provider of your own, and tests that pass.

    NAME is its key in the configuration, such as 'weather' for the package antwort-weather.
    """
    _check_name(name)
    words = _words(name)
    target = parent / words["distribution"]
    _write(target, {Template(path).substitute(words): _render(file, words) for path, file in _FILES.items()})
    click.echo(_NEXT.substitute(name=name, target=shlex.quote(str(target))))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            f"'{name}' is not a name for a provider; use up to {_LONGEST} lower-case letters and digits, "
            "with single '_' between words, such as 'weather' or 'unit_prices'"
        )
    origins = {found.name: found.origin for found in Catalogue()} | dict.fromkeys(_RESERVED, "the registry itself")
    if name in origins:
        raise ConfigError(f"there is a provider '{name}' already, of {origins[name]}; choose another name")


def _words(name: str) -> dict[str, str]:
    """Return what the templates put into their places."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    return {
        "name": name,
        "distribution": f"antwort-{name.replace('_', '-')}",
        "package": f"antwort_{name}",
        "provider": f"{camel}Provider",
        "settings": f"{camel}Settings",
        "version": antwort.__version__,
    }


def _render(file: str | None, words: dict[str, str]) -> str:
    if file is None:
        return ""
    template = importlib.resources.files("antwort.cli") / "templates" / "provider" / file
    return Template(template.read_text(encoding="utf-8")).substitute(words)


def _write(target: Path, files: dict[str, str]) -> None:
    try:
        target.mkdir()
        for path, text in files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigError(
            "there is something of that name already; move it away, or choose another --path", where=str(target)
        ) from None
    except FileNotFoundError:
        raise ConfigError(
            "there is no such folder; create it, or choose another with --path", where=str(target.parent)
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write the package: {error.strerror}", where=str(target)) from error
