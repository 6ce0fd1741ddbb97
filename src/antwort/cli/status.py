"""`antwort status`: how a running server is."""

import asyncio
import re
from collections.abc import Iterator, Sequence

import click
import msgspec
from msgspec import Struct

from antwort.cli.clients import RemoteClient
from antwort.cli.options import configured, json_option, server_options
from antwort.cli.output import CommandFailure, print_json
from antwort.cli.running_server import own_url
from antwort.cli.terminal import harmless
from antwort.config import LoadedConfig
from antwort.errors import APIError
from antwort.types import JSON

_SERIES = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_QUEUES, _CONNECTIONS, _BUILD = "antwort_queue_waiting", "antwort_backend_connections", "antwort_build_info"
_INGESTION = "antwort_ingestion_queue_depth"
_MOST = 100
_CLOSED = frozenset({401, 403, 404})
"""What is answered to a key that may not see something, and by a server that does not have it."""


class RunCounts(Struct, kw_only=True):
    """The background responses of the tenant that are not over, the newest hundred of each state."""

    in_progress: int
    queued: int
    waiting: int
    """How many of these wait for an answer."""


class ServerFigures(Struct, kw_only=True):
    """What the metrics say, added up over all workers of the server."""

    workers: int
    queues: dict[str, int]
    """How many wait, by what they wait for; where nobody does, there is none."""
    connections: dict[str, dict[str, int]]
    """Requests to model servers, by their state."""
    ingestion: int | None
    """Files that are not searchable yet."""


class ServerStatus(Struct, kw_only=True):
    """How a server is. What the key may not see is null."""

    url: str
    ready: bool
    why: str | None
    """Why it is not ready."""
    version: str | None
    model: str | None
    backends: Sequence[JSON]
    services: Sequence[JSON]
    figures: ServerFigures | None
    runs: RunCounts | None


@click.command()
@server_options
@json_option
@configured
def status(loaded: LoadedConfig, *, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Show how a running server is: whether it is ready, its model servers, queues and runs.

    If it is not ready the exit code is 1. Runs are those of the tenant of the key; what the key may not see is left
    out.
    """
    found = asyncio.run(_status(RemoteClient(url or own_url(loaded), api_key)))
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        for label, value in _lines(found):
            click.echo(f"{label:<12} {harmless(value)}")
    if not found.ready:
        raise CommandFailure(found.why or "The server is not ready.")


async def _status(client: RemoteClient) -> ServerStatus:
    code, body = await client.at_root("/readyz")
    said = _object(body)
    why = None if code == 200 else str((said.get("error") or {}).get("message") or f"It answers {code} to /readyz.")
    alive = said if code == 200 else _object((await client.at_root("/healthz"))[1])
    code, metrics = await client.at_root("/metrics")
    return ServerStatus(
        url=client.description,
        ready=why is None,
        why=why,
        version=alive.get("version"),
        model=alive.get("model"),
        backends=said.get("backends") or [],
        services=said.get("services") or [],
        figures=figures_of(metrics.decode(errors="replace")) if code == 200 else None,
        runs=await _runs(client) if why is None else None,
    )


def _object(body: bytes) -> JSON:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


async def _runs(client: RemoteClient) -> RunCounts | None:
    """Count runs; None if the key may not list them."""
    try:
        pages = [await client.request(f"/runs?limit={_MOST}&status={state}") for state in ("in_progress", "queued")]
    except APIError as error:
        if error.status not in _CLOSED:
            raise
        return None
    in_progress, queued = (page["data"] for page in pages)
    return RunCounts(
        in_progress=len(in_progress), queued=len(queued), waiting=sum(bool(run["waiting"]) for run in in_progress)
    )


def figures_of(page: str) -> ServerFigures:
    """Read the metrics in Prometheus' format."""
    queues: dict[str, int] = {}
    connections: dict[str, dict[str, int]] = {}
    workers, ingestion = 0, None
    for name, labelled, written in _SERIES.findall(page):
        if name == _BUILD:
            workers += 1
        if name not in {_QUEUES, _CONNECTIONS, _INGESTION}:
            continue
        labels = {label: re.sub(r"\\(.)", r"\1", text) for label, text in _LABEL.findall(labelled)}
        value = round(float(written))
        if name == _QUEUES and value:
            queues[labels["queue"]] = queues.get(labels["queue"], 0) + value
        elif name == _CONNECTIONS:
            states = connections.setdefault(labels["backend"], {})
            states[labels["state"]] = states.get(labels["state"], 0) + value
        if name == _INGESTION:  # each worker counts the files of all
            ingestion = max(ingestion or 0, value)
    return ServerFigures(workers=workers, queues=queues, connections=connections, ingestion=ingestion)


def _lines(found: ServerStatus) -> Iterator[tuple[str, str]]:
    """Yield what is told, each with its name."""
    yield "server", f"{found.url}, {'ready' if found.ready else 'not ready'}"
    if found.version is not None:
        yield "version", found.version
    if found.model is not None:
        yield "model", found.model
    for backend in found.backends:
        yield "backend", f"{backend['name']}: {backend['state']}, models: {backend['models']}"
        for name, state in (backend.get("replicas") or {}).items():
            yield "replica", f"{name}: {state}"
    for service in found.services:
        yield "service", f"{service['provider']} {service['name']}: {service['state']}"
    if (figures := found.figures) is not None:
        yield "workers", str(figures.workers)
        yield "waiting", ", ".join(f"{name}: {count:,}" for name, count in sorted(figures.queues.items())) or "nobody"
        for name, states in sorted(figures.connections.items()):
            yield "requests", f"{name}: " + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        if figures.ingestion is not None:
            yield "ingestion", f"{figures.ingestion:,} files are not searchable yet"
    if (runs := found.runs) is not None:
        yield "runs", f"{runs.in_progress} in progress, {runs.waiting} of them waiting; {runs.queued} queued"
