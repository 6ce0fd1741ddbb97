"""Credentials for servers of the operator: tokens that antwort gets for itself, and headers that name the caller."""

import base64
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import Receive, Scope, Send
from tests.http.sdk import create
from tests.providers.mcp.stage import TOKEN, McpServer, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import types
from tests.providers.mcp.test_hostile_servers import reply

from antwort.testing import call, turn
from antwort.types import JSON

ADD = call("add", a=1, b=2)
CALC: Any = {"type": "mcp", "server_label": "calc"}
SECRET = "the:secret of antwort"


class Authority:
    """An authorization server that gives the tokens it is told to, one after the other."""

    def __init__(self, *tokens: JSON) -> None:
        self.tokens = [*tokens]
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            pair = dict(scope["headers"])[b"authorization"].decode().removeprefix("Basic ")
            self.asked.append((base64.b64decode(pair).decode(), (await receive())["body"].decode()))
            given = self.tokens.pop(0)
            await reply(send, given, 200 if "access_token" in given else 401)


def settings(server: McpServer, url: str) -> JSON:
    oauth = {"token_url": f"{url}/token", "client_id": "antwort", "client_secret": SECRET, "scope": "tools"}
    return {"servers": {"calc": {"url": server.url, "oauth": oauth}}}


def test_a_token_is_got_once_and_kept(tmp_path: Path) -> None:
    authority = Authority({"access_token": TOKEN, "expires_in": 3600})
    steps = [turn(calls=[ADD]), "3.", turn(calls=[ADD]), "3."]
    with (
        running_server(token=TOKEN) as server,
        on_socket(authority) as url,
        staged(tmp_path, steps, settings=settings(server, url)) as stage,
    ):
        made = [create(stage, False, input="1 + 2?", tools=[CALC]) for _ in range(2)]
        assert [types(response) for response in made] == [["mcp_list_tools", "mcp_call", "message"]] * 2
        assert TOKEN not in stage.request("GET", f"/responses/{made[0].id}").text
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()).decode(errors="replace")
        assert TOKEN not in stored
    assert authority.asked == [("antwort:the%3Asecret%20of%20antwort", "grant_type=client_credentials&scope=tools")]
    assert server.calls == [(1, 2), (1, 2)]


@pytest.mark.parametrize("seconds", [10**400, -1, True, "x"])
def test_a_token_lasts_however_long_its_authority_says(tmp_path: Path, seconds: object) -> None:
    authority = Authority(*[{"access_token": TOKEN, "expires_in": seconds}] * 9)
    with (
        running_server(token=TOKEN) as server,
        on_socket(authority) as url,
        staged(tmp_path, ["Hi."], settings=settings(server, url)) as stage,
    ):
        listed: Any = create(stage, False, input="?", tools=[CALC]).to_dict()["output"]
        assert listed[0]["tools"]


@pytest.mark.parametrize("first", ["refused", "over"])
def test_a_token_that_is_no_longer_good_is_replaced(tmp_path: Path, first: str) -> None:
    old = (
        {"access_token": "old", "expires_in": 3600} if first == "refused" else {"access_token": TOKEN, "expires_in": 1}
    )
    authority = Authority(old, *[{"access_token": TOKEN, "expires_in": 1 if first == "over" else 3600}] * 9)
    with (
        running_server(token=TOKEN) as server,
        on_socket(authority) as url,
        staged(tmp_path, [turn(calls=[ADD]), "3."], settings=settings(server, url)) as stage,
    ):
        response = create(stage, False, input="1 + 2?", tools=[CALC])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert len(authority.asked) >= 2
    assert server.calls == [(1, 2)]


def test_a_server_without_a_token_costs_its_own_tools(tmp_path: Path) -> None:
    authority = Authority({"error": "invalid_client"}, {"error": "invalid_client"})
    with (
        running_server(token=TOKEN) as server,
        on_socket(authority) as url,
        staged(tmp_path, ["Hi."], settings=settings(server, url)) as stage,
    ):
        listed: Any = create(stage, False, input="1 + 2?", tools=[CALC]).to_dict()["output"]
        assert listed[0]["error"] == "The authorization server of the MCP server gives no token (401)."
        with pytest.raises(openai.AuthenticationError, match="'calc'"):
            create(stage, False, input="?", tools=[{**CALC, "authorization": "wrong"}])
    assert len(authority.asked) == 1


def test_headers_name_the_caller(tmp_path: Path) -> None:
    tenants = {"secret-a": "a", "secret-b": "b c\r\nx-y: z", "secret-c": " a"}
    keys = {"api_keys": [{"id": key, "key": key, "tenant": tenant} for key, tenant in tenants.items()]}
    with running_server() as server:
        own = {"url": server.url, "headers": {"X-Caller": "{tenant}/{subject}"}}
        with staged(tmp_path, ["Hi."] * 3, settings={"servers": {"calc": own}}, auth=keys) as stage:
            for key in tenants:
                stage.client(key).responses.create(model="scripted", input="?", tools=[CALC])
        assert {headers["x-caller"].partition("/")[0] for headers in server.headers} == {"a", "b c%0D%0Ax-y: z", "%20a"}
