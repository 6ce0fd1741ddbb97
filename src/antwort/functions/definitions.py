"""Functions as tool definitions, in the three shapes that model APIs read."""

import copy
from typing import Any, Literal

from antwort.functions.spec import FunctionSpec

__all__ = ["Shape", "tool_definition"]

Shape = Literal["responses", "chat", "anthropic"]


def tool_definition(spec: FunctionSpec, shape: Shape = "responses") -> dict[str, Any]:
    """Return the definition of a function for the Responses API, Chat Completions, or Anthropic's Messages API."""
    strict = spec.strict_parameters
    parameters = copy.deepcopy(dict(spec.parameters) if strict is None else strict)
    if shape == "anthropic":
        return {"name": spec.name, "description": spec.description, "input_schema": parameters}
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": parameters,
        "strict": strict is not None,
    }
    if shape == "chat":
        return {"type": "function", "function": function}
    if shape == "responses":
        return {"type": "function", **function}
    raise ValueError(f"'{shape}' is not a shape of tool definitions; use 'responses', 'chat' or 'anthropic'")
