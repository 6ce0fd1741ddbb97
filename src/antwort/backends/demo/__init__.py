"""The built-in demo model: rules in place of a language model, so that the server answers without a model server."""

from antwort.backends.demo.backend import DemoBackend
from antwort.backends.demo.name import DEMO_MODEL

__all__ = ["DEMO_MODEL", "DemoBackend"]
