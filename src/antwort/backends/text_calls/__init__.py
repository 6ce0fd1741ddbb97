"""Calls of functions as text: for models whose server does not read their calls, or takes no functions at all."""

from antwort.backends.text_calls.backend import with_tool_calls

__all__ = ["with_tool_calls"]
