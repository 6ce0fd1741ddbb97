"""`antwort`: the list of commands."""

import gc
import io
import logging
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

import antwort
from antwort.cli.groups import Lazy, LazyGroup
from antwort.cli.output import DEBUG, failure_of, misuse_of

COMMANDS = {
    "serve": Lazy("antwort.cli.serve:serve", "Run the server."),
    "worker": Lazy("antwort.cli.serve:worker", "Work on background responses that servers have accepted."),
    "run": Lazy("antwort.cli.run:run", "Ask a question and print the answer; without a question, chat."),
    "mcp": Lazy("antwort.cli.mcp:mcp", "Be an MCP server on standard input and output."),
    "questions": Lazy(
        "antwort.cli.questions:questions",
        "List and answer what models ask people, and calls that wait for a yes.",
    ),
    "webhooks": Lazy(
        "antwort.cli.webhooks:webhooks",
        "List messages to the webhook that were given up; send them again, or drop them.",
    ),
    "runs": Lazy("antwort.cli.runs:runs", "List, show, trace, cancel, retry and follow responses."),
    "status": Lazy(
        "antwort.cli.status:status",
        "Show how a running server is: whether it is ready, its model servers, queues and runs.",
    ),
    "ingest": Lazy("antwort.cli.ingest:ingest", "Make files searchable."),
    "init": Lazy("antwort.cli.config:init", "Write a configuration file with every key and its default."),
    "check": Lazy("antwort.cli.check:check", "Check that the server would start, without listening."),
    "config": Lazy("antwort.cli.config:config", "Show the configuration that is in force."),
    "functions": Lazy("antwort.cli.functions:functions", "List, show and call functions; take them out of service."),
    "providers": Lazy(
        "antwort.cli.functions:providers", "List what brings functions, routes and checks; take it out of service."
    ),
    "keys": Lazy("antwort.cli.keys:keys", "Create, list and revoke API keys."),
    "db": Lazy("antwort.cli.db:db", "Look after the database."),
    "backup": Lazy(
        "antwort.cli.backup:backup", "Write all that the server keeps to one file, FILE; a server may be running."
    ),
    "restore": Lazy("antwort.cli.backup:restore", "Bring back what 'antwort backup' wrote to FILE."),
    "new": Lazy("antwort.cli.new:new", "Start something of your own from a template."),
    "testing": Lazy("antwort.cli.testing:testing", "Help with tests."),
}

EXIT_INTERRUPTED = 130


class Root(LazyGroup):
    """The group that turns what its commands raise into one line on standard error and an exit code."""

    @override
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise misuse_of(error) from None

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise misuse_of(error) from None
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click knows what to do
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            if ctx.meta.get(DEBUG):
                traceback.print_exception(error)
            raise failure_of(error) from error


def _remember_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[DEBUG] = value


@click.group(cls=Root, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(antwort.__version__, message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=_remember_debug, help="Show the traceback of an error."
)
def root() -> None:
    """Run and look after antwort, a self-hosted server for agents."""


def _open_missing_streams() -> None:
    """Give a process without a standard stream one that keeps nothing: a socket would take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def main() -> None:
    """Run the command line and exit."""
    _open_missing_streams()
    gc.set_threshold(200_000)  # imports leave little to collect: looking for it would be a sixth of what a start costs
    # To look for plug-ins pydantic reads a file of every installed package; whoever has one may set the variable to "".
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    code: object = 1
    try:
        root.main(prog_name="antwort")
    except SystemExit as leaving:
        code = leaving.code
        raise
    finally:
        gc.freeze()  # what is left ends with the process: looking for circles in it is a third of a short command
        end_for_certain(code if isinstance(code, int) else int(code is not None))


# --- the end of the process -------------------------------------------------------------------------------------------


_PATIENCE = 2.0
"""Seconds that threads and what is registered to be called at the end have."""
_LATEST = 2 * _PATIENCE
"""Seconds after which the system ends the process, also if Python is in no state to do that any more."""


def end_for_certain(code: int) -> None:
    """Let the process end in time with a code. It is to be called when there is nothing left to be done.

    Python waits for every thread that is no daemon, then calls what is registered with `atexit`, then lets go of all
    there is, where a coroutine that does not want to end goes on for ever.
    """
    threading.Thread(target=_end, args=(code,), name="antwort-end", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends already, and has said with which code
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _LATEST)


def _end(code: int) -> None:
    time.sleep(_PATIENCE)
    threads = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread.is_alive())
    others = [name for name in threads if name != threading.main_thread().name]
    logging.getLogger(__name__).warning(
        "the process ends without what does not end: %s",
        f"threads {', '.join(others)}" if others else "what is called at its end",
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
