"""What results of MCP servers contain besides texts: what the model reads, and what the client sees of it."""

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from tests.http.sdk import create
from tests.providers.mcp.stage import PIXEL, mcp_tool, running_server, staged
from tests.providers.mcp.test_approvals import items

from antwort.testing import call, turn

DATA = base64.b64encode(PIXEL).decode()
URL = f"data:image/png;base64,{DATA}"
SEES = {"images": True}
Parts = Sequence[TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource]


def embedded(contents: TextResourceContents | BlobResourceContents) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=contents)


def blob(kind: str, data: str) -> EmbeddedResource:
    return embedded(BlobResourceContents(uri="shelf://a", mime_type=kind, blob=data))


CONTENTS: dict[str, tuple[Parts, str, int]] = {
    "a text": (
        [embedded(TextResourceContents(uri="shelf://a", text="Tea\nis hot."))],
        "[resource shelf://a]\nTea\nis hot.",
        0,
    ),
    "bytes": ([blob("application/zip", "UEsDBA==")], "[resource shelf://a] [application/zip, about 6 bytes]", 0),
    "an image in a resource": ([blob("image/png", DATA)], f"[resource shelf://a] [image/png, {len(PIXEL)} bytes]", 1),
    "an image that is none": ([blob("image/png", "UEsDBA==")], "[resource shelf://a] [image/png, about 6 bytes]", 0),
    "a link": (
        [ResourceLink(type="resource_link", uri="shelf://b", name="b", description="Tea\nof\u202e today.")],
        "[resource shelf://b, b, Tea of today.]",
        0,
    ),
    "a sound": ([AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav")], "[audio/wav, about 6 bytes]", 0),
    "several": (
        [
            TextContent(type="text", text="Look:"),
            ImageContent(type="image", data=DATA, mime_type="image/png"),
            embedded(TextResourceContents(uri="shelf://a", text="Tea.")),
        ],
        f"Look:\n[image/png, {len(PIXEL)} bytes]\n[resource shelf://a]\nTea.",
        1,
    ),
}
"""What a result contains, what is read of it, and how many images a model sees."""


def shelf() -> MCPServer:
    server = MCPServer("shelf")

    @server.tool(structured_output=False)
    def look(at: str) -> list[TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource]:
        """Look at what is there."""
        return [*CONTENTS[at][0]]

    return server


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_what_a_result_contains_is_read_and_shown(tmp_path: Path, *, stream: bool) -> None:
    steps = [turn(calls=[call("look", at=name, call_id=f"call_{n}") for n, name in enumerate(CONTENTS)]), "Seen."]
    with running_server(shelf()) as server, staged(tmp_path, steps, over_http=True, backend=SEES) as stage:
        response = create(stage, stream, input="Look!", tools=[mcp_tool(server)])
        made = [item for item in items(response) if item["type"] == "mcp_call"]
        told = stage.bodies[1]["messages"]
    texts = [text for _, text, _ in CONTENTS.values()]
    assert [(one["status"], one["output"], one["error"]) for one in made] == [
        ("completed", text, None) for text in texts
    ]
    read = [message["content"] for message in told if message["role"] == "tool"]
    attached = [text.removeprefix(expected) for text, expected in zip(read, texts, strict=True)]
    assert [rest.startswith("\n(attached") for rest in attached] == [bool(images) for *_, images in CONTENTS.values()]
    assert [rest for rest in attached if not rest.startswith("\n(attached")] == [""] * 5
    assert [part["image_url"]["url"] for part in told[-1]["content"] if part["type"] == "image_url"] == [URL] * 2
