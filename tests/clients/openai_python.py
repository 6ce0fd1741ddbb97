"""What users of `openai` for Python write."""

from typing import Any

from openai import OpenAI
from openai.types.responses import ResponseInputItemParam
from pydantic import BaseModel

from antwort.types import JSON

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Place(BaseModel):
    """A place on a map."""

    city: str
    country: str


def get_weather(arguments: str) -> str:
    """Tell the weather of a city, given as JSON."""
    return f"Sunny, as asked: {arguments}"


def plain(client: OpenAI) -> str:
    return client.responses.create(model="scripted", input="Hello!", instructions="Be brief.").output_text


def streaming(client: OpenAI) -> tuple[list[str], str]:
    with client.responses.stream(model="scripted", input="Hello!") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        return deltas, stream.get_final_response().output_text


def tool_loop(client: OpenAI) -> str:
    """Run the functions the model calls, and send the whole history each time."""
    history: list[Any] = [{"role": "user", "content": "How is the weather in Bonn and Rome?"}]
    while True:
        response = client.responses.create(model="scripted", input=history, tools=[WEATHER], store=False)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        history += response.output
        for call in calls:
            output = get_weather(call.arguments)
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


def tool_loop_on_the_server(client: OpenAI) -> str:
    """The same, with the history kept by the server."""
    response = client.responses.create(model="scripted", input="How is the weather in Bonn?", tools=[WEATHER])
    while calls := [item for item in response.output if item.type == "function_call"]:
        outputs: list[ResponseInputItemParam] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(call.arguments)}
            for call in calls
        ]
        response = client.responses.create(
            model="scripted", input=outputs, tools=[WEATHER], previous_response_id=response.id
        )
    return response.output_text


def hosted(client: OpenAI) -> str:
    """Let the server run its own function."""
    calculate: Any = {"type": "function", "name": "calculate"}
    return client.responses.create(model="scripted", input="What is 6*7?", tools=[calculate]).output_text


def structured(client: OpenAI) -> Place | None:
    return client.responses.parse(model="scripted", input="Where is Bonn?", text_format=Place).output_parsed


def history(client: OpenAI) -> list[str]:
    first = client.responses.create(model="scripted", input="My name is Ada.")
    second = client.responses.create(model="scripted", input="Who am I?", previous_response_id=first.id)
    items = client.responses.input_items.list(second.id)
    texts = [getattr(part, "text", "") for item in items if item.type == "message" for part in item.content]
    return [second.output_text, *texts]


def background(client: OpenAI) -> list[str]:
    """Read the beginning, leave, and come back for the rest."""
    with client.responses.create(model="scripted", input="Take your time.", background=True, stream=True) as events:
        first = next(iter(events))
        assert first.type == "response.created"
    response_id = first.response.id
    rest = client.responses.retrieve(response_id, stream=True, starting_after=first.sequence_number)
    return [first.type, *(event.type for event in rest), client.responses.retrieve(response_id).output_text]


def conversation(client: OpenAI) -> JSON:
    """Let the server keep a conversation: its items, and what is said in it."""
    greeting: Any = {"type": "message", "role": "user", "content": "My name is Ada."}
    talk = client.conversations.create(items=[greeting], metadata={"topic": "names"})
    answer = client.responses.create(model="scripted", input="Who am I?", conversation=talk.id)
    listed = list(client.conversations.items.list(talk.id, order="asc", limit=2))
    added = client.conversations.items.create(talk.id, items=[{"role": "user", "content": "Thanks."}])
    client.conversations.items.delete(added.data[0].id or "", conversation_id=talk.id)
    one = client.conversations.items.retrieve(listed[0].id or "", conversation_id=talk.id)
    updated = client.conversations.update(talk.id, metadata={"topic": "people"})
    again = client.responses.create(model="scripted", input="And now?", conversation={"id": talk.id})
    deleted = client.conversations.delete(talk.id)
    return {
        "answers": [answer.output_text, again.output_text],
        "in": answer.conversation.id == talk.id if answer.conversation else None,
        "items": [(item.type, getattr(item, "role", None)) for item in listed],
        "one": one.id == listed[0].id,
        "metadata": [talk.metadata, updated.metadata],
        "deleted": deleted.deleted,
    }


def input_tokens(client: OpenAI) -> list[int]:
    short = client.responses.input_tokens.count(model="scripted", input="Hello!")
    long = client.responses.input_tokens.count(model="scripted", input="Hello! " * 100, instructions="Be brief.")
    return [short.input_tokens, long.input_tokens]


def compact(client: OpenAI) -> JSON:
    """Make a long history short, and go on with what is left of it."""
    talk: list[Any] = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello, Ada."},
        {"role": "user", "content": "I live in Bonn."},
    ]
    compacted = client.responses.compact(model="scripted", input=talk)
    window: list[Any] = [item.to_dict() for item in compacted.output]
    answer = client.responses.create(
        model="scripted", input=[*window, {"role": "user", "content": "Who am I?"}], store=False
    )
    return {"object": compacted.object, "last": window[-1]["type"], "answer": answer.output_text}


def websocket(client: OpenAI) -> list[str]:
    """Two turns and a tool call over one connection; nothing is stored."""
    texts = []
    with client.responses.connect() as connection:
        connection.response.create(model="scripted", input="How is the weather in Bonn?", tools=[WEATHER], store=False)
        while True:
            event = connection.recv()
            if event.type == "error":
                raise AssertionError(event)
            if event.type != "response.completed":
                continue
            calls = [item for item in event.response.output if item.type == "function_call"]
            texts.append(event.response.output_text)
            if not calls:
                return texts
            outputs: Any = [
                {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(call.arguments)}
                for call in calls
            ]
            connection.response.create(
                model="scripted", input=outputs, tools=[WEATHER], store=False, previous_response_id=event.response.id
            )


def unknown_model(client: OpenAI) -> str:
    return client.responses.create(model="nobody", input="Hello!").output_text
