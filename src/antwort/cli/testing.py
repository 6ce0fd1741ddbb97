"""`antwort testing`."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from antwort.cli.groups import Group
from antwort.testing.script_server import ScriptServer


@click.group(cls=Group)
def testing() -> None:
    """Help with tests."""


@testing.command("serve-model")
@click.argument("script", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port to listen on; 0 picks a free one.")
@click.option("--once", is_flag=True, help="End by itself once every step of the script was played.")
def serve_model(script: Path, host: str, port: int, once: bool) -> None:
    """Play a SCRIPT as a model server, in the words of Chat Completions.

    The script is a YAML file with the turns of the model. Each request is told in one line on standard error. At the
    end (an interrupt, or with --once the last step) whatever was not as written is listed, and the exit code is 1: a
    request the script did not foresee, or a step nobody asked for.
    """
    stop = threading.Event()

    def leave(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    server = ScriptServer.from_yaml(
        script,
        host=host,
        port=port,
        on_request=lambda line: click.echo(line, err=True),
        on_finished=stop.set if once else None,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    server.start()
    click.echo(f"Listening on {server.url}")
    sys.stdout.flush()
    stop.wait()
    server.stop()
    problems = server.script.problems()
    for problem in problems:
        click.echo(f"antwort: {problem}", err=True)
    raise click.exceptions.Exit(1 if problems else 0)
