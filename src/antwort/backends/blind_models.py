"""Models that take no images: they read a line of text in the place of each that a function has returned."""

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace
from typing_extensions import override

from antwort.backends.base import ModelRequest, TurnSink
from antwort.backends.resilience import BackendWrapper
from antwort.types import JSON
from antwort.wire.client_tools import OUTPUTS

_IMAGE = "input_image"
_UNSEEN: JSON = {"type": "input_text", "text": "[An image, which this model cannot see.]"}


class WithoutImages(BackendWrapper):
    """Gives a model server no images of results. Those that a user sends go to it as they are: it may refuse them."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(_blind(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_blind(request))


def _blind(request: ModelRequest) -> ModelRequest:
    if not any(map(_has_image, request.items)):
        return request
    return replace(request, items=[_without_images(item) if _has_image(item) else item for item in request.items])


def _has_image(item: JSON) -> bool:
    output = item.get("output")
    return isinstance(output, list) and item.get("type") in OUTPUTS and any(map(_is_image, output))


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == _IMAGE


def _without_images(item: JSON) -> JSON:
    return {**item, "output": [_UNSEEN if _is_image(part) else part for part in item["output"]]}
