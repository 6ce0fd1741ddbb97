"""The provider: make a picture, or change one of the conversation."""

import asyncio
import binascii
import math
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Annotated, Any

from typing_extensions import override

from antwort.provider import (
    JSON,
    BadRequestError,
    Context,
    Counter,
    Field,
    FunctionError,
    Histogram,
    Image,
    NotFoundError,
    Provider,
    ToolResult,
    function,
)
from antwort.providers.image_generation.server import ImageError, ImageServer, InputFile, Order
from antwort.providers.image_generation.settings import ImageGenerationSettings
from antwort.providers.image_generation.tool import LIKE, SHOWN, ImageTool, Options, with_given

_LONGEST_PROMPT = 32_000
_READ = "files:read"


class ImageGeneration(Provider[ImageGenerationSettings]):
    """Make pictures with an image server."""

    pictures = Counter("pictures_total", "Pictures that were asked for, by how it ended.", ["status"])
    duration = Histogram("duration_seconds", "Seconds that a picture took.", buckets=(1, 2, 5, 10, 20, 60, 180))

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self._server = ImageServer(self.settings)
        self._slots = self.slots(self.settings.concurrency)
        yield

    @override
    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        options, own = Options.read(tool), self.settings
        if options.model not in {None, own.model, *own.models}:
            served = ", ".join(name for name in (own.model, *own.models) if name) or "none can be chosen; leave it out"
            raise BadRequestError(f"'model' is '{options.model}'; here: {served}.", param="model", code="invalid_value")
        size = options.fields.get("size", "auto")
        if own.sizes and size not in {"auto", *own.sizes}:
            raise BadRequestError(
                f"'size' is '{size}'; here: auto, {', '.join(own.sizes)}.", param="size", code="invalid_value"
            )
        if options.mask is not None and isinstance(file_id := options.mask.get("file_id"), str):
            ctx.require(_READ, param="input_image_mask.file_id", purpose="to read a file")
            await self._check_file(ctx, file_id)
        return tool if options.action == "generate" else with_given(tool, items)

    async def _check_file(self, ctx: Context, file_id: str) -> None:
        try:
            if self.services.files is not None:
                await self.services.files.get(ctx.tenant, file_id)
        except NotFoundError as error:
            raise NotFoundError(error.message, param="input_image_mask.file_id") from error

    @function(timeout=math.inf, hosted=ImageTool())
    async def image_generation(
        self,
        ctx: Context,
        prompt: Annotated[str, Field(min_length=1, max_length=_LONGEST_PROMPT, description="What is to be seen.")],
        *,
        edit: Annotated[bool, Field(description="True: change the last image of the conversation.")] = False,
    ) -> ToolResult:
        """Make an image, which the user sees."""
        loop = asyncio.get_running_loop()
        started, status = loop.time(), "error"
        try:
            async with self._slots.taken_by(ctx.tenant):
                result = await self._make(ctx, prompt, Options.read(ctx.options), edit=edit)
            status = "success"
        except FunctionError as error:
            status = error.status
            raise
        finally:
            self.pictures.labels(status).inc()
            self.duration.observe(loop.time() - started)
        return result

    async def _make(self, ctx: Context, prompt: str, options: Options, *, edit: bool) -> ToolResult:
        edits = options.action == "edit" or (edit and options.action == "auto")
        if edits and not options.given:
            raise ImageError("There is no image in the conversation that could be changed.")
        await ctx.event("generating")
        images = [await self._read(ctx, part) for part in options.given] if edits else []
        mask = await self._read(ctx, options.mask) if edits and options.mask is not None else None
        fields = {"prompt": prompt, **options.fields}
        if (model := options.model or self.settings.model) is not None:
            fields["model"] = model
        if edits and options.input_fidelity is not None:
            fields["input_fidelity"] = options.input_fidelity

        async def show(partial: JSON) -> None:
            index = partial.get("partial_image_index") or 0
            data = {"partial_image_b64": partial["b64_json"], "partial_image_index": index}
            await ctx.event("partial_image", **data, **_like(partial, options))

        picture = await self._server.make(ctx, Order(fields, images, mask, options.partial_images), show)
        if len(picture.base64) * 3 // 4 > self.settings.max_bytes:
            raise ImageError("The picture is larger than it may be. Ask for a smaller one.")
        item = {
            "result": picture.base64,
            "action": "edit" if edits else "generate",
            "revised_prompt": picture.revised_prompt or prompt,
            **_like(picture.like, options),
        }
        seen = [Image.of(picture.data)] if ctx.sees_images else []
        return ToolResult(SHOWN, item=item, images=seen)

    async def _read(self, ctx: Context, part: Mapping[str, Any]) -> InputFile:
        """Return an image of the conversation, or a mask."""
        url, file_id = part.get("image_url"), part.get("file_id")
        if isinstance(url, str) and url.startswith("data:"):
            try:
                data = b64decode(url.partition(",")[2])
            except (binascii.Error, ValueError):
                raise ImageError("An image of the conversation cannot be read: it is not base64.") from None
        elif isinstance(url, str) and url:
            data = (await ctx.http.fetch(url, max_bytes=self.settings.max_bytes)).body
        elif isinstance(file_id, str) and self.services.files is not None and ctx.grants(_READ):
            try:
                pieces = [piece async for piece in await self.services.files.read(ctx.tenant, file_id)]
            except NotFoundError as error:
                raise ImageError(error.message) from None
            data = b"".join(pieces)
        else:
            raise ImageError("An image of the conversation cannot be read here.")
        if len(data) > self.settings.max_bytes:
            raise ImageError(f"An image of the conversation has more than {self.settings.max_bytes:,} bytes.")
        return InputFile(data, Image.of(data).media_type)


def _like(said: Mapping[str, Any], options: Options) -> JSON:
    """Return what a picture is like: what the server says about it, else what was asked for."""
    given = {name: said.get(name) or options.fields.get(name) for name in LIKE}
    return {name: value for name, value in given.items() if isinstance(value, str)}
