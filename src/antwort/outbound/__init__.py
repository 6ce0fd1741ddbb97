"""The HTTP client for the world outside: guarded for URLs that strangers name, plain for those of the operator."""

from antwort.outbound.client import Outbound

__all__ = ["Outbound"]
