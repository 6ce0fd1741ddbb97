"""A prefix cache, as inference engines have one: how much of a prompt is known from earlier ones."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

TOKEN, BLOCK = 4, 16
"""Characters of a token, and tokens of a block: what is known, is known in whole blocks."""


class PrefixCache:
    """Knows the prompts that it has read, the latest of them: `blocks` blocks of 16 tokens of four characters each.

    Give it to one `ScriptServer`, as each server has a cache of its own.
    """

    def __init__(self, blocks: int = 10_000) -> None:
        self.read = 0
        """Tokens of all prompts."""
        self.cached = 0
        """Those of them that were known."""
        self._room = blocks
        self._known: dict[bytes, None] = {}

    def take(self, body: Mapping[str, Any]) -> tuple[int, int]:
        """Read the prompt of a request; return how many tokens it has, and how many of them were known."""
        parts = [body.get("tools") or [], *(body.get("messages") or [])]
        prompt = "".join(json.dumps(part, sort_keys=True) for part in parts).encode()
        tokens, cached, known = -(-len(prompt) // TOKEN), 0, True
        beginning = hashlib.blake2b(str(body.get("model")).encode(), digest_size=16)
        size = TOKEN * BLOCK
        for start in range(0, len(prompt) - size + 1, size):
            beginning.update(prompt[start : start + size])
            block = beginning.digest()
            known = known and block in self._known
            cached += BLOCK if known else 0
            self._known.pop(block, None)
            self._known[block] = None
        while len(self._known) > self._room:
            del self._known[next(iter(self._known))]
        self.read += tokens
        self.cached += cached
        return tokens, cached
