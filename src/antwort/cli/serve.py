"""`antwort serve`."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import click
from msgspec.structs import replace

from antwort.app import Antwort
from antwort.auth import allowed_hosts, check_bind, shows_console
from antwort.cli.banner import banner, tell_backends
from antwort.cli.event_loop import StuckLoop, run_contained, stop_limit
from antwort.cli.model import ModelChoice, backend_options, check_customers, choose_model, keep_looking, probe_option
from antwort.cli.options import configured, load_again, log_options, setting
from antwort.cli.reload import Hangups, Reload, has_terminal
from antwort.cli.running_server import announced, callable_url
from antwort.cli.supervisor import Supervisor, Worker
from antwort.concurrency.contained_tasks import end_tasks, left_behind
from antwort.config import LoadedConfig
from antwort.errors import ConfigError
from antwort.observability import configure_logging
from antwort.observability.logs import is_read_by_people
from antwort.sandbox.mounts import MountSpace
from antwort.server.http.serve import Server, bind, bind_many, raise_limit
from antwort.storage.claims import claimed
from antwort.storage.urls import database_url, is_postgres

logger = logging.getLogger(__name__)
_SPARE = 5.0
"""Seconds that a worker has to end by itself when its time to stop is over."""


@click.command()
@setting("--host", "server.host", help="Address to listen on.")
@setting("--port", "server.port", type=int, help="Port to listen on; 0 picks a free one.")
@setting("--workers", "server.workers", type=int, help="Processes that answer; more than one need PostgreSQL.")
@setting(
    "--with-worker/--without-worker",
    "server.with_worker",
    help="Work on background responses here, or leave them to 'antwort worker'.",
)
@setting(
    "--allow-anonymous",
    "server.allow_anonymous",
    is_flag=True,
    help="Serve without authentication on an address other machines can reach.",
)
@log_options
@backend_options
@setting("--model", "engine.default_model", help="Model of requests that name none.")
@probe_option
@configured
def serve(loaded: LoadedConfig, *, no_probe: bool) -> None:
    """Run the server.

    It listens only once everything has started, and says so on standard output; the log goes to standard error.
    Without a model server, one is looked for: OPENAI_BASE_URL if it is on this machine or network, then Ollama, vLLM,
    LM Studio and llama.cpp on this machine. If there is none, the built-in demo model answers until one appears; with
    authentication or a database configured it does so only by name: --backend demo. A public service is asked only by
    name, too: --backend openai takes OPENAI_API_KEY.
    """
    _start(loaded, _reload(loaded), no_probe=no_probe)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the health check and the metrics.")
@click.option("--port", default=0, show_default=True, help="Port of these; 0 picks a free one.")
@setting("--workers", "server.workers", type=int, help="Processes that work.")
@log_options
@backend_options
@probe_option
@configured
def worker(loaded: LoadedConfig, *, host: str, port: int, no_probe: bool) -> None:
    """Work on background responses that servers have accepted.

    It is a server that nobody has to know: it takes the background responses of all servers on its PostgreSQL database,
    beside those that work on them themselves. It listens for health checks and metrics.
    """
    if not is_postgres(database_url(loaded.config)):
        message = "a worker shares a PostgreSQL database with servers; set storage.url to that"
        raise ConfigError(message, where="storage.url")
    server = loaded.config.server.model_copy(update={"host": host, "port": port, "with_worker": True})
    changed = replace(loaded, config=loaded.config.model_copy(update={"server": server}))
    _start(changed, _reload(loaded), no_probe=no_probe)


def _reload(loaded: LoadedConfig) -> Reload | None:
    """Return what a hangup has done; None if it stops the server, which belongs to a terminal."""
    if has_terminal():
        return None
    return Reload(partial(load_again, click.get_current_context(), loaded.path), loaded.config)


def _start(loaded: LoadedConfig, reload: Reload | None, *, no_probe: bool) -> None:
    config = loaded.config
    configure_logging(config.observability.log_level, config.observability.log_format)
    check_bind(config, file=loaded.path)
    raise_limit()
    choice = choose_model(_settled(loaded), probe=not no_probe, own_port=config.server.port)
    check_customers(choice.loaded.config)
    if config.server.workers == 1:
        _serve_alone(choice, reload)
        return
    if not sys.platform.startswith("linux"):
        raise ConfigError("server.workers: more than one need Linux, which spreads connections over them")
    listeners = bind_many(config.server.host, config.server.port, config.server.workers)
    limit = stop_limit(config)
    stopping = None if limit is None else limit + _SPARE  # workers know of it themselves
    mounts = MountSpace.for_processes(config.server.workers)
    worker = Supervisor(
        listeners,
        click.echo,
        patience=config.server.worker_timeout,
        starting=config.functions.start_timeout,
        stopping=stopping,
        reload=None if reload is None else partial(reload.look_for_workers, choice.loaded.config),
    ).run()
    if isinstance(worker, int):
        raise click.exceptions.Exit(worker)
    _serve_as(choice, reload, worker, mounts)


def _serve_alone(choice: ModelChoice, reload: Reload | None) -> None:
    """Serve in this process."""
    app = choice.app()
    server = app.config.server
    with bind(server.host, server.port) as sock, claimed(app.claims()):
        _run(app, sock, reload, lambda: click.echo(banner(app, sock, choice.note)), looks=choice.keeps_looking)


def _serve_as(choice: ModelChoice, reload: Reload | None, worker: Worker, mounts: MountSpace | None) -> None:
    """Serve in this process, as one of several."""
    logs = choice.loaded.config.observability
    configure_logging(logs.log_level, logs.log_format, worker=worker.peers.number)
    app = choice.app(worker.peers, mounts)
    with worker.listener as sock:
        _run(app, sock, reload, lambda: worker.tell_ready(banner(app, sock, choice.note)), worker)


def _run(
    app: Antwort,
    sock: socket.socket,
    reload: Reload | None,
    on_ready: Callable[[], None],
    worker: Worker | None = None,
    *,
    looks: bool = False,
) -> None:
    """Serve until a signal comes; `looks` for a model server meanwhile."""
    logs, number = app.config.observability, None if worker is None else worker.peers.number
    # Now the secrets of providers are known.
    configure_logging(logs.log_level, logs.log_format, redactor=app.redactor, worker=number)
    stuck: StuckLoop | None = None
    try:
        with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
            loop = runner.get_loop()
            hangups = Hangups(reload, app, number)
            lifeline = None if worker is None else worker.lifeline
            stuck = StuckLoop(app.config, loop, ending=hangups.stopping, lifeline=lifeline)
            if worker is not None:
                worker.live(loop)
            app.command = partial(_command, app.loaded)
            serving = _serve(app, sock, hangups, stuck, on_ready, worker=number, looks=looks)
            run_contained(loop, serving, entered_again=stuck.listen)
    finally:
        if stuck is not None:
            stuck.enter("gone")


def _command(loaded: LoadedConfig, *words: str) -> list[str]:
    """Return how another command of this program, one with a log, is started with the same configuration."""
    config = loaded.config
    options = {
        "--config": loaded.path,
        "--data-dir": config.data_dir,
        "--plugins-dir": config.plugins_dir,
        "--log-level": config.observability.log_level,
        "--log-format": config.observability.log_format,
    }
    given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
    return [sys.executable, "-m", "antwort", *words, *given]


def _settled(loaded: LoadedConfig) -> LoadedConfig:
    """Settle which hosts are answered to, whether people are shown the console, and whether requests are logged.

    Only here it is sure that the server listens where it is configured to, and who reads its log.
    """
    config = loaded.config
    server = config.server.model_copy(update={"allowed_hosts": allowed_hosts(config), "console": shows_console(config)})
    logs = config.observability
    if logs.access_log is None:
        logs = logs.model_copy(update={"access_log": is_read_by_people(logs.log_level, logs.log_format)})
    return replace(loaded, config=config.model_copy(update={"server": server, "observability": logs}))


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    app: Antwort,
    sock: socket.socket,
    hangups: Hangups,
    stuck: StuckLoop,
    on_ready: Callable[[], None],
    *,
    worker: int | None,
    looks: bool,
) -> None:
    """Start, serve until a signal comes, and close. A signal while starting ends the start; `worker` is its number.

    Each further signal ends what is waited for. A worker hears it as an interrupt from the process that has the
    workers: whoever ends all processes of a service sends it a first signal that comes twice.
    """
    loop = asyncio.get_running_loop()
    telling: list[asyncio.Task[None]] = []
    closing: list[asyncio.Task[None]] = []
    written = contextlib.ExitStack()

    def listening() -> None:
        telling.extend(hangups.begin(loop))
        if worker in {None, 0}:
            written.enter_context(announced(app.config.data_dir, callable_url(*sock.getsockname()[:2])))
        on_ready()
        if worker in {None, 0}:  # a model server that takes its time does not keep the start waiting
            telling.append(loop.create_task(tell_backends(app, click.echo)))
        if looks:
            telling.append(loop.create_task(keep_looking(app, click.echo, own_port=app.config.server.port)))

    server = Server(app.connect, app.config.server, on_ready=listening, on_stop=app.stopping)
    starting = asyncio.ensure_future(app.start())

    def stop(number: int) -> None:
        hurry = worker is None or number == signal.SIGINT
        server.stop(hurry=hurry)
        starting.cancel()
        if hurry:
            for task in closing:
                task.cancel()

    hangups.hear(loop, stop)
    stuck.listen()
    try:
        await starting
    except asyncio.CancelledError:
        stuck.enter("over")
        if server.stopping:
            return
        raise
    except BaseException:
        stuck.enter("over")
        raise
    stuck.enter("serving")
    _spare_the_collector()
    try:
        with written:
            await server.serve([sock])
    finally:
        stuck.enter("closing")
        await end_tasks(telling, app.config.functions.grace)
        closing.append(loop.create_task(app.close(), name="closing"))
        await _close(closing[0], app.config.functions.grace)
        stuck.enter("over")


async def _close(closing: asyncio.Task[None], grace: float) -> None:
    """Wait until an app is closed, or somebody is in a hurry, and end what goes on all the same."""
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    await _end_the_rest(grace)
    await _leave_the_rest(grace)


async def _end_the_rest(grace: float) -> None:
    """End tasks that are nobody's: the loop would wait for them, for ever if they do not want to end."""
    for name in await end_tasks(asyncio.all_tasks() - {asyncio.current_task()}, grace):
        logger.warning("%s does not end; it is left behind", name)


async def _leave_the_rest(grace: float) -> None:
    """End the process if tasks, or threads of `asyncio.to_thread`, do not end: all else is closed.

    It would wait for such threads. The coroutine of such a task is told to end when nobody has it any more, and may go
    on for ever then.
    """
    loop = asyncio.get_running_loop()
    ending = asyncio.ensure_future(loop.shutdown_default_executor())
    await asyncio.wait({ending}, timeout=grace)
    left = left_behind(loop) + ([] if ending.done() else ["threads of functions or providers"])
    if left:
        logger.warning("the process ends without what does not end: %s", ", ".join(left))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _spare_the_collector() -> None:
    """Keep what lives as long as the process out of the garbage collector's rounds, and make the rounds rarer.

    What the start has left behind is kept as well: to find that megabyte would take longer than most imports.
    Requests leave hardly any cycles behind; with the default thresholds a round would come with nearly each of them.
    The second generation stays small: a round of it holds up everything, and a large request fills it quickly.
    """
    gc.freeze()
    gc.set_threshold(20_000, 2, 1_000)
