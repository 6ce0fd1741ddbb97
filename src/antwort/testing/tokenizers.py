"""Made-up tokenizers: each word is a token, counted in the ways of real servers."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

from antwort.backends.base import ModelRequest
from antwort.testing.chat import read_chat
from antwort.types import JSON

__all__ = ["Tokenizers", "count_words"]


def count_words(request: ModelRequest) -> int:
    """Count the words that a request gives a model to read: of instructions, items and tool definitions."""
    return len(_words(request))


class Tokenizers:
    """What a server with a tokenizer, a context window or both has beside its answers."""

    def __init__(self, kind: Literal["vllm", "llamacpp"] | None, window: int | None) -> None:
        self._kind = kind
        self._window = window

    def routes(self) -> dict[str, Callable[[JSON], JSON]]:
        """Return what answers at which path."""
        if self._kind == "vllm":
            return {"/tokenize": self._vllm_tokens}
        if self._kind == "llamacpp":
            return {"/tokenize": _llamacpp_tokens, "/apply-template": _template}
        return {}

    def listed(self) -> JSON:
        """Return what the list of models says about each; OpenAI's does not tell the window."""
        if self._window is None or self._kind is None:
            return {}
        if self._kind == "vllm":
            return {"max_model_len": self._window}
        return {"meta": {"n_ctx": self._window, "n_ctx_train": 2 * self._window}}

    def refusal(self, request: ModelRequest) -> JSON | None:
        """Return the body that refuses a request which is too long; None if it is not."""
        count = count_words(request)
        if self._window is None or count <= self._window:
            return None
        if self._kind == "llamacpp":
            message = f"request ({count} tokens) exceeds the available context size ({self._window} tokens)"
            error: JSON = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            return {"error": error | {"n_prompt_tokens": count, "n_ctx": self._window}}
        message = (
            f"This model's maximum context length is {self._window} tokens. However, your messages have {count} "
            "tokens. Please reduce their length."
        )
        if self._kind == "vllm":
            return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
        kind, code = "invalid_request_error", "context_length_exceeded"
        return {"error": {"message": message, "type": kind, "param": "messages", "code": code}}

    def _vllm_tokens(self, body: JSON) -> JSON:
        count = count_words(read_chat(body))
        return {"count": count, "max_model_len": self._window or 0, "tokens": list(range(count)), "token_strs": None}


def _llamacpp_tokens(body: JSON) -> JSON:
    return {"tokens": list(range(len(str(body.get("content", "")).split())))}


def _template(body: JSON) -> JSON:
    return {"prompt": " ".join(_words(read_chat(body)))}


def _words(request: ModelRequest) -> list[str]:
    return [word for text in _texts(request) for word in text.split()]


def _texts(request: ModelRequest) -> Iterator[str]:
    yield request.instructions or ""
    for item in request.items:
        for name in ("content", "summary", "name", "arguments", "input", "output"):
            yield from _texts_in(item.get(name))
    for tool in request.tools:
        yield json.dumps(tool, ensure_ascii=False)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list) else ():
        if isinstance(part, dict):
            yield str(part.get("text") or "")
