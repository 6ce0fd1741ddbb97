"""`antwort mcp`."""

import click

from antwort.cli.event_loop import leaving_by_signals
from antwort.cli.model import backend_options, choose_model, probe_option
from antwort.cli.options import config_options, load, log_options
from antwort.config import LoadedConfig
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.observability import configure_logging
from antwort.server.mcp.methods import McpMethods
from antwort.server.mcp.stdio import StdioServer, taken_streams


@click.command()
@click.option("--tenant", default=ANONYMOUS_TENANT, show_default=True, help="Tenant to call functions for.")
@backend_options
@probe_option
@log_options
@config_options
@click.pass_context
def mcp(ctx: click.Context, /, *, tenant: str, no_probe: bool) -> None:
    """Be an MCP server on standard input and output.

    The functions are its tools. It is for clients that start it themselves. Nothing but the protocol is written to
    standard output; what is logged, and what functions print, goes to standard error. Where a server runs already,
    clients can use its /mcp instead.
    """
    _serve(load(ctx), tenant, probe=not no_probe)


def _serve(loaded: LoadedConfig, tenant: str, *, probe: bool) -> None:
    streams = taken_streams()
    app = choose_model(loaded, probe=probe).app()
    observability = app.config.observability
    configure_logging(observability.log_level, observability.log_format, redactor=app.redactor)
    caller = Context(tenant, subject="stdio", scopes=frozenset({"*"}))

    async def serve() -> None:
        try:
            await app.start(recover=False)
            methods = McpMethods(app.engine, app.runs.limits, app.registry.registrations)
            await StdioServer(methods, caller, streams, max_bytes=app.config.server.max_body_bytes).serve()
        finally:
            await app.close()

    with leaving_by_signals() as runner:
        runner.run(serve())
