"""What users of `pydantic-ai` write."""

from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, NativeOutput, RunContext
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.openai import OpenAICompaction, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.native_tools import MCPServerTool
from pydantic_ai.providers.openai import OpenAIProvider


class Place(BaseModel):
    """A place on a map."""

    city: str
    country: str


def model(client: AsyncOpenAI, name: str = "scripted") -> OpenAIResponsesModel:
    return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))


def weather_agent(client: AsyncOpenAI, name: str = "scripted") -> Agent[str, str]:
    agent = Agent(model(client, name), deps_type=str, instructions="Be brief.")

    @agent.tool
    def get_weather(ctx: RunContext[str], city: str) -> str:
        """Tell the weather of a city."""
        return f"{ctx.deps} in {city}."

    return agent


async def plain(client: AsyncOpenAI) -> str:
    return (await Agent(model(client), instructions="Be brief.").run("Hello!")).output


async def tool_loop(client: AsyncOpenAI) -> tuple[str, int]:
    run = await weather_agent(client).run("How is the weather in Bonn?", deps="Sunny")
    return run.output, run.usage.total_tokens


async def streaming(client: AsyncOpenAI) -> list[str]:
    """Stream a run with a tool call; each text has all that came before it."""
    async with weather_agent(client).run_stream("How is the weather in Bonn?", deps="Sunny") as run:
        return [text async for text in run.stream_text(debounce_by=None)]


async def structured(client: AsyncOpenAI) -> Place:
    """Have the model call a function with the result, which is this library's default."""
    return (await Agent(model(client), output_type=Place).run("Where is Bonn?")).output


async def structured_natively(client: AsyncOpenAI) -> Place:
    """Have the model server keep to the schema."""
    return (await Agent(model(client), output_type=NativeOutput(Place)).run("Where is Bonn?")).output


async def hosted(client: AsyncOpenAI) -> str:
    """Ask an agent of the server, which has a function there, beside a function of one's own."""
    return (await weather_agent(client, "accountant").run("What is 6*7?", deps="Sunny")).output


async def hosted_by_name(client: AsyncOpenAI) -> str:
    """Name a function of the server in the request."""
    calculate: Any = {"type": "function", "name": "calculate"}
    settings = OpenAIResponsesModelSettings(extra_body={"tools": [calculate]})
    return (await Agent(model(client), model_settings=settings).run("What is 6*7?")).output


async def history(client: AsyncOpenAI) -> tuple[str, Sequence[ModelMessage]]:
    agent = weather_agent(client)
    first = await agent.run("How is the weather in Bonn?", deps="Sunny")
    second = await agent.run("Which city was that?", deps="Sunny", message_history=first.all_messages())
    return second.output, second.all_messages()


async def previous_response(client: AsyncOpenAI) -> str:
    """Send only what is new; the server has the rest."""
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto", openai_store=True)
    agent = Agent(model(client), model_settings=settings)
    first = await agent.run("My name is Ada.")
    return (await agent.run("Who am I?", message_history=first.all_messages())).output


async def conversation(client: AsyncOpenAI) -> str:
    """Keep the history in a conversation of the server."""
    talk = await client.conversations.create()
    agent = Agent(model(client), model_settings=OpenAIResponsesModelSettings(openai_conversation_id=talk.id))
    first = await agent.run("My name is Ada.")
    return (await agent.run("Who am I?", message_history=first.all_messages())).output


async def compaction(client: AsyncOpenAI) -> str:
    """Have the server make the history compact when it is long."""
    agent = Agent(model(client), capabilities=[OpenAICompaction(message_count_threshold=2)])
    first = await agent.run("My name is Ada.")
    return (await agent.run("Who am I?", message_history=first.all_messages())).output


async def compaction_on_the_server(client: AsyncOpenAI) -> str:
    """Let the server decide when the history is too long."""
    agent = Agent(model(client), capabilities=[OpenAICompaction(token_threshold=1000)])
    first = await agent.run("My name is Ada.")
    return (await agent.run("Who am I?", message_history=first.all_messages())).output


async def background(client: AsyncOpenAI) -> str:
    """Start a response, and ask until it is there."""
    settings = OpenAIResponsesModelSettings(openai_background=True)
    return (await Agent(model(client), model_settings=settings).run("Take your time.")).output


async def websocket(client: AsyncOpenAI) -> str:
    """The tool loop over one WebSocket."""
    settings = OpenAIResponsesModelSettings(openai_transport="websocket")
    agent = weather_agent(client)
    return (await agent.run("How is the weather in Bonn?", deps="Sunny", model_settings=settings)).output


async def mcp_server(client: AsyncOpenAI, url: str, label: str, *, stream: bool) -> tuple[str, list[str]]:
    """Name an MCP server; the kinds of parts of what came back are returned, too."""
    tool = MCPServerTool(id=label, url=url, description="It forgets.", allowed_tools=["forget"])
    agent = Agent(model(client), capabilities=[NativeTool(tool)])
    if not stream:
        run = await agent.run("Forget it!")
        return run.output, [part.part_kind for message in run.all_messages() for part in message.parts]
    async with agent.run_stream("Forget it!") as streamed:
        output = await streamed.get_output()
        return output, [part.part_kind for message in streamed.all_messages() for part in message.parts]


async def unknown_model(client: AsyncOpenAI) -> None:
    await Agent(model(client, "nobody")).run("Hello!")
