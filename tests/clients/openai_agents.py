"""What users of `openai-agents` write."""

from typing import Any

from agents import (
    Agent,
    FileSearchTool,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    Runner,
    RunResult,
    function_tool,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel


class Place(BaseModel):
    """A place on a map."""

    city: str
    country: str


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Sunny in {city}."


def model(client: AsyncOpenAI, name: str = "scripted") -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model=name, openai_client=client)


def assistant(client: AsyncOpenAI, **options: Any) -> Agent[None]:
    return Agent(name="Assistant", instructions="Be brief.", model=model(client), **options)


async def plain(client: AsyncOpenAI) -> str:
    return str((await Runner.run(assistant(client), "Hello!")).final_output)


async def tool_loop(client: AsyncOpenAI) -> RunResult:
    return await Runner.run(assistant(client, tools=[get_weather]), "How is the weather in Bonn?")


async def streaming(client: AsyncOpenAI) -> tuple[str, list[str], Any]:
    """Stream a run with a tool call: the text as it comes, and the items as they are complete."""
    run = Runner.run_streamed(assistant(client, tools=[get_weather]), "How is the weather in Bonn?")
    text = ""
    items: list[str] = []
    async for event in run.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            text += event.data.delta
        elif event.type == "run_item_stream_event":
            items.append(event.item.type)
    return text, items, run.final_output


async def handoff(client: AsyncOpenAI) -> tuple[str, Any]:
    german = Agent[None](name="German", instructions="Speak German.", model=model(client))
    triage = Agent[None](name="Triage", instructions="Hand over.", model=model(client), handoffs=[german])
    run = await Runner.run(triage, "Guten Tag!")
    return run.last_agent.name, run.final_output


async def structured(client: AsyncOpenAI) -> Any:
    return (await Runner.run(assistant(client, output_type=Place), "Where is Bonn?")).final_output


async def hosted(client: AsyncOpenAI) -> Any:
    """Ask an agent of the server, which has a function there, beside a function of one's own."""
    agent = Agent[None](name="Accountant", model=model(client, "accountant"), tools=[get_weather])
    return (await Runner.run(agent, "What is 6*7?")).final_output


def searcher(client: AsyncOpenAI, search: FileSearchTool) -> Agent[None]:
    return Agent(name="Librarian", model=model(client, "antwort-demo"), tools=[search])


async def replay(client: AsyncOpenAI) -> Any:
    """Go on with the items of the first run as the input of the second."""
    first = await Runner.run(assistant(client, tools=[get_weather]), "How is the weather in Bonn?")
    history = [*first.to_input_list(), {"role": "user", "content": "Which city was that?"}]
    second = await Runner.run(assistant(client, tools=[get_weather]), history)  # type: ignore[arg-type]
    return second.final_output


async def previous_response(client: AsyncOpenAI) -> Any:
    first = await Runner.run(assistant(client), "My name is Ada.")
    second = await Runner.run(assistant(client), "Who am I?", previous_response_id=first.last_response_id)
    return second.final_output


async def session(client: AsyncOpenAI) -> tuple[Any, list[str]]:
    """Keep the session in a conversation of the server."""
    kept = OpenAIConversationsSession(openai_client=client)
    agent = assistant(client, tools=[get_weather])
    await Runner.run(agent, "How is the weather in Bonn?", session=kept)
    second = await Runner.run(agent, "Which city was that?", session=kept)
    items: list[Any] = list(await kept.get_items())
    popped: Any = await kept.pop_item()
    assert popped == items[-1]
    assert len(await kept.get_items()) == len(items) - 1
    await kept.clear_session()
    return second.final_output, [item.get("role") or item["type"] for item in items]


async def conversation(client: AsyncOpenAI) -> Any:
    """Have the server load and keep the conversation."""
    talk = await client.conversations.create()
    await Runner.run(assistant(client), "My name is Ada.", conversation_id=talk.id)
    return (await Runner.run(assistant(client), "Who am I?", conversation_id=talk.id)).final_output


async def compaction(client: AsyncOpenAI, underlying: Any) -> tuple[Any, list[str]]:
    """Have the server make a session compact after each turn. The client wants a name of OpenAI's: an alias."""
    kept = OpenAIResponsesCompactionSession(
        session_id="ada",
        underlying_session=underlying,
        client=client,
        model="gpt-5",
        should_trigger_compaction=lambda _: True,
    )
    await Runner.run(assistant(client), "My name is Ada.", session=kept)
    items: list[Any] = list(await kept.get_items())
    second = await Runner.run(assistant(client), "Who am I?", session=kept)
    return second.final_output, [item.get("role") or item["type"] for item in items]


async def websocket(client: AsyncOpenAI) -> Any:
    """The tool loop over one WebSocket."""
    socket = OpenAIResponsesWSModel(model="scripted", openai_client=client)
    agent = Agent[None](name="Assistant", model=socket, tools=[get_weather], model_settings=ModelSettings(store=False))
    try:
        run = Runner.run_streamed(agent, "How is the weather in Bonn?")
        async for _ in run.stream_events():
            pass
        return run.final_output
    finally:
        await socket.close()


async def unknown_model(client: AsyncOpenAI) -> None:
    await Runner.run(Agent[None](name="Assistant", model=model(client, "nobody")), "Hello!")
