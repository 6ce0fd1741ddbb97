"""The parts of messages and outputs, as clients may send them. They are only checked; what was sent stays JSON."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Shape(Struct, kw_only=True, forbid_unknown_fields=True):
    """What an object of a request must look like. Whatever may be left out may be null."""


class CacheBreakpoint(Shape):
    """Where a prompt can be cached up to."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | None = None


class TextPart(Shape, tag="input_text", tag_field="type"):
    """Text for the model."""

    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ImagePart(Shape, tag="input_image", tag_field="type"):
    """An image for the model."""

    detail: Literal["low", "high", "auto", "original"] | None = None
    image_url: Annotated[str, Meta(max_length=20_971_520)] | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class FilePart(Shape, tag="input_file", tag_field="type"):
    """A file for the model."""

    detail: Literal["low", "high", "auto"] | None = None
    file_data: Annotated[str, Meta(max_length=73_400_320)] | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class _Audio(Shape):
    data: str
    format: Literal["mp3", "wav"]


class AudioPart(Shape, tag="input_audio", tag_field="type"):
    """Speech for the model."""

    input_audio: _Audio


class VideoPart(Shape, tag="input_video", tag_field="type"):
    """A video that a tool has returned, as in Open Responses."""

    video_url: str


class ScreenshotPart(Shape, tag="computer_screenshot", tag_field="type"):
    """A picture of a screen."""

    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class _FileCitation(Shape, tag="file_citation", tag_field="type"):
    file_id: str
    index: int
    filename: str | None = None


class _UrlCitation(Shape, tag="url_citation", tag_field="type"):
    url: str
    title: str
    start_index: int
    end_index: int


class _ContainerFileCitation(Shape, tag="container_file_citation", tag_field="type"):
    container_id: str
    file_id: str
    filename: str
    start_index: int
    end_index: int


class _FilePath(Shape, tag="file_path", tag_field="type"):
    file_id: str
    index: int


class _TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Logprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[_TopLogprob] | None = None


class OutputTextPart(Shape, tag="output_text", tag_field="type"):
    """Text that the model has written."""

    text: str
    annotations: list[_FileCitation | _UrlCitation | _ContainerFileCitation | _FilePath] | None = None
    logprobs: list[_Logprob] | None = None


class RefusalPart(Shape, tag="refusal", tag_field="type"):
    """That the model has declined."""

    refusal: str


class SummaryPart(Shape, tag="summary_text", tag_field="type"):
    """A summary of what the model has thought."""

    text: str


class ReasoningPart(Shape, tag="reasoning_text", tag_field="type"):
    """What the model has thought."""

    text: str


MessagePart = TextPart | ImagePart | FilePart | AudioPart | OutputTextPart | RefusalPart
"""What a message can have; its role says which."""
OutputPart = TextPart | ImagePart | FilePart | AudioPart | VideoPart
"""What a tool can return."""
