"""What users of `langchain-openai` write."""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Place(BaseModel):
    """A place on a map."""

    city: str
    country: str


@tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Sunny in {city}."


def plain(chat: ChatOpenAI) -> str:
    return chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello!")]).text


def streaming(chat: ChatOpenAI) -> tuple[list[str], Any]:
    """Stream an answer: the texts, and what it cost."""
    whole: Any = None
    texts: list[str] = []
    for chunk in chat.stream("Hello!"):
        texts.append(chunk.text)
        whole = chunk if whole is None else whole + chunk
    return texts, whole.usage_metadata


async def asynchronously(chat: ChatOpenAI) -> list[str]:
    answer = await chat.ainvoke("Hello!")
    return [answer.text, "".join([chunk.text async for chunk in chat.astream("Again!")])]


def tool_loop(chat: ChatOpenAI) -> list[BaseMessage]:
    """Run the functions the model calls until it answers."""
    with_tools = chat.bind_tools([get_weather])
    messages: list[BaseMessage] = [HumanMessage("How is the weather in Bonn and Rome?")]
    while True:
        answer = with_tools.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return messages
        messages += [get_weather.invoke(call) for call in answer.tool_calls]


def streamed_tool_call(chat: ChatOpenAI) -> Any:
    whole: Any = None
    for chunk in chat.bind_tools([get_weather]).stream("How is the weather in Bonn?"):
        whole = chunk if whole is None else whole + chunk
    return whole.tool_calls


def hosted(chat: ChatOpenAI) -> str:
    """Name a function of the server; it is run there."""
    return chat.bind(tools=[{"type": "function", "name": "calculate"}]).invoke("What is 6*7?").text


def structured(chat: ChatOpenAI, method: Any) -> Any:
    return chat.with_structured_output(Place, method=method).invoke("Where is Bonn? Answer in JSON.")


def history(chat: ChatOpenAI) -> str:
    """Send everything that was said, thoughts and calls of functions included."""
    messages = tool_loop(chat)
    return chat.invoke([*messages, HumanMessage("Which cities were these?")]).text


def history_by_hand(chat: ChatOpenAI) -> str:
    """Send a history that never was."""
    call = {"name": "get_weather", "args": {"city": "Bonn"}, "id": "call_1", "type": "tool_call"}
    messages: list[BaseMessage] = [
        HumanMessage("How is the weather in Bonn?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("Sunny in Bonn.", tool_call_id="call_1"),
    ]
    return chat.bind_tools([get_weather]).invoke(messages).text


def previous_response(chat: ChatOpenAI) -> str:
    """Send only what is new; the server has the rest."""
    first = chat.invoke("My name is Ada.")
    return chat.invoke("Who am I?", previous_response_id=first.response_metadata["id"]).text


def conversation(chat: ChatOpenAI) -> str:
    """Keep the history in a conversation of the server."""
    talk = chat.root_client.conversations.create()
    chat.invoke("My name is Ada.", conversation=talk.id)
    return chat.invoke("Who am I?", conversation=talk.id).text


def unknown_model(chat: ChatOpenAI) -> str:
    return chat.invoke("Hello!", model="nobody").text
