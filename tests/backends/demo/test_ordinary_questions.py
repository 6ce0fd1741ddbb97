"""What people ask in their first hour: the demo model does it rightly, or says what it is and how to get a model."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.backends.demo.conftest import MAIL, SHOUT, ask, call, output

from antwort.app import Antwort
from antwort.backends.base import ToolDefinitions
from antwort.config import Config, ProviderConfig
from antwort.context import Context
from antwort.providers.file_search.report import results
from antwort.providers.file_search.search import SearchOutcome
from antwort.testing import running
from antwort.types import JSON

NOTHING: list[tuple[str, dict[str, Any]]] = []


def calculates(expression: str) -> list[tuple[str, dict[str, Any]]]:
    return [("calculate", {"expression": expression})]


def tells_time(*zones: str) -> list[tuple[str, dict[str, Any]]]:
    return [("current_time", {"timezone": zone}) for zone in zones] or [("current_time", {})]


def runs(code: str) -> list[tuple[str, dict[str, Any]]]:
    return [("run_program", {"code": code})]


def sets(key: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("store_set", {"key": key, "value": value})]


def gets(key: str) -> list[tuple[str, dict[str, Any]]]:
    return [("store_get", {"key": key})]


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
    # a sum is computed only where it is all that is asked
    "12*7": calculates("12*7"),
    "12*7=": calculates("12*7"),
    "pi * 2": calculates("pi * 2"),
    "12/25/2024": NOTHING,
    "555-1234": NOTHING,
    "What is 0x10 + 1?": NOTHING,
    "-3 + 5": calculates("-3 + 5"),
    "(1+2)*3": calculates("(1+2)*3"),
    "Calculate: 12*7": calculates("12*7"),
    "12*7; 3*4": [*calculates("12*7"), *calculates("3*4")],
    "And 12*8?": calculates("12*8"),
    "How much is 3 + 4?": calculates("3 + 4"),
    "How much is 20 percent of 50?": calculates("20 / 100 * 50"),
    "Hi, can you please calculate 2 to the power of 10 for me?": calculates("2**10"),
    "What is 17 * 23? Answer briefly.": calculates("17 * 23"),
    "My name is Ada. What's 17*23?": calculates("17*23"),
    "Compute 5!": calculates("factorial(5)"),
    "What is x times 3?": NOTHING,
    "Solve x^2 - 4 = 0": NOTHING,
    "Don't calculate 2+2, just say hi.": NOTHING,
    "Do not use any tool. What is 2+2?": NOTHING,
    "Without calling a function, what is 2+2?": NOTHING,
    "What is 12*7? Do not explain it.": calculates("12*7"),
    'Say "12*7" backwards.': NOTHING,
    "Summarize this text: The cat was old and weighed 4*2 kg. It lives in Tokyo.": NOTHING,
    "Translate into French:\nWhat is 12*7?\nWhat time is it in Tokyo?": NOTHING,
    "Give me a recipe for 4 people: 2*200g pasta": NOTHING,
    "What is the meaning of 24/7?": NOTHING,
    "What is 9/11?": NOTHING,
    "What is 3 times the speed of light?": NOTHING,
    "What is 2+2 and why?": NOTHING,
    "Why is 2+2 equal to 4?": NOTHING,
    "Is 7*8 = 54?": NOTHING,
    "Compute 2+2 and tell me a joke": NOTHING,
    "Compute 12*7. Then add 3.": NOTHING,
    "f(2) + 3": NOTHING,
    "I paid 3*20 euros.": NOTHING,
    "What does 2**3 mean in Python?": NOTHING,
    # the time is told only where it is what is asked
    "What time is it?": tells_time(),
    "what time is it now": tells_time(),
    "Tell the time.": tells_time(),
    "What year is it?": tells_time(),
    "What is today's date?": tells_time(),
    "What day is it today?": tells_time(),
    "Can you tell me what time it is in Oslo?": tells_time("Europe/Oslo"),
    "What's the current time in London right now?": tells_time("Europe/London"),
    "Time in Tokyo?": tells_time("Asia/Tokyo"),
    "What time is it in Tokyo, Japan?": tells_time("Asia/Tokyo"),
    "What time is it in Berlin, Tokyo and New York?": tells_time("Europe/Berlin", "Asia/Tokyo", "America/New_York"),
    "What time is it in Paris, Texas?": NOTHING,
    "What time is it in Narnia?": NOTHING,
    "What time is it in Berlin and Narnia?": NOTHING,
    "What time is it there?": NOTHING,
    "What time was it in 1990?": NOTHING,
    "What time is it in 1990?": NOTHING,
    "What time will it be in Tokyo in 3 hours?": NOTHING,
    "What time is it in Tokyo when it is noon in Berlin?": NOTHING,
    "What time do shops in Berlin open?": NOTHING,
    "What's the date tomorrow?": NOTHING,
    "What is time?": NOTHING,
    "What's the weather in Berlin today?": NOTHING,
    "What's a good day to visit Tokyo?": NOTHING,
    "How many hours are in a day?": NOTHING,
    "Tell me about the time of the dinosaurs": NOTHING,
    "How many times did Brazil win in Tokyo?": NOTHING,
    # functions that are named
    "Call store_set with key color and value blue": sets("color", "blue"),
    "Please call store_set with the key 'favourite color' and the value 'dark blue'.": sets(
        "favourite color", "dark blue"
    ),
    "use store_set with key: x, value: 5": sets("x", 5),
    'store_set {"key": "x", "value": [1, 2]}': NOTHING,
    'Call store_set with {"key": "x", "value": 5}': NOTHING,
    'store_set(key="x", value="a, b")': sets("x", "a, b"),
    "store_set(key=x)": NOTHING,
    'Set the variable "x" to "5" with store_set': sets("x", "5"),
    "use store_get with key: x": gets("x"),
    "Use the function `store_get` with key x.": gets("x"),
    "store_get x": gets("x"),
    'call store_get("x")': gets("x"),
    "Can you call store_get for x?": gets("x"),
    "use store_get": NOTHING,
    "use store_get with key: x and print it": NOTHING,
    "use store_set x": NOTHING,
    "store_delete all": NOTHING,
    "Call store_set with key agent and value run": sets("agent", "run"),
    "use store_set with value 'a, b' and key x": sets("x", "a, b"),
    "ask_user: How old are you?": [("ask_user", {"question": "How old are you?"})],
    "Call store_get with key x and then store_list": NOTHING,
    'Set the variable "x" to "5" with store_set, then read it with store_get': NOTHING,
    "Use calculate with 3*4": calculates("3*4"),
    "use calculate to work out 3*4": calculates("3*4"),
    "Use calculate with expression: sqrt(2) * 3": calculates("sqrt(2) * 3"),
    "use calculate": NOTHING,
    'use calculate with "3*4"': calculates("3*4"),
    "What is 3*4, using calculate?": calculates("3*4"),
    "use current_time": tells_time(),
    "Call current_time for Berlin": tells_time("Europe/Berlin"),
    "use current_time with timezone Asia/Tokyo": tells_time("Asia/Tokyo"),
    "use current_time for Narnia": NOTHING,
    "use current_time with timezone Narnia": NOTHING,
    "use store_list and then use current_time": [("store_list", {}), *tells_time()],
    "use store_get with key x, then use store_get with key y": [*gets("x"), *gets("y")],
    "use store_get with key 'my key'": gets("my key"),
    "use store_get with key x and offset abc": NOTHING,
    "Use store_list to show my variables": [("store_list", {})],
    "Use notify_user to say dinner is ready": [("notify_user", {"message": "dinner is ready"})],
    'Use spawn_agent to compare "tea" with "milk"': [("spawn_agent", {"prompt": 'compare "tea" with "milk"'})],
    'use wait_agent for "a1" and "a2"': [("wait_agent", {"agents": ["a1", "a2"]})],
    'use store_set for "a", "b" and "c"': NOTHING,
    'call run_program("print(1)")': runs("print(1)"),
    "Use notify_user: dinner is ready": [("notify_user", {"message": "dinner is ready"})],
    'Notify me: "Dinner is ready"': [("notify_user", {"message": "Dinner is ready"})],
    "run_program": NOTHING,
    "Run run_program": NOTHING,
    "use run_program to print the first ten primes": NOTHING,
    "Explain the function store_ref": NOTHING,
    "What does calculate do?": NOTHING,
    "How do I use store_set?": NOTHING,
    "What can I do with store_get?": NOTHING,
    "Help me with store_get": NOTHING,
    "Do not use store_list": NOTHING,
    "store_get is broken": NOTHING,
    # functions that are not named
    "Set x to 5": NOTHING,
    "Store the value 5 under the key x": NOTHING,
    "Notify me: dinner is ready": NOTHING,
    "What is an “agent” in AI?": NOTHING,
    "Which agent works at Google?": NOTHING,
    'What is the final answer to "life"?': NOTHING,
    'Write a final answer about "tea"': NOTHING,
    "How do I list variables in Python?": NOTHING,
    "List all planets": NOTHING,
    "Delete the variable x": NOTHING,
    # programs
    "Run print(1+1)": runs("print(1+1)"),
    'Please run this Python code: print("hello")': runs('print("hello")'),
    "```python\nprint(1+1)\n```": runs("print(1+1)"),
    "Run this:\n```\nfor i in range(3):\n    x = i  * 2\n\n    print(x)\n```": runs(
        "for i in range(3):\n    x = i  * 2\n\n    print(x)"
    ),
    "run_program print(2)": runs("print(2)"),
    "Call run_program with code: print(1, 2)": runs("print(1, 2)"),
    "What does this do?\n```python\nprint(1+1)\n```": NOTHING,
    "Fix this:\n```python\nprint(1+1\n```": NOTHING,
    "```json\n{}\n```": NOTHING,
    'Can you run print("a  b")?': runs('print("a  b")'),
    "Run tests": NOTHING,
    "Run away (quickly)": NOTHING,
    "Don't run print(1)": NOTHING,
    # maths in words
    "two plus two": calculates("2 + 2"),
    "What is seven times eight?": calculates("7 * 8"),
    "twenty-five times four": calculates("25 * 4"),
    "What is one hundred divided by twenty?": calculates("100 / 20"),
    "What is the sum of 3 and 4?": calculates("3 + 4"),
    "What is the difference between 10 and 4?": calculates("10 - 4"),
    "calculate the average of 3, 5 and 8": calculates("(3 + 5 + 8) / 3"),
    "Half of 90, please": calculates("90 / 2"),
    "twice 21": calculates("2 * 21"),
    "Use the calculator to compute 3*4": calculates("3*4"),
    "Why is one plus one two?": NOTHING,
    "What is one?": NOTHING,
    "convert 10 km to miles": NOTHING,
    "what's 100 usd in eur": NOTHING,
    # other languages
    "Hallo! Was ist 12*7?": calculates("12*7"),
    "Wie viel ist 12 mal 7?": calculates("12 * 7"),
    "Combien font 12*7 ?": calculates("12*7"),
    "¿Cuánto es 12*7?": calculates("12*7"),
    "Wie spät ist es?": tells_time(),
    "Quelle heure est-il à Paris ?": tells_time("Europe/Paris"),
    "Hallo": NOTHING,
    "Bonjour !": NOTHING,
    "こんにちは": NOTHING,
    "Привет, как дела?": NOTHING,
    "Wer bist du?": NOTHING,
    "Was kannst du?": NOTHING,
    "你是谁": NOTHING,
    # what a server may have, and this one has not
    "Draw a cat": NOTHING,
    "Can you make a picture of a dog?": NOTHING,
    "Draw a conclusion from this": NOTHING,
    "read file x": NOTHING,
    "open /etc/passwd": NOTHING,
    "What's the weather?": NOTHING,
    "set a timer for 5 minutes": NOTHING,
    # talk, and code
    "Which model are you?": NOTHING,
    "Are you GPT-4?": NOTHING,
    "Who made you?": NOTHING,
    "good afternoon": NOTHING,
    "And in London?": NOTHING,
    "continue": NOTHING,
    "def f(x): return x*2. What is f(3)?": NOTHING,
    "What does list(map(str, [1,2])) return?": NOTHING,
    "SELECT * FROM users": NOTHING,
    "lorem ipsum dolor " * 3000: NOTHING,
    # what is no question at all
    "": NOTHING,
    "?": NOTHING,
    "🙂": NOTHING,
    "\"'; DROP TABLE users; --": NOTHING,
    "asdf": NOTHING,
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


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("Compute 5 apples!", "“Compute 5 apples!”."),
        ("\"'; DROP TABLE users; --", "“\"'; DROP TABLE users; --”."),
        ("Is it “so”?", "“Is it “so””."),
        ("Set x to 5", "“Set x to 5”."),
        ("Notify me: dinner is ready", "“Notify me: dinner is ready”."),
        ("What does calculate do?", "“What does calculate do”."),
        ("run_program", "“run_program”: run_program needs code."),
        (
            "Draw a cat",
            "“Draw a cat”: it draws only where an image server is configured, with the provider image_generation.",
        ),
        ("Draw a conclusion from this", "“Draw a conclusion from this”."),
        ("use store_set x", "“use store_set x”: store_set needs key, value."),
        ("use calculate with 2*8 eggs", "“use calculate with 2*8 eggs”."),
        ("use store_set with key x", "“use store_set with key x”: store_set needs value."),
    ],
)
async def test_what_it_cannot_answer_it_repeats_as_it_is_and_says_only_what_really_is_missing(
    question: str, shown: str, offered: list[JSON]
) -> None:
    answer = (await ask(question, tools=offered)).answer
    assert answer.startswith(f"The built-in demo model, a set of rules, cannot answer {shown} It can call calculate")


@pytest.mark.parametrize(
    "question",
    [
        *("Hallo", "Bonjour !", "こんにちは", "Привет, как дела?", "good afternoon", "Wer bist du?", "你是谁", ""),
        *("Which model are you?", "Are you GPT-4?", "Who made you?"),
    ],
)
async def test_greeted_or_asked_who_it_is_it_says_so_in_any_language(question: str, offered: list[JSON]) -> None:
    answer = (await ask(question, tools=offered)).answer
    assert "I am antwort-demo, the built-in demo model: a set of rules, no language model." in answer


@pytest.mark.parametrize("message", ["Danke!", "Merci", "Thanks a lot for your help!", "thx"])
async def test_who_thanks_is_told_that_he_is_welcome(message: str, offered: list[JSON]) -> None:
    turn = await ask(message, tools=offered)
    assert (turn.calls, turn.answer) == ([], "You are welcome.")


@pytest.mark.parametrize(
    ("question", "prompt"),
    [
        ("Draw a cat", "a cat"),
        ("Can you draw me a cat?", "a cat"),
        ("Make a picture of two dogs.", "two dogs"),
        ("Draw a conclusion from this", None),
    ],
)
async def test_with_an_image_server_it_draws(question: str, prompt: str | None, offered: list[JSON]) -> None:
    section = {"image_generation": ProviderConfig(enabled=True, settings={"url": "http://127.0.0.1:9/v1"})}
    tools = [*offered, *Antwort(Config(providers=section)).registry.to_tool_definitions()]
    assert (await ask(question, tools=tools)).calls == ([("image_generation", {"prompt": prompt})] if prompt else [])


async def test_the_time_of_another_place_may_be_asked_for_in_short(offered: list[JSON]) -> None:
    said = ["What time is it in Tokyo?", call("c1", "current_time", timezone="Asia/Tokyo"), output("c1", "noon")]
    assert (await ask(*said, "And in London?", tools=offered)).calls == tells_time("Europe/London")
    assert (await ask(*said, "And in London?", "What about Paris?", tools=offered)).calls == tells_time("Europe/Paris")
    assert (await ask(*said, "And you?", tools=offered)).calls == []
    assert (await ask("What is tea?", "And in London?", tools=offered)).calls == []


def test_forty_questions_over_http_are_answered_without_an_error_and_in_one_line(tmp_path: Path) -> None:
    """As a first-time user asks them: a server without any configuration, requests that name no function."""
    asked = [question for question in QUESTIONS if question.strip()][-44:]
    with running(Antwort(Config(data_dir=tmp_path))) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        for question in asked:
            reply = client.post("/v1/responses", json={"input": question, "store": False})
            body = reply.json()
            assert (reply.status_code, body["status"]) == (200, "completed"), body
            assert all(item["type"] != "function_call" for item in body["output"]), "ours are executed, not handed out"
            text = body["output"][-1]["content"][0]["text"]
            answered = text.startswith(("The result", "current_time answered: "))
            assert answered == bool(QUESTIONS[question]), text
            assert "\n" not in text


@pytest.mark.parametrize("message", ["bye", "Goodbye!", "Bye bye", "See you later", "Bye, see you"])
async def test_who_leaves_is_said_goodbye(message: str, offered: list[JSON]) -> None:
    turn = await ask(message, tools=offered)
    assert (turn.calls, turn.answer) == ([], "Goodbye.")


async def test_a_search_that_finds_nothing_is_told_as_such(with_files: list[JSON]) -> None:
    nothing = results(Context("a"), "tea", SearchOutcome())
    history = ["What is tea?", call("c1", "file_search", query="tea"), output("c1", nothing)]
    assert (await ask(*history, tools=with_files)).answer == "file_search found nothing for tea."


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
    assert (await ask("Don't use it", tools=[SHOUT])).calls == []
    only = [definition for definition in offered if definition["name"] in {"current_time", "run_program", "calculate"}]
    for definition in only:
        assert (await ask('What time do shops open? Say "12*7".', tools=[definition])).calls == []
    done = ["Dinner is ready", call("c1", "shout", words="Dinner is ready"), output("c1", "DINNER")]
    assert (await ask(*done, tools=named)).answer == "The result for Dinner is ready is DINNER."
