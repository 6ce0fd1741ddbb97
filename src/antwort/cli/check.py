"""`antwort check`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import click

from antwort.app import Antwort, enabled_providers
from antwort.auth import build_authenticator, check_bind
from antwort.cli.options import config_options, json_option, load
from antwort.cli.output import print_json
from antwort.config import LoadedConfig
from antwort.errors import ConfigError
from antwort.functions import Catalogue

__all__ = ["check"]

EXIT_PROBLEMS = 2


@dataclass(slots=True)
class Report:
    """What was found to work, and what was not."""

    parts: dict[str, str] = field(default_factory=dict)
    problems: dict[str, ConfigError] = field(default_factory=dict)
    """By their text: the same one may be met twice."""

    def add(self, error: ConfigError) -> None:
        """Note everything an error tells."""
        self.problems |= {str(problem): problem for problem in error.problems}

    def attempt(self, action: Callable[[], object]) -> None:
        """Do something that may fail, and note it if so."""
        try:
            action()
        except ConfigError as error:
            self.add(error)


@click.command()
@json_option
@config_options
@click.pass_context
def check(ctx: click.Context, *, as_json: bool) -> None:
    """Check that the server would start, without listening.

    Every provider is started and closed again. All problems are shown, one line each.
    """
    report = Report()
    try:
        loaded = load(ctx)
    except ConfigError as error:
        report.add(error)
    else:
        asyncio.run(_examine(loaded, report))
    if as_json:
        problems = [{"where": problem.where, "message": problem.message} for problem in report.problems.values()]
        print_json({"ok": not problems, "parts": report.parts, "problems": problems})
    else:
        for part, text in report.parts.items():
            click.echo(f"ok  {part}: {text}")
        for line in report.problems:
            click.echo(f"antwort: {line}", err=True)
    if report.problems:
        ctx.exit(EXIT_PROBLEMS)


async def _examine(loaded: LoadedConfig, report: Report) -> None:
    report.parts["configuration"] = str(loaded.path or "defaults")
    report.attempt(partial(check_bind, loaded.config))
    try:
        app = Antwort(loaded)
    except ConfigError as error:
        report.add(error)
        _examine_apart(loaded, report)
        return
    try:
        async with app:
            report.parts["authentication"] = app.chain.describe()
            for registration in app.registry.registrations():
                functions = ", ".join(entry.spec.name for entry in registration.entries)
                report.parts[f"provider {registration.name}"] = functions or "no functions"
    except ConfigError as error:
        report.add(error)


def _examine_apart(loaded: LoadedConfig, report: Report) -> None:
    """Build each part on its own, for an app stops at the first that fails."""
    config = loaded.config
    report.attempt(partial(build_authenticator, config))
    try:
        catalogue = Catalogue(plugins_dir=config.plugins_dir)
    except ConfigError as error:
        report.add(error)
        return
    for name, provider in enabled_providers(config, catalogue).items():
        report.attempt(partial(catalogue.make, name, provider, loaded))
