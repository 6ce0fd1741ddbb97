"""Calls of functions as text: for models whose server does not read their calls, or takes no functions at all."""
