"""The provider: make a picture, or change one of the conversation."""

import asyncio
import binascii
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
    TooLargeError,
    ToolResult,
    function,
)
from antwort.providers.image_generation.server import (
    ImageServer,
    ImageServerError,
    InputFile,
    Order,
    Picture,
    decoded,
)
from antwort.providers.image_generation.settings import ImageGenerationSettings
from antwort.providers.image_generation.tool import LIKE, SHOWN, ImageTool, ImageToolOptions, with_given

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
    async def examine(self) -> Sequence[str]:
        return await self._server.examine(self.services.http)

    @override
    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        options, own = ImageToolOptions.read(tool), self.settings
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
                result = await self._make(ctx, prompt, ImageToolOptions.read(ctx.options), edit=edit)
            status = "success"
        except FunctionError as error:
            status = error.status
            raise
        finally:
            self.pictures.labels(status).inc()
            self.duration.observe(loop.time() - started)
        return result

    async def _make(self, ctx: Context, prompt: str, options: ImageToolOptions, *, edit: bool) -> ToolResult:
        edits = options.action == "edit" or (edit and options.action == "auto")
        if edits and not options.given:
            raise ImageServerError("There is no image in the conversation that could be changed.")
        await ctx.event("generating")
        images, mask = await self._inputs(ctx, options) if edits else ([], None)
        fields = self._fields(prompt, options, edits=edits)

        async def show(partial: Picture) -> None:
            data: JSON = {"partial_image_b64": partial.base64, "partial_image_index": partial.index}
            await ctx.event("partial_image", **data, **_like(partial, options))

        picture = await self._server.make(ctx, Order(fields, images, mask, options.partial_images), show)
        item = {
            "result": picture.base64,
            "action": "edit" if edits else "generate",
            "revised_prompt": picture.revised_prompt or prompt,
            **_like(picture, options),
        }
        seen = [picture.image] if ctx.sees_images else []
        return ToolResult(SHOWN, item=item, images=seen)

    async def _inputs(self, ctx: Context, options: ImageToolOptions) -> tuple[list[InputFile], InputFile | None]:
        """Return the images to change, and the mask if there is one; together they have a largest size."""
        room, images = self.settings.max_bytes, list[InputFile]()
        for part in options.given:
            images.append(await self._read(ctx, part, room))
            room -= len(images[-1].data)
        return images, None if options.mask is None else await self._read(ctx, options.mask, room)

    def _fields(self, prompt: str, options: ImageToolOptions, *, edits: bool) -> JSON:
        """Return the fields for the image server."""
        fields = {"prompt": prompt, **options.fields}
        if (model := options.model or self.settings.model) is not None:
            fields["model"] = model
        if edits and options.input_fidelity is not None:
            fields["input_fidelity"] = options.input_fidelity
        return fields

    async def _read(self, ctx: Context, part: Mapping[str, Any], room: int) -> InputFile:
        """Return an image of the conversation, or a mask, if it has no more bytes than there is room."""
        url, file_id = part.get("image_url"), part.get("file_id")
        if isinstance(url, str) and url.startswith("data:"):
            try:
                data = await decoded(url.partition(",")[2], strict=False)
            except (binascii.Error, ValueError):
                raise ImageServerError("An image of the conversation cannot be read: it is not base64.") from None
        elif isinstance(url, str) and url:
            try:
                data = (await ctx.http.fetch(url, max_bytes=max(1, room))).body
            except TooLargeError:
                raise self._too_much() from None
        elif isinstance(file_id, str) and self.services.files is not None and ctx.grants(_READ):
            try:
                data = await self._content(await self.services.files.read(ctx.tenant, file_id), room)
            except NotFoundError as error:
                raise ImageServerError(error.message) from None
        else:
            raise ImageServerError("An image of the conversation cannot be read here.")
        if len(data) > room:
            raise self._too_much()
        return InputFile(data, Image.of(data).media_type)

    async def _content(self, pieces: AsyncIterator[bytes], room: int) -> bytes:
        """Return the bytes of a file, of which no more are read than there is room for."""
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > room:
                raise self._too_much()
        return bytes(data)

    def _too_much(self) -> ImageServerError:
        most = self.settings.max_bytes
        return ImageServerError(f"The images of the conversation, with the mask, have more than {most:,} bytes.")


def _like(picture: Picture, options: ImageToolOptions) -> JSON:
    """Return what a picture is like: what the server says about it, else what was asked for."""
    given = {name: picture.like.get(name) or options.fields.get(name) for name in LIKE}
    return {name: value for name, value in given.items() if isinstance(value, str)}
