"""Code interpreter: Python that a model wrote, in a session that remembers."""

from antwort.providers.code_interpreter.provider import CodeInterpreter

__all__ = ["CodeInterpreter"]
