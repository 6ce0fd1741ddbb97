"""`antwort functions`."""

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import indent
from typing import Any, TextIO, get_args

import click

from antwort.app import Antwort
from antwort.cli.event_loop import leaving_by_signals
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json, print_table, table
from antwort.cli.switches import add_switches
from antwort.config import FunctionsConfig, LoadedConfig
from antwort.context import ANONYMOUS_TENANT, Context, Progress
from antwort.engine.tools.deferred import deferred_names
from antwort.functions import Catalogue, FunctionRegistry, FunctionSpec, Provider, Shape, ToolResult, tool_definition
from antwort.functions.discovery import default_providers, enabled_providers

EXIT_ERROR_RESULT = 1


def description(spec: FunctionSpec, provider: str, defaults: FunctionsConfig) -> str:
    """Return everything there is to know about a function before calling it."""
    facts = dict(_facts(spec, provider, defaults))
    size = max(map(len, facts))
    parts = [
        spec.name,
        indent(spec.description, "  "),
        "Parameters",
        indent(_parameters(spec.parameters), "  "),
        "\n".join(f"{name.ljust(size)}  {text}" for name, text in facts.items()),
    ]
    return "\n\n".join(parts)


def _facts(spec: FunctionSpec, provider: str, defaults: FunctionsConfig) -> Iterator[tuple[str, str]]:
    limits = spec.limits
    yield "provider", provider
    yield "scope", spec.scope.value if spec.agents is None else f"{spec.scope.value} ({', '.join(sorted(spec.agents))})"
    yield "timeout", "none (it waits)" if spec.suspends else _limit(limits.timeout, defaults.timeout, "seconds")
    yield "output", _limit(limits.max_output, defaults.max_output, "characters")
    yield "concurrency", _limit(limits.concurrency, defaults.concurrency, "calls")
    yield "idempotent", "yes" if spec.idempotent else "no"
    yield "effect", spec.effect.value
    if spec.hosted is not None:
        item = f", output item {spec.hosted.item}" if spec.hosted.item else ""
        yield "tool types", f"{', '.join(spec.hosted.types)}{item}"


def _limit(own: float | None, default: float | None, unit: str) -> str:
    value = default if own is None else own
    text = "no limit" if value is None or math.isinf(value) else f"{value:,.12g} {unit}"
    return text if own is not None else f"{text} (default)"


def _parameters(schema: Mapping[str, Any]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        return "none"
    required = schema.get("required", ())
    return table(
        ("name", "type", "default", "description"),
        [
            (name, _type(inner), "required" if name in required else _default(inner), inner.get("description", ""))
            for name, inner in properties.items()
        ],
        width=None,
    )


def _default(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "-"


def _type(schema: Any) -> str:
    """Return a short name for what a schema admits."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    if union := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(_type(inner) for inner in union)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


@click.group(cls=Group)
def functions() -> None:
    """List, show and call functions; take them out of service."""


add_switches(functions, "function")


@contextlib.contextmanager
def _known_functions(loaded: LoadedConfig) -> Iterator[Antwort]:
    """Give an app all of whose functions are known: where some are found only by a provider that runs, all run."""
    app = Antwort(loaded)
    providers = [one.provider for one in app.registry.registrations()]
    if not any(isinstance(one, Provider) and one.finds_functions for one in providers):
        yield app
        return
    opened = contextlib.AsyncExitStack()
    with leaving_by_signals() as runner:
        runner.run(_started(app, opened))
        try:
            yield app
        finally:
            runner.run(_closed(app, opened))


async def _started(app: Antwort, opened: contextlib.AsyncExitStack) -> None:
    await opened.enter_async_context(app.providers_only(rehearsal=True))


async def _closed(app: Antwort, opened: contextlib.AsyncExitStack) -> None:
    await opened.aclose()
    await app.close()


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function with its state."""

    name: str
    provider: str
    scope: str
    state: str
    description: str
    tools: Sequence[str] = ()
    """The types of tools that it answers."""


@functions.command("list")
@click.option("--all", "everything", is_flag=True, help="Include those that are disabled or shadowed.")
@json_option
@configured
def list_functions(loaded: LoadedConfig, *, everything: bool, as_json: bool) -> None:
    """List the functions in service."""
    with _known_functions(loaded) as app:
        above = loaded.config.engine.tool_search.above
        rows = list(_rows(app.registry, above, everything=everything))
    if as_json:
        print_json([asdict(row) for row in rows])
    elif rows:
        print_table(
            ("name", "provider", "scope", "state", "description"),
            [(row.name, row.provider, row.scope, row.state, row.description.partition("\n")[0]) for row in rows],
        )
    else:
        click.echo("There are no functions. Enable a provider; 'antwort providers list' shows what is within reach.")


_FOUND = "offered once found"
_STATES = {"always": "offered", "deferred": _FOUND, "on_request": "offered on request"}


def _rows(registry: FunctionRegistry, above: int | None, *, everything: bool) -> Iterator[FunctionRow]:
    deferred = frozenset(deferred_names({spec.name: spec for spec in registry.list()}, above))
    for registration in registry.registrations():
        for entry in registration.entries:
            if entry.shadowed_by is not None:
                state = f"shadowed by {entry.shadowed_by}"
            elif not entry.enabled:
                state = "disabled"
            else:
                state = _FOUND if entry.spec.name in deferred else _STATES[entry.spec.offer]
            if everything or entry.offered:
                spec = entry.spec
                types = () if spec.hosted is None else spec.hosted.types
                yield FunctionRow(spec.name, registration.name, spec.scope.value, state, spec.description, types)


@functions.command()
@click.argument("name")
@click.option("--shape", type=click.Choice(get_args(Shape)), help="Print the tool definition of this model API.")
@json_option
@configured
def show(loaded: LoadedConfig, *, name: str, shape: Shape | None, as_json: bool) -> None:
    """Show what a function takes and does; with --json, its tool definition."""
    with _known_functions(loaded) as app:
        spec = app.registry.get(name)
        provider = next(entry.provider.name for entry in app.registry.entries() if entry.spec is spec)
    if as_json or shape is not None:
        print_json(tool_definition(spec, shape or "responses"))
        return
    click.echo(description(spec, provider, loaded.config.functions))


@functions.command()
@click.argument("name")
@click.argument("arguments", required=False)
@click.option("--tenant", default=ANONYMOUS_TENANT, show_default=True, help="Tenant to call it for.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds it may take.")
@json_option
@configured
def call(
    loaded: LoadedConfig, *, name: str, arguments: str | None, tenant: str, timeout: float | None, as_json: bool
) -> None:
    """Call a function in this process, as a model would.

    ARGUMENTS is a JSON object; '-' reads it from standard input, as does leaving it out when something is piped in.
    """
    ctx = Context(tenant, subject="cli", scopes=frozenset({"*"}), emit=_print_progress)
    app, given = Antwort(loaded), _arguments(arguments)
    with leaving_by_signals() as runner:
        result = runner.run(_call(app, name, given, ctx, timeout))
    if as_json:
        print_json({"status": result.status, "is_error": result.is_error, "output": result.output})
    else:
        click.echo(f"antwort: {result.output}" if result.is_error else result.output, err=result.is_error)
    if result.is_error:
        click.get_current_context().exit(EXIT_ERROR_RESULT)


async def _call(app: Antwort, name: str, arguments: str | bytes, ctx: Context, seconds: float | None) -> ToolResult:
    try:
        async with app.providers_only(rehearsal=False):  # not the app: a database comes about if a record does
            # The time starts here: what the providers need to start is not the function's.
            deadline = None if seconds is None else time.monotonic() + seconds
            result = await app.registry.execute(name, arguments, ctx.with_(deadline=deadline))
            await asyncio.sleep(0)  # for a signal that came while the function blocked: it must not cut off the closing
            return result
    finally:
        await app.close()


def _arguments(given: str | None) -> str | bytes:
    if given is not None and given != "-":
        return given
    stdin: TextIO | None = sys.stdin  # None in a process that was started without
    if stdin is None or (given is None and stdin.isatty()):
        return "{}"
    piped = stdin.buffer.read()
    return piped if piped.strip() else "{}"


def _print_progress(progress: Progress) -> None:
    share = "" if progress.fraction is None else f" ({progress.fraction:.0%})"
    click.echo(f"{progress.message}{share}", err=True)


# --- `antwort providers` ---------------------------------------------------------------------------------------------


@click.group(cls=Group)
def providers() -> None:
    """List what brings functions, routes and checks; take it out of service."""


add_switches(providers, "provider")


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider type within reach."""

    name: str
    state: str
    """`enabled` by the configuration or `default`, started as soon as it is used (`on demand`), or `available`."""
    origin: str
    functions: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """Those that it makes, with the stage of each."""


@providers.command("list")
@json_option
@configured
def list_providers(loaded: LoadedConfig, *, as_json: bool) -> None:
    """List every provider within reach; those that are on with what they bring."""
    rows = list(_provider_rows(Antwort(loaded)))
    if as_json:
        print_json([asdict(row) for row in rows])
    elif rows:
        print_table(
            ("name", "state", "origin", "functions", "routes", "checks"),
            [
                (row.name, row.state, row.origin, *map(", ".join, (row.functions, row.routes, row.checks)))
                for row in rows
            ],
        )
    else:
        click.echo("There are no providers. Install a package that brings some, or name a folder with --plugins-dir.")


def _provider_rows(app: Antwort) -> Iterator[ProviderRow]:
    config = app.config
    catalogue = Catalogue(plugins_dir=config.plugins_dir)
    enabled = enabled_providers(config, catalogue)
    default = default_providers(config, catalogue)
    for registration in app.registry.registrations():
        provider = enabled[registration.name]
        yield ProviderRow(
            registration.name,
            "default" if config.providers is None and registration.name in default else "enabled",
            catalogue.find(registration.name).origin if provider.use is None else f"use: {provider.use}",
            tuple(entry.spec.name for entry in registration.entries),
            tuple(str(route) for route in registration.routes),
            tuple(str(check) for check in registration.checks),
        )
    for found in catalogue:
        if found.name not in enabled:
            state = "on demand" if found.name in app.asleep.names else "available"
            yield ProviderRow(found.name, state, found.origin)
