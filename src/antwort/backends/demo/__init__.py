"""The built-in demo model: rules in place of a language model, so that the server answers without a model server."""

from antwort.backends.demo.backend import DEMO_MODEL, DemoBackend

__all__ = ["DEMO_MODEL", "DemoBackend"]
