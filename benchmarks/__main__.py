"""Run the benchmarks and print one table, with the method by which its figures were taken."""

import argparse
import json
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import antwort
from benchmarks.attacks import attacks_rows
from benchmarks.background_runs import METHOD as BACKGROUND_METHOD
from benchmarks.background_runs import background_rows
from benchmarks.dispatch import dispatch_rows
from benchmarks.endurance import METHOD as ENDURANCE_METHOD
from benchmarks.endurance import endurance_rows
from benchmarks.everything import METHOD as EVERYTHING_METHOD
from benchmarks.everything import SECONDS as EVERYTHING_SECONDS
from benchmarks.everything import everything_rows
from benchmarks.file_search import file_search_rows
from benchmarks.finding import METHOD as FINDING_METHOD
from benchmarks.finding import finding_rows
from benchmarks.growth import METHOD as GROWTH_METHOD
from benchmarks.growth import growth_rows
from benchmarks.http_libraries import METHOD as HTTP_METHOD
from benchmarks.http_libraries import http_rows
from benchmarks.ingestion import METHOD as INGESTION_METHOD
from benchmarks.ingestion import ingestion_rows
from benchmarks.json_parts import METHOD as JSON_METHOD
from benchmarks.json_parts import json_rows
from benchmarks.mcp_calls import METHOD as MCP_METHOD
from benchmarks.mcp_calls import mcp_rows
from benchmarks.measure import BenchmarkError, Row, positive
from benchmarks.pages import METHOD as PAGES_METHOD
from benchmarks.pages import pages_rows
from benchmarks.programs import METHOD as PROGRAMS_METHOD
from benchmarks.programs import programs_rows
from benchmarks.retrieval import METHOD as RETRIEVAL_METHOD
from benchmarks.retrieval import retrieval_rows
from benchmarks.sandboxes import METHOD as SANDBOXES_METHOD
from benchmarks.sandboxes import sandboxes_rows
from benchmarks.shares import METHOD as SHARES_METHOD
from benchmarks.shares import shares_rows
from benchmarks.sub_agents import METHOD as AGENTS_METHOD
from benchmarks.sub_agents import agents_rows
from benchmarks.workloads import METHOD, gateway_rows, rounds_of


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    full: bool
    rounds: int
    seconds: float
    """How long streams must be endured."""
    mixed_seconds: float
    """How long everything is used at once."""
    plot: Path | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmarks: how its rows are taken, and how one can tell what they mean."""

    rows: Callable[[Options], list[Row]]
    method: str = ""
    """May name the `{rounds}`."""
    slow: bool = False
    """Whether it only runs with the large counts, or when it is asked for."""


PARTS = {
    "dispatch": Part(lambda options: dispatch_rows(full=options.full)),
    "gateway": Part(lambda options: gateway_rows(full=options.full, rounds=options.rounds), METHOD),
    "http": Part(lambda options: http_rows(full=options.full, rounds=options.rounds), HTTP_METHOD),
    "json": Part(lambda options: json_rows(full=options.full), JSON_METHOD),
    "mcp": Part(lambda options: mcp_rows(full=options.full), MCP_METHOD),
    "file_search": Part(lambda _: file_search_rows(), slow=True),
    "retrieval": Part(lambda _: retrieval_rows(), RETRIEVAL_METHOD, slow=True),
    "finding": Part(lambda _: finding_rows(), FINDING_METHOD, slow=True),
    "ingestion": Part(lambda _: ingestion_rows(), INGESTION_METHOD, slow=True),
    "pages": Part(lambda _: pages_rows(), PAGES_METHOD, slow=True),
    "agents": Part(lambda _: agents_rows(), AGENTS_METHOD, slow=True),
    "programs": Part(lambda _: programs_rows(), PROGRAMS_METHOD, slow=True),
    "sandboxes": Part(lambda _: sandboxes_rows(), SANDBOXES_METHOD, slow=True),
    "shares": Part(lambda _: shares_rows(), SHARES_METHOD, slow=True),
    "background": Part(lambda options: background_rows(rounds=options.rounds), BACKGROUND_METHOD, slow=True),
    "growth": Part(lambda options: growth_rows(rounds=options.rounds, folder=options.plot), GROWTH_METHOD, slow=True),
    "endurance": Part(lambda options: endurance_rows(seconds=options.seconds), ENDURANCE_METHOD, slow=True),
    "everything": Part(lambda options: everything_rows(seconds=options.mixed_seconds), EVERYTHING_METHOD, slow=True),
    "attacks": Part(lambda options: attacks_rows(full=options.full), slow=True),
}

OPTIONS = {
    "rounds": ("gateway", "http", "background", "growth"),
    "seconds": ("endurance", "everything"),
    "plot": ("growth",),
}
"""Which parts take which option."""


def table(rows: list[Row]) -> str:
    head = ("what", "figure", "bar", "")
    lines = [(row.what, row.shown, row.bar_shown, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *lines]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="more rounds, steadier figures, and the slow measurements")
    parser.add_argument("--only", choices=PARTS, help="run one part")
    parser.add_argument(
        "--rounds",
        type=positive,
        help="how often all is measured in turn, of gateway, http, background and growth: 15 times, or 31 with --full",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--seconds",
        type=positive,
        help="how long streams must be endured, of endurance: 600; how long all is used, of everything: 1200",
    )
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="write plots of growth into a folder")
    given = parser.parse_args(arguments)
    names = [given.only] if given.only else [name for name, part in PARTS.items() if given.full or not part.slow]
    for option, owners in OPTIONS.items():
        if getattr(given, option) is not None and not set(owners) & set(names):
            parser.error(f"argument --{option}: is for {', '.join(owners)}; add --only {owners[0]}, or --full")
    rounds = given.rounds or rounds_of(full=given.full)
    options = Options(
        full=given.full,
        rounds=rounds,
        seconds=given.seconds or 600,
        mixed_seconds=given.seconds or EVERYTHING_SECONDS,
        plot=given.plot,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the way out ends the servers
    parts = [PARTS[name] for name in names]
    rows: list[Row] = []
    try:
        for name, part in zip(names, parts, strict=True):
            print(f"measuring {name} …", file=sys.stderr, flush=True)  # it takes minutes
            rows += part.rows(options)
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([row.as_json() for row in rows], indent=2))
        return 0
    methods = [part.method.format(rounds=options.rounds) for part in parts if part.method]
    version = f"antwort {antwort.__version__}, Python {platform.python_version()}, {platform.machine()}"
    print("\n\n".join([version, *methods, table(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
