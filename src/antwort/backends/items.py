"""Wire items as backends give them to models: what several dialects do in the same way."""

import io
from typing import Any

import msgspec

from antwort.errors import BadRequestError
from antwort.types import JSON


class Pieces(io.StringIO):
    """Collects the pieces of a text. It costs no more than the text is long, however small they are."""

    add = io.StringIO.write
    text = io.StringIO.getvalue

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return self.tell() > 0


check_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Fails unless a text is a JSON object."""


def json_arguments(arguments: Any) -> str:
    """Return arguments that are JSON for certain: servers parse those of earlier turns and fail at others."""
    if not isinstance(arguments, str):
        return msgspec.json.encode(arguments or {}).decode()
    try:
        check_object(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _encoded({"invalid_arguments": arguments}) if arguments.strip() else "{}"
    return arguments


def text_of(content: Any) -> str:
    """Return the text of an assistant's message; a refusal is text too."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def with_extra(body: JSON, *extras: JSON) -> JSON:
    """Put further fields into a body, where they replace those that are there; null leaves a field out."""
    for extra in extras:
        for name, value in extra.items():
            if value is None:
                body.pop(name, None)
            else:
                body[name] = value
    return body


def _encoded(value: JSON) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        raise BadRequestError("The request holds text that is not valid Unicode.", param="input") from None
