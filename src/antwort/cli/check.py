"""`antwort check`."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from antwort.app import Antwort
from antwort.auth import build_authenticator, check_bind
from antwort.backends.build import is_demo
from antwort.backends.demo import DEMO_MODEL
from antwort.backends.findings import Finding, ask, counted_models, with_cure
from antwort.cli.banner import named_models
from antwort.cli.event_loop import leaving_by_signals
from antwort.cli.model import ModelChoice, backend_options, check_customers, choose_model, probe_option
from antwort.cli.options import config_options, json_option, load, load_rest
from antwort.cli.output import print_json
from antwort.config import BackendConfig, Config, LoadedConfig, mask_urls
from antwort.errors import ConfigError, NotFoundError, ServiceUnavailableError
from antwort.files import open_blobs
from antwort.functions import Catalogue
from antwort.functions.discovery import enabled_providers, given_at
from antwort.functions.registration import Registration, examine
from antwort.sandbox.mounts import MountSpace
from antwort.storage import database_url
from antwort.storage.maintenance import current, location
from antwort.storage.schema.revisions import needs_upgrade
from antwort.storage.urls import is_postgres, sqlite_path

EXIT_PROBLEMS = 2
PATIENCE = 5.0
"""Seconds a backend gets to answer."""
PROVIDER_PATIENCE = 20.0
"""Seconds a provider gets to ask what it depends on; it may have to load a model first."""


@dataclass(slots=True)
class CheckReport:
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
@backend_options
@probe_option
@config_options
@click.pass_context
def check(ctx: click.Context, *, as_json: bool, no_probe: bool) -> None:
    """Check that the server would start, without listening.

    Every provider is started, examined and closed again, and every configured backend is asked for its models. All
    problems are shown, one line each.
    """
    report = CheckReport()
    try:
        loaded = load(ctx)
    except ConfigError as error:
        report.add(error)
        if (rest := load_rest(ctx)) is not None:
            _examine_apart(rest, report)
    else:
        choice = ModelChoice(loaded)
        try:
            choice = choose_model(loaded, probe=not no_probe, own_port=loaded.config.server.port)
            check_customers(choice.loaded.config)
        except ConfigError as error:
            report.add(error)
        with leaving_by_signals() as runner:
            runner.run(_examine(loaded, report, choice))
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


async def _examine(loaded: LoadedConfig, report: CheckReport, choice: ModelChoice) -> None:
    report.parts["configuration"] = str(loaded.path or "defaults")
    report.attempt(partial(check_bind, loaded.config, file=loaded.path))
    try:
        app = Antwort(loaded, mounts=MountSpace.for_processes(loaded.config.server.workers))
    except ConfigError as error:
        report.add(error)
        _examine_apart(loaded, report)
        return
    report.parts["authentication"] = app.chain.describe()
    if app.conflicts:
        report.parts["names"] = "; ".join(app.conflicts)
    report.attempt(partial(_examine_storage, loaded.config, report))
    try:
        await _examine_files(loaded.config, report)
    except ConfigError as error:
        report.add(error)
    try:
        await _examine_providers(app, report)
        await _examine_models(app, report, choice)
    finally:
        await app.close()


_UNCHECKED = (
    "they see nothing of what is passed through; with server.chat_completions.functions they see /v1/chat/completions"
)


async def _examine_providers(app: Antwort, report: CheckReport) -> None:
    try:
        async with app.providers_only(rehearsal=True):  # not the app: that would create the database
            for registration in app.registry.registrations():
                await _examine_provider(app, registration, report)
            passed_on = not app.config.server.chat_completions.functions
            if passed_on and any(registration.checks for registration in app.registry.registrations()):
                report.parts["checks"] = _UNCHECKED
            if app.sandbox.is_prepared:
                unheld = "; ".join(app.sandbox.unheld())
                held = f"the kernel does not hold {unheld}" if unheld else "the kernel holds every limit"
                report.parts["sandbox"] = held
            if disks := app.sandbox.describe_disks():
                report.parts["disks of code"] = disks
    except ConfigError as error:
        report.add(error)


async def _examine_provider(app: Antwort, registration: Registration, report: CheckReport) -> None:
    name = registration.name
    problems = await examine(registration.provider, app.redactor, PROVIDER_PATIENCE)
    for problem in problems:
        report.add(ConfigError(f"providers.{name}: {problem}", where=given_at(app.loaded, f"providers.{name}")))
    if not problems:
        report.parts[f"provider {name}"] = _brought(registration)


def _brought(registration: Registration) -> str:
    """Return what models and the server have of a provider: its functions, and what its checks look at."""
    functions = ", ".join(entry.spec.name for entry in registration.entries)
    stages: dict[str, list[str]] = {}
    for check in registration.checks:
        stages.setdefault(check.spec.name, []).append(check.spec.stage)
    checks = ", ".join(f"{name} of {' and '.join(looked_at)}" for name, looked_at in stages.items())
    return "; ".join([functions or "no functions", *([f"checks: {checks}"] if checks else [])])


def _examine_storage(config: Config, report: CheckReport) -> None:
    """Look at the database, or at the place where it would be created."""
    url = database_url(config)
    where, revision = location(url), current(url)
    old = needs_upgrade(revision, embedded=not is_postgres(url), where=where)
    if revision is None:
        if not is_postgres(url):
            _examine_folder(sqlite_path(url))
        report.parts["storage"] = f"{where}, to be created at the next start"
    else:
        report.parts["storage"] = f"{where}, {'to be upgraded at the next start' if old else 'up to date'}"


async def _examine_files(config: Config, report: CheckReport) -> None:
    """Ask what keeps files elsewhere for something that it does not have: it says so if it can be used."""
    if config.storage.s3 is None and config.storage.files is None:
        return
    blobs = open_blobs(config.storage.s3, config.data_dir, config.storage.files)
    problem = ""
    try:
        async with asyncio.timeout(PATIENCE):
            await anext(aiter(blobs.read("antwort-check", 0, 1)), None)
    except NotFoundError:
        pass
    except ServiceUnavailableError as error:
        problem = error.message
    except TimeoutError:
        problem = f"The bucket has not answered within {PATIENCE:g} s."
    finally:
        await blobs.close()
    bucket, chosen = config.storage.s3, config.storage.files
    name = bucket.bucket if bucket is not None else chosen if isinstance(chosen, str) or chosen is None else chosen.name
    if problem:
        raise ConfigError(f"{name}: {problem}", where="storage.s3" if bucket is not None else "storage.files")
    report.parts["bytes of files"] = f"the bucket {name}" if bucket is not None else str(name)


def _examine_folder(path: Path) -> None:
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"the database cannot be created: {folder} is no folder one may write to", where=str(path))


async def _examine_models(app: Antwort, report: CheckReport, choice: ModelChoice) -> None:
    loaded, backends = app.loaded, app.config.backends
    if not backends:
        report.parts["model"] = choice.label or _demo(looked=choice.keeps_looking)
        if choice.note:
            report.parts["note"] = choice.note
        return
    if is_demo(app.config):
        report.parts["model"] = f"the built-in demo model ({DEMO_MODEL})"
        return
    backends = {name: config for name, config in backends.items() if not config.is_demo}
    answers = await asyncio.gather(*(_ask(name, config) for name, config in backends.items()))
    for name, answer in zip(backends, answers, strict=True):
        config = backends[name]
        unlisted = config.models or config.any_model  # it is asked for models all the same
        if answer.state == "ok" or (answer.state == "no_models" and unlisted):
            report.parts[f"backend {name}"] = f"{mask_urls(config.url)}, {counted_models(answer.models)}"
        else:
            report.add(ConfigError(f"backends.{name}: {answer.problem}", where=given_at(loaded, f"backends.{name}")))
    await _examine_model_names(app, answers, report)


def _demo(*, looked: bool) -> str:
    why = ", since no model server was found on this machine" if looked else ", unless a model server is found"
    return f"the built-in demo model ({DEMO_MODEL}){why}"


async def _examine_model_names(app: Antwort, answers: Sequence[Finding], report: CheckReport) -> None:
    """Look whether there are the models that the configuration names, if every backend has said what it has."""
    if not all(answer.state in {"ok", "no_models"} for answer in answers):
        return
    for answer in answers:
        app.router.learn(answer.backend, answer.models)
    for where, name in named_models(app).items():
        if problem := await app.router.problem_of(name):
            report.add(ConfigError(f"{where}: {problem}", where=given_at(app.loaded, where)))


async def _ask(name: str, config: BackendConfig) -> Finding:
    """Ask a backend for its models, without much patience."""
    times = {key: min(PATIENCE, getattr(config, key)) for key in ("connect_timeout", "first_byte_timeout")}
    hurried = config.model_copy(update=times)
    return await with_cure(await ask(name, hurried), hurried)


def _examine_apart(loaded: LoadedConfig, report: CheckReport) -> None:
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
