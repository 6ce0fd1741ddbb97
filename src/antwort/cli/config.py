"""`antwort config`."""

import json
from typing import Any

import click

from antwort.cli.lazy import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json, print_table
from antwort.config import LoadedConfig, is_duration, short_duration

__all__ = ["config"]


@click.group(cls=Group)
def config() -> None:
    """Show the configuration that is in force."""


@config.command()
@json_option
@configured
def show(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Show every value and where it comes from; secrets are masked.

    Of the settings of providers, only those that are given are shown, without their defaults.
    """
    entries = loaded.entries()
    if as_json:
        print_json([{"key": entry.key, "value": entry.value, "origin": str(entry.origin)} for entry in entries])
        return
    print_table(
        ("key", "value", "origin"),
        [(entry.key, _text(entry.value), str(entry.origin)) for entry in entries],
        flexible=1,
    )


def _text(value: Any) -> str:
    if is_duration(value):
        return short_duration(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
