"""The console: a page for people, who would rather look than read."""

from antwort.server.console.pages import ConsolePages

__all__ = ["ConsolePages"]
