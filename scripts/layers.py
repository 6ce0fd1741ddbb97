"""The layers of the source: `tests/architecture` holds them, and `docs/architecture.md` shows them."""

from collections.abc import Mapping

LAYERS = {
    "cli/": "commands, each imported when it is called, and the processes of a server",
    "testing/": "the provider kit, served apps, the pytest plug-in; public",
    "app.py": "the composition root: configuration → parts → ASGI app",
    "server/": "HTTP and WebSocket: the gate, router, endpoints, server-sent events, connections, OpenAPI, listening",
    "auth/": "authenticators, the chain of them, keys, rate limits",
    "runs/": (
        "who brings a response to its end when nobody waits for it at a socket: background responses, sub-agents, "
        "the event log, taking up what a crash left"
    ),
    "engine/": (
        "from a request to a response: plan, tools, window, loop, model turns, dispatch, approvals, emitter, journal"
    ),
    "extensions.py": (
        "the facade that extensions import: vector databases, embeddings, re-rankers, search engines, dialects, "
        "blob stores, sandboxes"
    ),
    "backends/": (
        "model servers: routing, resilience, the Chat Completions dialects, the Responses API, Anthropic's "
        "Messages, token counts, the demo model"
    ),
    "provider.py": "the facade that plug-ins import",
    "functions/": "the heart: spec, schema, provider, registry, execution, discovery",
    "web/": "the small HTTP kernel: routes, parameters, bodies, uploads, downloads, pages of lists, answers",
    "files/": "files of clients: rows in the store, bytes in a folder or a bucket, sweeps",
    "storage/": "what is kept: the store in SQL, on SQLite and on PostgreSQL; the tables and their revisions",
    "outbound/": "the client for the world outside, behind `ctx.http`: guarded against URLs that strangers name",
    "documents/": (
        "reading documents of many kinds, each in a process apart, and cutting them into chunks; what HTML says, "
        "of pages of the web too"
    ),
    "sandbox/": (
        "where code runs that a model wrote: namespaces, control groups, a user of its own, a filter of "
        "system calls; the folders of tenants that it works in"
    ),
    "search/": (
        "what searches, as whoever writes one sees it: the protocols of vector databases, embeddings, re-rankers and "
        "search engines, what filters mean, how two orders become one"
    ),
    "observability/": "metrics, logs, audit log, traces, redaction",
    "config/": "typed settings, loading, origins; finding extensions, and what packages declare",
    "callables.py": "what Python says about a callable: how it runs, its hints, its docstring",
    "context/": (
        "what a call has in its hands: who is calling, with which scopes, what the run may spend, and the "
        "services it reaches: variables, sub-agents, calls of its own, the client for the world outside, waiting"
    ),
    "wire/": "the structures of the Responses API: requests, items, responses, ids",
    "http1/": (
        "the one HTTP/1.1 client, with the limits of every answer: model servers, services and "
        "strangers' hosts are asked by it, through proxies too"
    ),
    "text/": (
        "text that strangers wrote, made safe to show to a model; regular expressions of models, which "
        "hold nobody up; parts of large values, found while they stream by; short "
        "texts, found by their words"
    ),
    "concurrency/": (
        "queues in which tenants take turns, worker threads, contained tasks, deadlines and stragglers, "
        "work that is done to its end, closing in time, work done once for all who wait, much work on a thread, "
        "other programs, what the processes of one server say to each other"
    ),
    "errors.py": "the tree of errors",
    "types.py": "the types of JSON",
    "lazy_imports.py": "what is made when it is used first: modules, regular expressions",
}
"""From top to bottom, with what is in each: a module imports only from layers below its own, or from its own."""

ROOMS = {
    "turns/": "how a response is made: turns of the model, what is done between them, its end",
    "planning/": "what a request asks for, with what came before it",
    "calls/": (
        "the life of a call that the server executes: admitted, approved, run, waiting, ended; its "
        "record is `storage/call_record.py`"
    ),
    "output/": "items and events, as they are written",
    "tools/": "what a model may call, and whose functions these are",
}
"""The rooms of the engine, in the same way; the modules beside them are no room."""


def rank(layers: Mapping[str, str]) -> dict[str, int]:
    """Return how far down each layer is, by the name it is imported by."""
    return {name.strip("/").removesuffix(".py"): rank for rank, name in enumerate(layers)}


def markdown_table(layers: Mapping[str, str], title: str) -> str:
    """Return the table of layers for a page."""
    rows = [f"| `{name}` | {what} |" for name, what in layers.items()]
    return "\n".join([f"| {title} | What it is |", "|---|---|", *rows])
