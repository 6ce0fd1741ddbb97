"""What people ask in their first hour: the demo model does it rightly, or says what it is and how to get a model."""

from typing import Any

import pytest
from tests.backends.demo.conftest import MAIL, SHOUT, ask, call, output

from antwort.app import Antwort
from antwort.backends.base import ToolDefinitions
from antwort.config import Config, ProviderConfig
from antwort.types import JSON

NOTHING: list[tuple[str, dict[str, Any]]] = []


def calculates(expression: str) -> list[tuple[str, dict[str, Any]]]:
    return [("calculate", {"expression": expression})]


QUESTIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "Write a Python program that prints the first ten primes.": NOTHING,
    'Write a Python program that prints "hello world".': NOTHING,
    "What is my name?": NOTHING,
    "List your functions": NOTHING,
    "Which tools can you call?": NOTHING,
    "Summarize this text: The quick brown fox jumps over the lazy dog.": NOTHING,
    "Set variable x to 5": NOTHING,
    "Set the variable name to Ada": NOTHING,
    "Store the number 7 under the key lucky": NOTHING,
    "What is the value of x?": NOTHING,
    "What is 12*7?": calculates("12*7"),
    "What is 15% of 80?": calculates("15 / 100 * 80"),
    "Give me the result of 3 + 4": calculates("3 + 4"),
    "What is the square root of 16?": calculates("sqrt(16)"),
    "What time is it in Tokyo?": [("current_time", {"timezone": "Asia/Tokyo"})],
    "What's the date today?": [("current_time", {})],
    "List all variables": [("store_list", {})],
    "Hello": NOTHING,
    "How are you?": NOTHING,
    "Who are you?": NOTHING,
    "What can you do?": NOTHING,
    "Help": NOTHING,
    "Can you write code?": NOTHING,
    "Fix this code: print(“hello)": NOTHING,
    "What does this program do: for i in range(3): print(i)": NOTHING,
    "Run a program": NOTHING,
    "Write a poem about the sea.": NOTHING,
    'Translate "good morning" into French.': NOTHING,
    'Summarize "The Tempest" in a sentence': NOTHING,
    "What is the capital of France?": NOTHING,
    "Tell me a joke": NOTHING,
    "How do I boil an egg?": NOTHING,
    "What is the weather in Paris?": NOTHING,
    "Remember that my name is Ada.": NOTHING,
    "Ask me a question": NOTHING,
    "Explain quantum computing in simple terms": NOTHING,
    "Summarize our conversation": NOTHING,
    "Delete all variables": NOTHING,
    "Start an agent that writes a poem": NOTHING,
    "Send me a message": NOTHING,
    "Wait 5 seconds": NOTHING,
    "Is 17 a prime number?": NOTHING,
    "Search the web for tea": NOTHING,
    "Say hello in German": NOTHING,
    "Plan a trip to Rome for 3 days": NOTHING,
}


@pytest.fixture(scope="module")
def offered() -> list[JSON]:
    """What a server without any configuration offers, and what it has besides."""
    return list(Antwort().registry.to_tool_definitions())


@pytest.fixture(scope="module")
def with_files(offered: list[JSON]) -> list[JSON]:
    entry = {"file_search": ProviderConfig(enabled=True), "files": ProviderConfig(enabled=True)}
    return [*offered, *Antwort(Config(providers=entry)).registry.to_tool_definitions()]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_an_ordinary_question_is_answered_rightly_or_not_at_all(question: str, offered: list[JSON]) -> None:
    turn = await ask(question, tools=offered)
    assert turn.calls == QUESTIONS[question]
    if not turn.calls:
        assert "demo model" in turn.answer
        assert "can call calculate, current_time, " in turn.answer
        assert "try “What is 12*7?” or “What time is it in Tokyo?”" in turn.answer
        assert turn.answer.endswith(
            "Connect a real model with: antwort serve --backend http://localhost:11434/v1 (Ollama), "
            "http://localhost:8000/v1 (vLLM), http://localhost:8080/v1 --port 8090 (llama.cpp) or openai "
            "(with OPENAI_API_KEY)"
        )
        assert "\n" not in turn.answer


async def test_asked_for_its_functions_it_lists_them_all(offered: list[JSON]) -> None:
    answer = (await ask("List your functions", tools=offered)).answer
    assert all(definition["name"] in answer for definition in offered)
    assert " more;" in (await ask("Hello", tools=offered)).answer


@pytest.mark.parametrize(
    "question",
    [
        "What do my documents say about batteries?",
        "How many vacation days do I have?",
        "Summarize the safety rules.",
        "Is a swollen battery dangerous?",
        "What is done with a swollen battery?",
        "What files are there?",
        "Please list what is in our files",
        "I want to know what the handbook says about holidays",
    ],
)
async def test_asked_about_files_it_searches_them(question: str, with_files: list[JSON]) -> None:
    turn = await ask(question, tools=with_files)
    assert turn.calls == [("file_search", {"query": question.rstrip("?.")})]


@pytest.mark.parametrize("question", ["What is my name?", "Write a poem about the sea.", "Who are you?", "Hello"])
async def test_what_is_not_about_files_is_not_searched_for(question: str, with_files: list[JSON]) -> None:
    assert (await ask(question, tools=with_files)).calls == []


async def test_the_only_function_that_a_request_names_is_called(offered: list[JSON]) -> None:
    expected = [("shout", {"words": "Dinner is ready"})]
    assert (await ask("Dinner is ready", tools=[SHOUT])).calls == expected
    named = ToolDefinitions([SHOUT], ToolDefinitions(offered))
    assert (await ask("Dinner is ready", tools=named)).calls == expected
    assert (await ask("Dinner is ready", tools=ToolDefinitions([*offered, SHOUT]))).calls == []
    assert (await ask("Dinner is ready", tools=ToolDefinitions([SHOUT, MAIL], ToolDefinitions(offered)))).calls == []
    assert (await ask("Hello", tools=[SHOUT])).calls == []
    done = ["Dinner is ready", call("c1", "shout", words="Dinner is ready"), output("c1", "DINNER")]
    assert (await ask(*done, tools=named)).answer == "The result for Dinner is ready is DINNER."
