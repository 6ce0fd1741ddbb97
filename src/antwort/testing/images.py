"""What `ScriptServer` answers to a request for images: made up, and always the same for the same request."""

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from antwort.errors import BadRequestError
from antwort.types import JSON

Action = Literal["generate", "edit"]
_CHOICES: Mapping[str, frozenset[object]] = {
    "background": frozenset({"transparent", "opaque", "auto"}),
    "moderation": frozenset({"auto", "low"}),
    "output_format": frozenset({"png", "jpeg", "webp"}),
    "quality": frozenset({"low", "medium", "high", "auto"}),
    "input_fidelity": frozenset({"high", "low"}),
    "n": frozenset({1}),
    "stream": frozenset({True, False}),
    "partial_images": frozenset({0, 1, 2, 3}),
}
_OF_EDITS = frozenset({"image", "mask", "input_fidelity"})
_FIELDS = frozenset({"prompt", "model", "size", "output_compression", *_CHOICES}) - _OF_EDITS
_SIZE = re.compile(r"auto|[1-9][0-9]{1,3}x[1-9][0-9]{1,3}")
_NUMBERS = ("n", "partial_images", "output_compression")


def read_form(fields: Mapping[str, Any]) -> JSON:
    """Return the fields of a form, where everything is text, with those that are numbers as such."""
    body: JSON = dict(fields)
    for name in _NUMBERS:
        if isinstance(body.get(name), str) and body[name].isdecimal():
            body[name] = int(body[name])
    if isinstance(body.get("stream"), str):
        body["stream"] = body["stream"] == "true"
    return body


def check_images(body: Mapping[str, Any], action: Action) -> None:
    """Raise BadRequestError for whatever is not as OpenAI's images API wants it."""
    known = _FIELDS | _OF_EDITS if action == "edit" else _FIELDS
    if unknown := sorted(body.keys() - known):
        raise BadRequestError(f"Unknown parameter: '{unknown[0]}'.", param=unknown[0])
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRequestError("prompt must be a text", param="prompt")
    if "moderated" in prompt:
        raise BadRequestError("Your request was rejected by the safety system.", code="moderation_blocked")
    for name, choices in _CHOICES.items():
        if name in body and body[name] not in choices:
            raise BadRequestError(f"Invalid value for '{name}': {body[name]!r}.", param=name)
    if not _SIZE.fullmatch(str(body.get("size", "auto"))):
        raise BadRequestError(f"Invalid value for 'size': {body['size']!r}.", param="size")
    compression = body.get("output_compression", 100)
    if not isinstance(compression, int) or not 0 <= compression <= 100:
        raise BadRequestError("output_compression must be from 0 to 100", param="output_compression")
    if body.get("partial_images") and not body.get("stream"):
        raise BadRequestError("'partial_images' needs 'stream'.", param="partial_images")
    if action == "edit" and not body.get("image"):
        raise BadRequestError("image must be a file, or several", param="image")


def image_events(body: Mapping[str, Any], action: Action) -> Iterator[JSON]:
    """Yield the events of an image that is streamed, the whole one last."""
    kind = f"image_{'edit' if action == 'edit' else 'generation'}"
    count = body.get("partial_images") or 0
    for index in range(count):
        yield {"type": f"{kind}.partial_image", "partial_image_index": index, **_image(body, f"partial {index}")}
    yield {"type": f"{kind}.completed", "usage": _usage(body), **_image(body, "whole")}


def images(body: Mapping[str, Any]) -> JSON:
    """Return the answer with an image."""
    image = _image(body, "whole")
    data = [{"b64_json": image.pop("b64_json"), "revised_prompt": f"{body['prompt']}, in oil"}]
    return {**image, "created": image.pop("created_at"), "data": data, "usage": _usage(body)}


def _image(body: Mapping[str, Any], stage: str) -> JSON:
    """Return an image with what it is like: a single point, whose colour says what was asked for."""
    asked = f"{sorted((name, str(body[name])) for name in ('prompt', 'size') if name in body)}{stage}"
    given = {name: body.get(name, default) for name, default in _LIKE.items()}
    return {"b64_json": base64.b64encode(point(asked)).decode(), "created_at": 0, **given}


_LIKE: Mapping[str, str] = {"background": "opaque", "output_format": "png", "quality": "high", "size": "1024x1024"}


def point(text: str) -> bytes:
    """Return a PNG of one point, in a colour that belongs to a text."""
    colour = hashlib.sha256(text.encode()).digest()[:3]
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" + colour)),
        (b"IEND", b""),
    )
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _usage(body: Mapping[str, Any]) -> JSON:
    tokens = len(str(body["prompt"]).split())
    details = {"text_tokens": tokens, "image_tokens": 0}
    return {"input_tokens": tokens, "input_tokens_details": details, "output_tokens": 1, "total_tokens": tokens + 1}
