"""Single questions, answered in this process."""

import base64
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.cli.model import ModelChoice, choose_model, rules_answer
from antwort.cli.terminal import AnswerText
from antwort.config import Config, load_config
from antwort.testing import Gate, ScriptedBackend, ScriptServer, Turn, call, fail, running, turn

Cli = Callable[..., Result]
Write = Callable[[str], Path]
Plugin = Callable[[str, str], None]
Process = Callable[..., subprocess.Popen[str]]
Refused = Callable[..., str]


RULES = "antwort: the built-in demo model answers, a set of rules: "


def answered(result: Result) -> str:
    """Return the answer, beside which nothing is said but which functions were called, and that rules answer."""
    others = [line for line in result.stderr.splitlines() if not line.startswith(("→ ", RULES))]
    assert (result.exit_code, others) == (0, [])
    return result.stdout


def message(model: ScriptServer) -> Any:
    """Return the content of the last message that a model server got."""
    return model.requests[-1]["messages"][-1]["content"]


def test_the_answer_is_printed_and_nothing_is_left_behind(cli: Cli) -> None:
    assert answered(cli("run", "What is 12*7?", "--function", "calculate")) == "The result for 12*7 is 84.\n"
    assert list(Path().iterdir()) == []


def test_without_configuration_the_demo_model_calls_the_functions_of_the_default_set(cli: Cli) -> None:
    assert answered(cli("run", "What is 12*7?")) == "The result for 12*7 is 84.\n"
    assert "timezone Asia/Tokyo" in answered(cli("run", "What time is it in Tokyo?"))


def test_without_a_model_server_the_demo_model_says_who_it_is(cli: Cli) -> None:
    assert "the built-in demo model" in answered(cli("run", "Who are you?"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "no server runs on .antwort, and no model server was looked for (--no-probe)"),
        (("--data-dir", "there"), "no server runs on there, and no model server was looked for (--no-probe)"),
        (("--no-store",), "no model server was looked for (--no-probe)"),
    ],
)
def test_that_rules_answer_for_lack_of_a_model_is_said_in_one_line(
    cli: Cli, options: tuple[str, ...], why: str
) -> None:
    result = cli("run", "Who are you?", *options)
    assert (result.exit_code, result.stderr) == (0, f"{RULES}{why}; connect a model with --backend URL\n")


def test_which_model_servers_were_looked_for_is_said_with_the_service_that_could_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = ModelChoice(load_config(), keeps_looking=True)
    usual = "no Ollama, vLLM, LM Studio or llama.cpp was found on this machine"
    assert rules_answer(searched).endswith(f"rules: {usual}; connect a model with --backend URL")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-word")
    named = choose_model(load_config(), probe=False)
    assert rules_answer(named).endswith("; OPENAI_API_KEY is set, and not used: --backend openai asks api.openai.com")


@pytest.mark.parametrize("api", ["anthropic", "chat"])
def test_a_flag_says_what_a_model_server_speaks(cli: Cli, api: str) -> None:
    with ScriptServer(["Ahoy."]) as model:
        assert answered(cli("run", "hi", "--backend", model.url, "--backend-api", api)) == "Ahoy.\n"
        assert ("anthropic-version" in model.headers[-1]) == (api == "anthropic")
    result = cli("run", "hi", "--backend", model.url, "--backend-api", "antropic")
    assert result.exit_code == 2
    assert result.stderr.startswith("antwort: flag --backend-api: backends.default.api: unknown dialect 'antropic'")


@pytest.mark.parametrize("options", [("--quiet",), ("--backend", "demo")])
def test_nothing_is_said_of_rules_to_whoever_has_named_them_or_wants_to_hear_nothing(
    cli: Cli, options: tuple[str, ...]
) -> None:
    assert cli("run", "Who are you?", *options).stderr == ""


def test_nothing_is_said_of_rules_if_a_model_answers(cli: Cli, config: Write) -> None:
    with ScriptServer(["Ahoy."]) as model:
        config(f"backends:\n  one:\n    url: {model.url}\n")
        assert cli("run", "hi").stderr == ""


def test_length_and_temperature_reach_the_model(cli: Cli) -> None:
    with ScriptServer(["Ahoy."]) as model:
        options = ("--max-output-tokens", "40", "--temperature", "0.5")
        assert answered(cli("run", "hi", "--backend", model.url, *options)) == "Ahoy.\n"
        (request,) = model.requests
    assert (request["max_tokens"], request["temperature"]) == (40, 0.5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--temperature", "9"), "Invalid 'temperature': decimal above maximum value."),
        (("--temperature", "nan"), "'--temperature': 'nan' is no number from 0 to 2"),
        (("--max-output-tokens", "0"), "Invalid 'max_output_tokens': integer below minimum value."),
        (("--max-output-tokens", "many"), "'--max-output-tokens': 'many' is not a valid integer"),
    ],
)
def test_a_length_or_temperature_that_cannot_be_is_refused(
    refused: Refused, options: tuple[str, ...], told: str
) -> None:
    assert told in refused("run", "hi", *options)


def test_the_question_can_be_piped_in(cli: Cli) -> None:
    assert "84" in answered(cli("run", "--function", "calculate", stdin="What is 12*7?\n"))


def test_a_question_can_be_about_what_is_piped_in(cli: Cli) -> None:
    with ScriptServer(["A poem."]) as model:
        answered(cli("run", "What is this?", "--backend", model.url, stdin=b"Roses are red\n"))
        assert message(model) == "What is this?\n\nRoses are red"


def test_what_is_piped_in_need_not_be_text(cli: Cli) -> None:
    with ScriptServer(["Bytes."]) as model:
        answered(cli("run", "--backend", model.url, stdin=b"a\xffb"))
        assert message(model) == "a\ufffdb"


def test_without_a_question_there_is_nothing_to_ask(refused: Refused) -> None:
    assert refused("run") == "there is nothing to ask: give a question, or pipe it in"


def test_options_reach_the_model(cli: Cli) -> None:
    with ScriptServer(["Ahoy."], models=["small", "large"]) as model:
        result = cli("run", "hi", "--backend", model.url, "--model", "large", "--instructions", "Talk like a pirate.")
        assert answered(result) == "Ahoy.\n"
        (request,) = model.requests
        assert request["model"] == "large"
        assert request["messages"][0]["content"] == "Talk like a pirate."


def test_an_agent_of_the_configuration_answers(cli: Cli, config: Write) -> None:
    with ScriptServer(["Ahoy."]) as model:
        config(f"backends:\n  one:\n    url: {model.url}\nagents:\n  pirate:\n    instructions: Talk like a pirate.\n")
        assert answered(cli("run", "hi", "--agent", "pirate")) == "Ahoy.\n"
        assert model.requests[0]["messages"][0]["content"] == "Talk like a pirate."


def test_functions_are_executed_here(cli: Cli, plugin: Plugin) -> None:
    plugin("shop", "@function\ndef price(item: str) -> str:\n    '''Tell a price.'''\n    return item + ': 3 €'\n")
    with ScriptServer([turn("One moment.", calls=[call("price", item="tea")]), turn("It is 3 €.")]) as model:
        result = cli("run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url)
        assert answered(result) == "One moment.\n\nIt is 3 €.\n"
        assert message(model) == "tea: 3 €"


def test_a_function_that_is_not_there_is_refused_with_the_nearest(refused: Refused) -> None:
    for option in ("--function", "--tool-choice"):
        line = refused("run", "hi", option, "calcuate")
        assert line == f"{option} calcuate: there is no such function; did you mean 'calculate'?"


def test_an_unknown_agent_is_a_mistake_of_the_caller(refused: Refused) -> None:
    assert refused("run", "hi", "--agent", "nobody") == "There is no agent 'nobody'."


def test_a_text_file_is_read_and_an_image_seen(cli: Cli) -> None:
    Path("notes.md").write_text("Tea is 3 €.", encoding="utf-8")
    Path("dot.png").write_bytes(b"\x89PNG")
    with ScriptServer(["I see."]) as model:
        answered(cli("run", "What?", "--file", "notes.md", "--file", "dot.png", "--backend", model.url))
        text, image, question = message(model)
    assert "notes.md" in text["text"]
    assert "Tea is 3 €." in text["text"]
    assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    assert question["text"] == "What?"


def test_a_file_that_is_missing_is_named(refused: Refused) -> None:
    assert refused("run", "hi", "--file", "nowhere.txt") == (
        "--file nowhere.txt: cannot be read: No such file or directory"
    )


def test_as_json_it_is_the_whole_response(cli: Cli) -> None:
    response = json.loads(answered(cli("run", "What is 12*7?", "--function", "calculate", "--json")))
    assert (response["object"], response["status"], response["store"]) == ("response", "completed", False)
    assert response["model"] == "antwort-demo"
    assert response["output"][-1]["content"][0]["text"] == "The result for 12*7 is 84."


def test_as_events_it_is_one_line_for_each(cli: Cli) -> None:
    events = [json.loads(line) for line in answered(cli("run", "hi", "--events")).splitlines()]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")


def test_one_cannot_have_both(refused: Refused) -> None:
    assert refused("run", "hi", "--json", "--events") == "--json and --events exclude each other"


def test_an_answer_that_is_cut_off_is_printed_with_the_reason(cli: Cli) -> None:
    with ScriptServer([turn("To be or", finish="length")]) as model:
        result = cli("run", "hi", "--backend", model.url)
    assert (result.exit_code, result.stdout) == (1, "To be or\n")
    assert result.stderr == "antwort: the answer is incomplete (max_output_tokens)\n"


def test_a_response_that_fails_says_why_in_one_line(cli: Cli) -> None:
    with ScriptServer([turn(["To ", "be"], error=fail(500, "out of memory", after=2))]) as model:
        result = cli("run", "hi", "--backend", model.url)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "out of memory" in line


def test_an_answer_that_is_cut_off_is_still_json_if_asked_for(cli: Cli) -> None:
    with ScriptServer([turn("To be or", finish="length")]) as model:
        result = cli("run", "hi", "--json", "--backend", model.url)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert json.loads(result.stdout)["status"] == "incomplete"


def test_a_model_server_that_cannot_be_reached_is_one_line(cli: Cli) -> None:
    result = cli("run", "hi", "--model", "any", "--backend", "http://127.0.0.1:1/v1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "antwort: The backend 'default' cannot be reached: connection refused.\n"


def test_the_key_of_a_backend_is_not_taken_for_that_of_a_server(refused: Refused) -> None:
    line = refused("run", "hi", "--backend", "http://127.0.0.1:1/v1", "--api-key", "sk-1")
    assert line.endswith("the key of a backend comes from ANTWORT_BACKENDS__DEFAULT__API_KEY")


def test_a_stored_response_can_be_gone_on_from(cli: Cli) -> None:
    with ScriptServer(["A cat.", "Felix.", "Felix, I said."]) as model:
        first = json.loads(answered(cli("run", "Name an animal.", "--store", "--json", "--backend", model.url)))
        assert first["store"] is True
        assert Path(".antwort", "antwort.db").exists()
        for _ in range(2):  # the second answer is not kept, so the third request is like the second
            answered(cli("run", "Its name?", "--previous", first["id"], "--backend", model.url))
            words = [said["content"] for said in model.requests[-1]["messages"]]
            assert words == ["Name an animal.", "A cat.", "Its name?"]


def test_a_response_that_is_not_there_cannot_be_gone_on_from(cli: Cli) -> None:
    result = cli("run", "Its name?", "--previous", "resp_0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "resp_0" in result.stderr
    assert list(Path().iterdir()) == []


def test_an_answer_can_be_printed_as_it_comes(process: Process) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"])]) as model:
        running = process("run", "hi", "--stream", "--backend", model.url)
        assert running.stdout is not None
        assert running.stdout.read(3) == "Hel"
        gate.open()
        assert running.communicate(timeout=60) == ("lo\n", "")
    assert running.returncode == 0


def test_events_are_printed_as_they_come(process: Process) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"])]) as model:
        running = process("run", "hi", "--events", "--backend", model.url)
        assert running.stdout is not None
        while json.loads(running.stdout.readline()).get("delta") != "Hel":
            pass
        gate.open()
        rest = [json.loads(line) for line in running.communicate(timeout=60)[0].splitlines()]
    assert rest[0]["delta"] == "lo"
    assert rest[-1]["type"] == "response.completed"


def test_an_interrupt_cancels_the_answer(process: Process) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"])]) as model:
        running = process("run", "hi", "--stream", "--backend", model.url)
        assert running.stdout is not None
        assert running.stdout.read(3) == "Hel"
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)
        gate.wait_abandoned()
    assert (running.returncode, stdout, stderr) == (130, "", "")


def test_a_reader_that_goes_away_ends_the_answer(process: Process) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo", Gate()])]) as model:
        running = process("run", "hi", "--stream", "--backend", model.url)
        assert running.stdout is not None
        assert running.stdout.read(3) == "Hel"
        running.stdout.close()
        gate.open()
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait(timeout=60) == 1


def test_background_responses_of_a_server_are_left_to_it(cli: Cli) -> None:
    gate = Gate()
    backend = ScriptedBackend([turn([gate, "At last."])])
    with running(Antwort(Config(), backend=backend)) as served, httpx.Client(base_url=served.url) as client:
        accepted = client.post("/v1/responses", json={"input": "hi", "background": True}).json()
        gate.wait_reached()
        assert "84" in answered(cli("run", "What is 12*7?", "--function", "calculate", "--store"))
        gate.open()
        events = client.get(f"/v1/responses/{accepted['id']}", params={"stream": True}).text
    assert "At last." in events
    assert "response.completed" in events


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_tells_what_is_kept(cli: Cli, option: str) -> None:
    said = " ".join(cli("run", option).stdout.split())
    assert "The answer is not kept unless --store says so; what functions keep is." in said


def test_a_file_that_fits_into_no_window_is_read_in_parts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("Nothing here.\n" * 10_000 + "The treasure is under the stairs.\n")
    steps: list[Turn | str] = [turn(calls=[call("store_get", key="big.txt", grep="treasure")]), "Under the stairs."]
    with ScriptServer(steps) as model:
        file = str(tmp_path / "big.txt")
        asked = cli("run", "--agent", "recursive", "--file", file, "Where is the treasure?", "--backend", model.url)
        assert answered(asked) == "Under the stairs.\n"
        assert "The treasure is under the stairs." in message(model)
        assert max(len(str(request)) for request in model.requests) < 10_000


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_the_sources_that_an_answer_cites_are_listed_once_below_it(
    cli: Cli, plugin: Plugin, options: tuple[str, ...]
) -> None:
    plugin(
        "library",
        """
        from antwort.provider import Context, Source

        @function
        async def look_up(ctx: Context) -> str:
            \"\"\"Look something up.\"\"\"
            first = ctx.sources.add(Source("Rivers", url="https://example.org/rivers"))
            second = ctx.sources.add(Source("lakes.md", file_id="file-lakes"))
            ctx.sources.add(Source("Not cited", url="https://example.org/seas"))
            return f"[{first}] Rivers flow. [{second}] Lakes do not."
        """,
    )
    said = "Rivers flow [1], lakes do not [2]. So both [1, 2] are told."
    with ScriptServer([turn(calls=[call("look_up")]), said]) as model:
        result = cli("run", "Do they flow?", "--plugins-dir", "plugins", "--backend", model.url, *options)
    assert answered(result) == (
        f"{said}\n\nSources:\n  [1] Rivers, https://example.org/rivers\n  [2] lakes.md (file-lakes)\n"
    )


@pytest.mark.parametrize(
    ("options", "tools", "choice"),
    [
        (["--tool-choice", "calculate"], ["calculate"], "required"),
        (["--function", "calculate", "--tool-choice", "calculate"], ["calculate"], "required"),
        (["--function", "calculate", "--tool-choice", "required"], ["calculate"], "required"),
        (["--function", "calculate", "--tool-choice", "none"], ["calculate"], "none"),
    ],
)
def test_a_call_can_be_required_or_forbidden(cli: Cli, options: list[str], tools: list[str], choice: str) -> None:
    """A function that is chosen is offered, too."""
    called = [turn(calls=[call("calculate", expression="6*7")]), turn("It is 42.")]
    with ScriptServer([turn("No.")] if choice == "none" else called) as model:
        result = cli("run", "What is 6*7?", "--backend", model.url, *options)
    assert result.exit_code == 0, result.output
    first, *later = model.requests
    named = [tool["function"]["name"] for tool in first["tools"]]
    assert (named[: len(tools)] if choice != "none" else tools, first["tool_choice"]) == (tools, choice)
    assert [sent["tool_choice"] for sent in later] == ["auto"] * len(later)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["tea.md", "cat.txt", "tea.md"], "Two minutes.\n\nFound, and not cited: tea.md, cat.txt\n"),
        ([], "Two minutes.\n"),
    ],
)
def test_files_that_a_search_has_found_are_named_if_the_answer_cites_none(
    capsys: pytest.CaptureFixture[str], names: list[str], told: str
) -> None:
    part = {"type": "output_text", "text": "Two minutes.", "annotations": []}
    found = {"type": "file_search_call", "results": [{"filename": name} for name in names]}
    printer = AnswerText(stream=False)
    printer.take({"type": "response.output_text.delta", "delta": "Two minutes."})
    output = [found, {"type": "message", "content": [part]}]
    printer.take({"type": "response.completed", "response": {"output": output}})
    printer.end()
    assert capsys.readouterr().out == told
