"""Wire items as input of a server that speaks the Responses API itself.

- Ids are left out: they are ours, and a server that stores nothing for us cannot know them.
- What the assistant said is plain text, which every server takes; only its `phase` goes with it.
- Calls of custom tools and their outputs are those of functions with the argument `input`.
- Thoughts go back in the sealed form in which the server gave them; without it they are left out, since servers refuse
  thoughts they did not write.
- Items that only mean something to us (hosted calls, references, compactions) are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from antwort.backends.items import as_function, json_arguments, text_of
from antwort.errors import BadRequestError
from antwort.types import JSON

__all__ = ["responses_input"]


_ROLES = frozenset({"user", "system", "developer"})
_FILE_FIELDS = ("filename", "file_data", "file_url", "detail")


def responses_input(items: Sequence[JSON]) -> list[JSON]:
    """Return the items of a conversation; content that cannot be passed on is a BadRequestError."""
    return list(_items(items))


def _items(items: Sequence[JSON]) -> Iterator[JSON]:
    for given in items:
        item = as_function(given)
        match item.get("type") or "message":
            case "message":
                yield _message(item)
            case "function_call":
                yield {
                    "type": "function_call",
                    "call_id": item.get("call_id"),
                    "name": item.get("name"),
                    "arguments": json_arguments(item.get("arguments")),
                }
            case "function_call_output":
                output = item.get("output")
                yield {
                    "type": "function_call_output",
                    "call_id": item.get("call_id"),
                    "output": "" if output is None else _content(output),
                }
            case "reasoning" if item.get("encrypted_content"):
                yield {
                    "type": "reasoning",
                    "summary": item.get("summary") or [],
                    "encrypted_content": item["encrypted_content"],
                }


def _message(item: JSON) -> JSON:
    role = item.get("role")
    message: JSON = {"type": "message", "role": role}
    if role == "assistant":
        message["content"] = text_of(item.get("content"))
        if item.get("phase") is not None:
            message["phase"] = item["phase"]
        return message
    if role not in _ROLES:
        raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")
    message["content"] = _content(item.get("content") or "")
    return message


def _content(content: Any) -> str | list[JSON]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    return [_part(part) for part in content]


def _part(part: JSON) -> JSON:
    kind = part.get("type")
    if kind in {"input_image", "input_file"}:
        _check_reference(part)
    if kind == "input_image":
        return {"type": kind, "image_url": part.get("image_url"), "detail": part.get("detail") or "auto"}
    if kind == "input_file":
        return {"type": kind, **{name: part[name] for name in _FILE_FIELDS if part.get(name) is not None}}
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return {"type": "input_text", "text": text}
    raise BadRequestError(
        f"Content of the type '{kind}' cannot be given to the model.", param="input", code="unsupported_content"
    )


def _check_reference(part: JSON) -> None:
    fields, what = (("image_url",), "image") if part["type"] == "input_image" else (("file_data", "file_url"), "file")
    if any(isinstance(part.get(name), str) and part[name] for name in fields):
        return
    names = " or ".join(f"`{name}`" for name in fields)
    by_id = part.get("file_id") is not None
    reason = f"{what.capitalize()}s cannot be named by `file_id` yet" if by_id else f"The {what} has no {names}"
    raise BadRequestError(f"{reason}; send it as {names}.", param="input", code=f"unsupported_{what}")
