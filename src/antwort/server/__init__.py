"""HTTP: the ASGI app, its middleware and its endpoints."""

from antwort.server.asgi import Parts, build_asgi, build_websockets

__all__ = ["Parts", "build_asgi", "build_websockets"]
