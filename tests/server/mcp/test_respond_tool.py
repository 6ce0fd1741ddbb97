"""The tool `respond`: agents of the server for other agents."""

from pathlib import Path

from tests.server.mcp.stage import call, request, serving, texts

AGENTS = {"cook": {"instructions": "You cook."}}


async def test_another_agent_has_an_agent_of_the_server_work_and_goes_on_with_it(tmp_path: Path) -> None:
    with serving(tmp_path, said=["Soup.", "With salt."], agents=AGENTS) as face:
        async with face.client("2026-07-28") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            first = await client.call_tool("respond", {"input": "What do we eat?", "agent": "cook"})
            assert first.structured_content is not None
            before = {"previous_response_id": first.structured_content["id"]}
            second = await client.call_tool("respond", {"input": "And with what?", "agent": "cook", **before})
            unknown = await client.call_tool("respond", {"input": "Hello!", "agent": "cooks"})
            wrong = await client.call_tool("respond", {"input": 7})

    assert tools["respond"].input_schema["properties"]["agent"]["enum"] == ["cook"]
    assert (texts(first), texts(second)) == (["Soup."], ["With salt."])
    assert first.structured_content["status"] == "completed"
    assert (unknown.is_error, wrong.is_error) == (True, True)
    assert "There is no agent 'cooks'" in texts(unknown)[0]


def test_it_needs_the_scope_of_responses_and_leaves_its_name_to_a_function(tmp_path: Path) -> None:
    def respond(to: str) -> str:
        """Respond to somebody."""
        return f"Hello, {to}!"

    with serving(tmp_path / "one") as face:
        listed = face.post(request("tools/list"), key="key-of-caller").json()["result"]["tools"]
        assert "respond" not in {tool["name"] for tool in listed}
        assert face.post(call("respond", input="Hi"), key="key-of-caller").json()["error"]["code"] == -32602
    with serving(tmp_path / "two", [respond]) as face:
        assert face.post(call("respond", to="you")).json()["result"]["content"][0]["text"] == "Hello, you!"
