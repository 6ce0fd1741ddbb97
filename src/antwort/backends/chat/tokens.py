"""Token counts by the tokenizers of servers that speak Chat Completions."""

from antwort.backends.tokens import TokenEndpoint
from antwort.types import JSON

__all__ = ["ChatTokens"]


_PROMPT = ("messages", "tools", "chat_template", "chat_template_kwargs")
"""Fields of a request that become part of what the model reads."""


class ChatTokens:
    """Counts the tokens of a request the way its server does.

    vLLM counts messages at `/tokenize`. llama.cpp has an endpoint of the same name that only knows text, and another
    that makes text of messages. Which of them a server is, its first answer tells.
    """

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._by_text = False

    async def count(self, body: JSON) -> int | None:
        """Return the tokens of what a request gives to read; None if the server does not count."""
        prompt = {name: body[name] for name in _PROMPT if name in body}
        if not self._by_text:
            asked = {"model": body.get("model"), **prompt, "add_generation_prompt": True}
            answer = await self._endpoint.ask("/tokenize", asked)
            if answer is None:
                return None
            if isinstance(count := answer.get("count"), int):
                return count
            self._by_text = isinstance(answer.get("tokens"), list)
        return await self._count_text(prompt) if self._by_text else self._unknown()

    async def _count_text(self, prompt: JSON) -> int | None:
        answer = await self._endpoint.ask("/apply-template", prompt)
        if answer is None:
            return None
        text = answer.get("prompt")
        if not isinstance(text, str):
            return self._unknown()
        answer = await self._endpoint.ask("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        if answer is None:
            return None
        tokens = answer.get("tokens")
        return len(tokens) if isinstance(tokens, list) else self._unknown()

    def _unknown(self) -> int | None:
        self._by_text = False
        self._endpoint.is_missing()
        return None
