"""`image_generation` as OpenAI's SDK knows it, in front of a server that speaks OpenAI's images API."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from tests.http.sdk import Served, create, served
from tests.support.site import Reply, Site

from antwort import Antwort
from antwort.config import Config
from antwort.providers.image_generation import ImageGeneration
from antwort.providers.image_generation.server import decoded
from antwort.testing import ScriptServer, Turn, call, lint_stream, turn
from antwort.testing.script_server import point
from antwort.types import JSON

TOOL: Any = {"type": "image_generation"}
PAINTING = [turn(calls=[call("image_generation", prompt="a cat")]), turn("Here it is.")]
SHOWN = "The image was made, and the user sees it."
REFUSED = "The image server refuses to make this picture. Your request was rejected by the safety system."
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True])
PICTURE = "data:image/png;base64," + base64.b64encode(point("given")).decode()
QUESTION: Any = {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}


@contextlib.contextmanager
def staged(
    tmp_path: Path, steps: Sequence[Turn | str] = PAINTING, *, streams: bool = True, **options: Any
) -> Iterator[tuple[Served, ScriptServer]]:
    """Serve the app with an image server behind it."""
    backend = options.pop("backend", None)
    with ScriptServer([], streams_images=streams) as images:
        settings = {"url": images.url, "model": "painter", **options}
        section = {"image_generation": {"enabled": True, "settings": settings}}
        with served(tmp_path, steps, over_http=True, section=section, backend=backend) as stage:
            yield stage, images


def made(response: Any) -> Any:
    """Return the item of the only picture."""
    [item] = [item for item in response.output if item.type == "image_generation_call"]
    return item


@BOTH_WAYS
def test_a_picture_is_made_as_the_request_says(tmp_path: Path, stream: bool) -> None:
    asked = {"background": "transparent", "quality": "low", "size": "1024x1536", "moderation": "low"}
    with staged(tmp_path) as (stage, images):
        response = create(stage, stream, input="Paint.", tools=[{**TOOL, **asked}])
        read = stage.bodies[1]["messages"][-1]
    item = made(response)
    assert item.status == "completed"
    assert item.id.startswith("ig_")
    assert base64.b64decode(item.result).startswith(b"\x89PNG")
    assert (item.action, item.quality, item.size, item.background) == ("generate", "low", "1024x1536", "transparent")
    assert item.revised_prompt == "a cat, in oil"
    assert images.images == [{"prompt": "a cat", "model": "painter", **asked}]
    assert read == {
        "role": "tool",
        "tool_call_id": read["tool_call_id"],
        "content": "The image was made, and the user sees it.",
    }
    echo = response.tools[0].to_dict()
    assert (echo["output_format"], echo["size"], echo["quality"]) == ("png", "1024x1536", "low")


def test_pictures_on_the_way_are_streamed(tmp_path: Path) -> None:
    with staged(tmp_path) as (stage, images):
        tools: Any = [{**TOOL, "partial_images": 2}]
        client = stage.client()
        events: list[Any] = list(client.responses.create(model="scripted", input="Paint.", tools=tools, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    begin = kinds.index("output_item.added")
    assert kinds[begin : begin + 7] == [
        "output_item.added",
        "image_generation_call.in_progress",
        "image_generation_call.generating",
        "image_generation_call.partial_image",
        "image_generation_call.partial_image",
        "image_generation_call.completed",
        "output_item.done",
    ]
    partial: list[Any] = [event for event in events if event.type.endswith("partial_image")]
    assert [event.partial_image_index for event in partial] == [0, 1]
    assert len({event.partial_image_b64 for event in partial}) == 2
    assert partial[0].output_format == "png"
    assert {event.item_id for event in partial} == {events[begin].item.id}
    assert images.images[0]["stream"] is True
    done: Any = events[begin + 6]
    assert base64.b64decode(done.item.result).startswith(b"\x89PNG")


def test_a_server_that_does_not_stream_is_asked_for_whole_pictures(tmp_path: Path) -> None:
    with staged(tmp_path, [*PAINTING, *PAINTING], streams=False) as (stage, images):
        for _ in range(2):
            response = create(stage, True, input="Paint.", tools=[{**TOOL, "partial_images": 1}])
            assert made(response).status == "completed"
    assert ["stream" in body for body in images.images] == [True, False, False]


@pytest.mark.parametrize("sent_back", [False, True])
def test_a_picture_is_changed_in_the_next_response(tmp_path: Path, sent_back: bool) -> None:
    steps = [*PAINTING, turn(calls=[call("image_generation", prompt="with a hat", edit=True)]), turn("Done.")]
    with staged(tmp_path, steps) as (stage, images):
        first = create(stage, False, input="Paint.", tools=[TOOL])
        if sent_back:
            before = [{"role": "user", "content": "Paint."}, *(item.to_dict() for item in first.output)]
            second = create(
                stage, False, input=[*before, {"role": "user", "content": "A hat!"}], tools=[TOOL], store=False
            )
        else:
            second = create(stage, False, input="A hat!", tools=[TOOL], previous_response_id=first.id)
        messages = stage.bodies[2]["messages"]
    changed = images.images[1]
    assert changed["image"] == base64.b64decode(made(first).result)
    assert changed["prompt"] == "with a hat"
    assert made(second).action == "edit"
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["content"] == SHOWN


def test_pictures_that_a_user_sends_are_changed_with_a_mask(tmp_path: Path) -> None:
    mask = {"image_url": "data:image/png;base64," + base64.b64encode(point("mask")).decode()}
    tool = {**TOOL, "action": "edit", "input_fidelity": "high", "input_image_mask": mask, "partial_images": 1}
    with staged(tmp_path) as (stage, images):
        assert made(create(stage, True, input=[QUESTION], tools=[tool])).action == "edit"
    asked = images.images[0]
    assert (asked["image"], asked["mask"]) == (point("given"), point("mask"))
    assert (asked["input_fidelity"], asked["stream"], asked["partial_images"]) == ("high", True, 1)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("tool", "prompt", "message"),
    [
        (
            {},
            "a moderated cat",
            "The image server refuses to make this picture. Your request was rejected by the safety system.",
        ),
        ({"action": "edit"}, "a hat", "There is no image in the conversation that could be changed."),
    ],
)
def test_a_picture_that_is_not_made_is_a_failed_item(
    tmp_path: Path, stream: bool, tool: JSON, prompt: str, message: str
) -> None:
    steps = [turn(calls=[call("image_generation", prompt=prompt)]), turn("Sorry.")]
    with staged(tmp_path, steps) as (stage, _):
        response = create(stage, stream, input="Paint.", tools=[{**TOOL, **tool}])
        read = stage.bodies[1]["messages"][-1]["content"]
    item = made(response)
    assert (item.status, item.result) == ("failed", None)
    assert (item.error.message, item.error.type) == (message, "image_generation_error")
    assert read == message
    assert response.output_text == "Sorry."


@pytest.mark.parametrize(
    ("status", "raw", "message"),
    [
        (401, b"{}", "The image server refuses the key. Its operator must check 'api_key'."),
        (429, b"{}", "The image server gets too many requests. Try again later."),
        (500, b"oops", "The image server failed with status 500."),
        (200, b"{}", "The answer of the image server has no picture in it."),
        (200, b'{"data": [{"b64_json": "!"}]}', "The answer of the image server has no picture in it."),
        (200, b'{"data": [{"url": "http://localhost/a.png"}]}', "The answer of the image server has no picture in it."),
        (200, b'{"data": [{"b64_json": ["a"]}]}', "The answer of the image server has no picture in it."),
        (
            200,
            b'{"data": [{"b64_json": "PHNjcmlwdD4="}]}',
            "What the image server has made is no picture in PNG, JPEG, GIF or WebP.",
        ),
    ],
)
def test_a_server_that_fails_is_told_without_its_address(tmp_path: Path, status: int, raw: bytes, message: str) -> None:
    with Site({"/v1/images/generations": Reply(raw, status=status, type="application/json")}) as found:
        section = {"image_generation": {"enabled": True, "settings": {"url": f"{found.url}/v1"}}}
        with served(tmp_path, PAINTING, section=section) as stage:
            assert made(create(stage, False, input="Paint.", tools=[TOOL])).error.message == message


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    section = {"image_generation": {"enabled": True, "settings": {"url": "http://127.0.0.1:9/v1"}}}
    with served(tmp_path, PAINTING, section=section) as stage:
        item = made(create(stage, False, input="Paint.", tools=[TOOL]))
    assert item.error.message == "The image server cannot be reached. Go on without pictures."


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"size": "large"}, "tools[0].size"),
        ({"size": "512x512"}, "tools[0].size"),
        ({"model": "gpt-image-1"}, "tools[0].model"),
        ({"output_format": "svg"}, "tools[0].output_format"),
        ({"output_format": "jpeg", "background": "transparent"}, "tools[0].background"),
        ({"output_compression": 50}, "tools[0].output_compression"),
        ({"partial_images": 4}, "tools[0].partial_images"),
        ({"input_image_mask": {}}, "tools[0].input_image_mask"),
        ({"frame_count": 3}, "tools[0].frame_count"),
        ({"quality": "best"}, "tools[0].quality"),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path: Path, tool: JSON, param: str) -> None:
    with staged(tmp_path, [], sizes=["1024x1024"]) as (stage, _), pytest.raises(BadRequestError) as caught:
        create(stage, False, input="Paint.", tools=[{**TOOL, **tool}])
    assert caught.value.param == param


def test_models_that_see_are_shown_what_they_have_made(tmp_path: Path) -> None:
    with staged(tmp_path, backend={"images": True}) as (stage, _):
        response = create(stage, False, input="Paint.", tools=[TOOL])
        *_, tool, shown = stage.bodies[1]["messages"]
    assert tool["content"].startswith(SHOWN)
    assert shown["content"][1]["image_url"]["url"] == f"data:image/png;base64,{made(response).result}"


def test_a_stream_in_the_background_can_be_read_again(tmp_path: Path) -> None:
    with staged(tmp_path) as (stage, _):
        body = {"model": "scripted", "input": "Paint.", "tools": [{**TOOL, "partial_images": 1}], "background": True}
        found = stage.request("POST", "/responses", json={**body, "stream": True})
        first = lint_stream(found.content)
        again = stage.resume(first.response["id"])
    assert again.types == first.types
    assert "response.image_generation_call.partial_image" in again.types


def streamed(*events: JSON) -> Reply:
    """Answer with events."""
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return Reply(text, type="text/event-stream")


def painted(tmp_path: Path, reply: Reply, *, partial_images: int = 2, **settings: Any) -> tuple[Any, list[Any]]:
    """Stream a response whose picture a server answers so; return its item, and the events of pictures on the way."""
    with Site({"/v1/images/generations": reply}) as found:
        section = {"image_generation": {"enabled": True, "settings": {"url": f"{found.url}/v1", **settings}}}
        with served(tmp_path, PAINTING, section=section) as stage:
            tools: Any = [{**TOOL, "partial_images": partial_images}]
            events: list[Any] = list(
                stage.client().responses.create(model="scripted", input="Paint.", tools=tools, stream=True)
            )
    *events, last = events
    return made(last.response), [event for event in events if event.type.endswith("partial_image")]


def encoded(size: int = 0) -> str:
    """Return a picture with so many bytes more."""
    return base64.b64encode(point("cat") + bytes(size)).decode()


def on_the_way(**fields: Any) -> JSON:
    """Return the event of a picture that is not finished."""
    return {"type": "image_generation.partial_image", "b64_json": encoded(), "partial_image_index": 0, **fields}


def test_a_client_gets_no_more_pictures_on_the_way_than_it_has_asked_for(tmp_path: Path) -> None:
    finished = {"type": "image_generation.completed", "b64_json": encoded()}
    item, partial = painted(tmp_path, streamed(*[on_the_way()] * 100, finished))
    assert (item.status, len(partial)) == ("completed", 2)


def test_pictures_on_the_way_are_no_larger_than_those_that_are_finished(tmp_path: Path) -> None:
    finished = {"type": "image_generation.completed", "b64_json": encoded()}
    item, partial = painted(
        tmp_path, streamed(on_the_way(b64_json=encoded(20_000)), on_the_way(), finished), max_bytes=10_000
    )
    assert (item.status, len(partial)) == ("completed", 1)
    finished["b64_json"] = encoded(20_000)
    item, _ = painted(tmp_path, streamed(finished), max_bytes=10_000)
    assert item.error.message == "The picture is larger than it may be. Ask for a smaller one."


def test_an_event_that_does_not_end_is_too_large(tmp_path: Path) -> None:
    reply = Reply("data: " + "x" * 1_200_000, type="text/event-stream")
    item, _ = painted(tmp_path, reply, max_bytes=10_000)
    assert item.error.message == "The picture is larger than it may be. Ask for a smaller one."


def test_nonsense_about_a_picture_is_left_out(tmp_path: Path) -> None:
    nonsense = {"size": "9" * 1000, "output_format": ["png"], "quality": "a b", "background": 5}
    finished = {
        "type": "image_generation.completed",
        "b64_json": encoded(),
        **nonsense,
        "revised_prompt": "a" * 100_000,
    }
    item, [first, second] = painted(
        tmp_path,
        streamed(on_the_way(partial_image_index="<b>", **nonsense), on_the_way(partial_image_index=-1), finished),
    )
    assert [first.partial_image_index, second.partial_image_index] == [0, 0]
    assert {"size", "quality", "background", "output_format"}.isdisjoint(first.to_dict())
    assert {"size", "quality", "background", "output_format"}.isdisjoint(item.to_dict())
    assert len(item.revised_prompt) == 32_000


def test_the_reason_of_a_stream_that_fails_is_told(tmp_path: Path) -> None:
    item, _ = painted(tmp_path, streamed({"type": "error", "message": "It is too busy."}))
    assert item.error.message == "The image server made no picture. It is too busy."


def test_a_check_asks_for_the_server_and_its_key(tmp_path: Path) -> None:
    def examined(url: str) -> list[str]:
        config = Config(data_dir=tmp_path, providers={})
        provider = ImageGeneration.from_settings({"url": url, "api_key": "geheim"})

        async def run() -> list[str]:
            async with Antwort(config, providers=[provider]):
                return [*await provider.examine()]

        return asyncio.run(run())

    with ScriptServer([]) as images:
        assert examined(images.url) == []
    assert examined(images.url) == [
        f"url: the image server at {images.url} cannot be asked: The service cannot be reached."
    ]
    with Site({"/models": Reply(status=401)}) as site:
        assert examined(site.url) == [f"api_key: the image server at {site.url} refuses it (401)"]


def test_pictures_that_are_changed_have_no_more_bytes_together_than_one_may_have(tmp_path: Path) -> None:
    size = len(point("given"))
    two: Any = {"role": "user", "content": [*QUESTION["content"] * 2]}
    tool = {**TOOL, "action": "edit"}
    with staged(tmp_path, [*PAINTING, *PAINTING], max_bytes=2 * size - 1) as (stage, images):
        assert made(create(stage, False, input=[QUESTION], tools=[tool])).status == "completed"
        error = made(create(stage, False, input=[two], tools=[tool])).error
    assert error.message == f"The images of the conversation, with the mask, have more than {2 * size - 1:,} bytes."
    assert len(images.images) == 1


@pytest.mark.parametrize("strict", [False, True])
async def test_large_pictures_are_decoded_while_others_have_their_turns(*, strict: bool) -> None:
    data = bytes(range(256)) * 8192 + b"and one more"
    encoded = base64.b64encode(data).decode()
    decoding = asyncio.ensure_future(decoded(encoded, strict=strict))
    await asyncio.sleep(0)
    assert not decoding.done(), "it was decoded on the event loop"
    assert await decoding == data


async def test_what_does_not_belong_to_a_picture_is_passed_over_wherever_it_is_cut() -> None:
    data = bytes(range(256)) * 8192
    lines = base64.encodebytes(data).decode()
    assert await decoded(lines, strict=False) == data
    assert await decoded(lines[:77], strict=False) == data[:57]
    for text in (lines, lines[:77]):
        with pytest.raises(ValueError, match=r".+"):
            await decoded(text)
    with pytest.raises(ValueError, match=r"base64"):
        await decoded(base64.b64encode(data).decode()[:-3] + "\n", strict=False)


def test_what_is_no_option_of_the_tool_is_left_alone_as_at_openai(tmp_path: Path) -> None:
    with staged(tmp_path) as (stage, images):
        response = create(stage, False, input="Paint.", tools=[{**TOOL, "style": "vivid", "n": 2}])
    assert made(response).status == "completed"
    assert images.images == [{"prompt": "a cat", "model": "painter"}]


def test_no_more_of_a_file_is_read_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    async def endless(*_: Any) -> AsyncIterator[bytes]:
        async def pieces() -> AsyncIterator[bytes]:
            nonlocal read
            for _ in range(100):
                read += 1
                yield bytes(1000)

        return pieces()

    own = {"url": "http://127.0.0.1:9/v1", "max_bytes": 10_000}
    section = {"image_generation": {"enabled": True, "settings": own}, "files": {"enabled": True}}
    with served(tmp_path, PAINTING, section=section) as stage:
        mask = stage.client().files.create(file=("mask.png", point("mask")), purpose="vision").id
        monkeypatch.setattr("antwort.files.service.StoredFiles.read", endless)
        tool = {**TOOL, "action": "edit", "input_image_mask": {"file_id": mask}}
        item = made(create(stage, False, input=[QUESTION], tools=[tool]))
    assert item.error.message == "The images of the conversation, with the mask, have more than 10,000 bytes."
    assert read < 20
