"""Run the benchmarks and print one table. Figures in µs are CPU time; ratios are taken within one run."""

import argparse
import json
import platform
import signal
import sys

import antwort
from benchmarks.attacks import attacks_rows
from benchmarks.dispatch import dispatch_rows
from benchmarks.file_search import file_search_rows
from benchmarks.gateway import gateway_rows
from benchmarks.measure import BenchmarkError, Row

SLOW = ("attacks",)
"""Parts that only run with the large counts, or when they are asked for."""


def table(rows: list[Row]) -> str:
    head = ("what", "figure", "bar", "")
    lines = [(row.what, row.shown, row.bar_shown, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *lines]
    )


def main() -> int:
    parts = {
        "dispatch": dispatch_rows,
        "gateway": gateway_rows,
        "file_search": file_search_rows,
        "attacks": attacks_rows,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="more rounds, steadier figures, and the slow measurements")
    parser.add_argument("--only", choices=parts, help="run one part")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the way out ends the servers
    try:
        chosen = [options.only] if options.only else [name for name in parts if options.full or name not in SLOW]
        rows = [row for name in chosen for row in parts[name](full=options.full)]
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([row.as_json() for row in rows], indent=2))
    else:
        print(f"antwort {antwort.__version__}, Python {platform.python_version()}\n")
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
