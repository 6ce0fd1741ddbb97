"""OpenAI's multi-agent beta: sub-agents as its items, for requests that ask for it by parameter and header."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from tests.http.sdk import served
from tests.support.postgres import on_one_store

from antwort.provider import Context, Hosted, Provider, function
from antwort.testing import Turn, call, turn

pytestmark = on_one_store()

BETA: Any = ["responses_multi_agent=v1"]
FACE = Hosted(
    types=("multi_agent",),
    item="multi_agent_call",
    output_item="multi_agent_call_output",
    describe=lambda _: {"action": "spawn_agent"},
    only_named=True,
)


class Spawning(Provider):
    """A provider with a function that has the face of the beta."""

    name = "spawning"

    @function(scope="agent", hosted=FACE, attach=True, offer="on_request")
    async def begin(self, ctx: Context, prompt: str) -> str:
        """Let an agent work."""
        result = await ctx.run_agent(prompt)
        return result.text


STEPS: list[Turn | str] = [turn(calls=[call("begin", prompt="Count.")]), "One, two.", "They are two."]


@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_their_outputs_are_items_of_the_beta(tmp_path: Path, *, stream: bool) -> None:
    with served(tmp_path, STEPS, providers=[Spawning()]) as app:
        client = app.client()
        if stream:
            events = list(
                client.beta.responses.create(
                    model="m", input="How many?", multi_agent={"enabled": True}, betas=BETA, stream=True
                )
            )
            response: Any = events[-1].response  # type: ignore[union-attr]
        else:
            response = client.beta.responses.create(
                model="m",
                input="How many?",
                multi_agent={"enabled": True, "max_concurrent_subagents": 2},
                betas=BETA,
            )
        asked, told, message = response.output
        assert (asked.type, asked.action, asked.arguments) == (
            "multi_agent_call",
            "spawn_agent",
            '{"prompt": "Count."}',
        )
        assert (told.type, told.call_id, told.output[0].text) == ("multi_agent_call_output", asked.call_id, "One, two.")
        assert message.content[0].text == "They are two."
        assert response.tools == []
        kinds = [item.get("type") for item in app.requests[-1].items]
        assert kinds == ["message", "function_call", "function_call_output"]


def test_without_its_header_the_parameter_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [], providers=[Spawning()]) as app:
        with pytest.raises(BadRequestError) as refused:
            app.client().post("/responses", cast_to=object, body={"input": "x", "multi_agent": {"enabled": True}})
        assert refused.value.param == "multi_agent"


def test_clients_that_do_not_ask_for_it_see_none_of_it(tmp_path: Path) -> None:
    with served(tmp_path, STEPS, providers=[Spawning()]) as app:
        tools: Any = [{"type": "function", "name": "begin"}]
        response = app.client().responses.create(model="m", input="How many?", tools=tools)
        assert [item.type for item in response.output] == ["message"]
