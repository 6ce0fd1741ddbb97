"""Functions that any agent can use and that need nothing from outside: arithmetic and the time."""

from antwort.providers.basics.provider import Basics

__all__ = ["Basics"]
