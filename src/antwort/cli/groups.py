"""Groups of commands: they suggest one for a name they do not know, and can import theirs when they are called."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from typing_extensions import override

from antwort.errors import did_you_mean


class Group(click.Group):
    """A group that names the command nearest to one it does not have."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            if args[0].startswith("-"):
                raise click.NoSuchOption(args[0], ctx=ctx)
            ctx.fail(f"There is no command '{args[0]}'{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)


class Lazy(NamedTuple):
    """A command not imported yet."""

    target: str
    """Where it is, as `module:attribute`."""
    help: str
    """Its line in the list of commands."""

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


class LazyGroup(Group):
    """A group that can show its help, and refuse an unknown command, without importing any command."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else None

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.lazy.items()])
