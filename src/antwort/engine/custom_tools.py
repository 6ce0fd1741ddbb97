"""Custom tools: they are the client's and take text.

Model servers only know functions, so each becomes a function with one parameter for the text. A grammar cannot be
enforced there; the model is told about it.
"""

import msgspec

from antwort.types import JSON


def custom_definition(tool: JSON) -> JSON:
    """Return the function that stands for a custom tool."""
    words = [str(tool["description"])] if tool.get("description") else []
    described: JSON = {"type": "string", "description": "The text for the tool, as it is."}
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        described["description"] = "The text for the tool. It must follow the grammar."
        words.append(f"The input must follow this {form.get('syntax')} grammar:\n{form.get('definition')}")
    return {
        "type": "function",
        "name": tool["name"],
        "description": "\n\n".join(words) or "Takes text.",
        "parameters": {
            "type": "object",
            "properties": {"input": described},
            "required": ["input"],
            "additionalProperties": False,
        },
    }


def custom_echo(tool: JSON) -> JSON:
    """Repeat a custom tool as responses do."""
    return {"format": {"type": "text"}, **tool}


def custom_input(arguments: str) -> str:
    """Return the text in the arguments of such a function; a model that wrote the text alone is understood too."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    return value if isinstance(value, str) else arguments
