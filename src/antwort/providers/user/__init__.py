"""The human user as functions: ask, notify, give the final answer; and the routes by which people answer."""

from antwort.providers.user.provider import User

__all__ = ["User"]
