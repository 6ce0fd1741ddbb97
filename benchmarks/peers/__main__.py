"""Compare antwort with other gateways that serve the Responses API, in front of the same mock model, in one run."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.measure import BenchmarkError, positive
from benchmarks.peers.comparing import compare
from benchmarks.peers.gateways import gateways
from benchmarks.peers.plot import plotted
from benchmarks.peers.results import Comparison
from benchmarks.peers.tables import markdown, replaced, terminal

README = "README.md"
PICTURE = "docs/images/peers.svg"
ROUNDS = 15


def read_comparison(file: Path) -> Comparison:
    """Read what `--json` has written."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Comparison)
    except (OSError, msgspec.MsgspecError) as error:
        raise BenchmarkError(f"{file} is not what --json writes: {error}") from error


def check_page(file: Path) -> None:
    """Refuse a page into which no table can be written, before the work."""
    try:
        replaced(file.read_text(), "")
    except OSError as error:
        raise BenchmarkError(f"{file} cannot be read: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    names = [gateway.name for gateway in gateways()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=positive, help=f"how often each row is measured ({ROUNDS})")
    parser.add_argument("--only", choices=names, action="append", help="leave the other gateways out; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--from", dest="source", type=Path, help="take the figures from such JSON, measure nothing")
    parser.add_argument(
        "--markdown", nargs="?", const=README, type=Path, help=f"write the table into a page ({README})"
    )
    parser.add_argument("--plot", nargs="?", const=PICTURE, type=Path, help=f"draw the figures ({PICTURE})")
    options = parser.parse_args(arguments)
    if options.source and (options.only or options.rounds):
        parser.error("argument --from: measures nothing, so that --only and --rounds have no meaning")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the way out ends the servers
    try:
        if options.markdown:
            check_page(options.markdown)
        if options.source:
            comparison = read_comparison(options.source)
        else:
            chosen = [gateway for gateway in gateways() if not options.only or gateway.name in options.only]
            comparison = compare(chosen, rounds=options.rounds or ROUNDS)
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    if options.plot:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        options.plot.write_text(plotted(comparison))
    if options.markdown:
        address = os.path.relpath(options.plot, options.markdown.parent) if options.plot else ""
        page = options.markdown.read_text()
        options.markdown.write_text(replaced(page, markdown(comparison, plot=address)))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(comparison)).decode())
    else:
        print(terminal(comparison))
    return 0


if __name__ == "__main__":
    sys.exit(main())
