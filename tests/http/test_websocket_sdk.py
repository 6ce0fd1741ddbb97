"""The official SDK's own WebSocket clients."""

from pathlib import Path

from openai.lib.responses_websocket import ResponsesWebSocketLimits, ResponsesWebSocketSession
from openai.types.responses import ResponseCompletedEvent
from tests.http.sdk import CLIENT_TOOL, served

from antwort.testing import Turn, call, fail, turn

KEYS = {"api_keys": [{"id": "a", "key": "secret-a", "tenant": "a"}]}
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8, max_events_per_lane=1000, max_events=5000, max_bytes_per_lane=2**24, max_bytes=2**25
)


def test_the_sdk_asks_and_reads_typed_events(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"], auth=KEYS) as stage:
        with stage.client("secret-a").responses.connect() as connection:
            previous = None
            for text in ("One", "Two"):
                if previous is None:
                    connection.response.create(model="scripted", input="Hi", store=False)
                else:
                    connection.response.create(
                        model="scripted", input="Go on", store=False, previous_response_id=previous
                    )
                event = connection.recv()
                while event.type != "response.completed":
                    event = connection.recv()
                assert isinstance(event, ResponseCompletedEvent)
                assert event.response.output_text == text
                previous = event.response.id
        assert len(stage.requests[1].items) == 3


async def test_the_asynchronous_sdk_iterates_over_events(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", "lo"])]) as stage:
        async with stage.async_client() as client, client.responses.connect() as connection:
            await connection.response.create(model="scripted", input="Hi")
            deltas = []
            async for event in connection:
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
                if event.type == "response.completed":
                    break
    assert deltas == ["Hel", "lo"]


def test_lanes_of_a_session_get_their_own_answers(tmp_path: Path) -> None:
    steps: list[Turn | str] = ["One", "Two", turn(calls=[call("get_weather", city="Rome")]), turn(error=fail(503))]
    with (
        served(tmp_path, steps) as stage,
        stage.client().responses.connect() as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lanes = [session.lane("left"), session.lane("right")]
        for lane in lanes:
            lane.send({"type": "response.create", "model": "scripted", "input": "Hi"})
        assert [lane.get_final_response().output_text for lane in lanes] == ["One", "Two"]
        lanes[0].send({"type": "response.create", "model": "scripted", "input": "Hi", "tools": [CLIENT_TOOL]})
        created = lanes[0].recv()
        while created.type != "response.created":
            created = lanes[0].recv()
        (made,) = lanes[0].get_final_response().output
        assert made.type == "function_call"
        lanes[1].send({"type": "response.create", "model": "scripted", "input": "Hi"})
        refusal = lanes[1].recv()
        assert refusal.type == "error"
        assert (refusal.status, refusal.stream_id) == (503, "right")
