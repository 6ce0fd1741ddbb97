"""Conversations in a terminal."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.terminals import Terminal, hangups
from tests.support.crossed import crossed

from antwort.app import Antwort
from antwort.config import Config
from antwort.testing import Gate, ScriptServer, Turn, call, fail, running, turn


@pytest.fixture
def terminals() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def chat(terminals: ExitStack, *arguments: str) -> Terminal:
    """Start a chat that ends with the test."""
    terminal = Terminal("run", *arguments)
    terminals.callback(terminal.close)
    return terminal


def words(model: ScriptServer) -> list[str]:
    return [message["content"] for message in model.requests[-1]["messages"]]


def test_two_turns_with_the_demo_model(terminals: ExitStack) -> None:
    terminal = chat(terminals, "--function", "calculate")
    assert "the built-in demo model" in terminal.until("> ")
    terminal.type("What is 12*7?\n")
    assert "The result for 12*7 is 84." in terminal.until("\n> ")
    terminal.type("What is 2+3?\n")
    assert "The result for 2+3 is 5." in terminal.until("\n> ")
    terminal.type("\x04")
    terminal.rest()
    assert terminal.process.returncode == 0
    assert list(Path().iterdir()) == []


def test_the_model_hears_what_was_said_before_until_a_new_conversation_begins(terminals: ExitStack) -> None:
    with ScriptServer(["A cat.", "Felix.", "A dog."]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("Name an animal.\n")
        terminal.until("A cat.\n> ")
        terminal.type("Its name?\n")
        terminal.until("Felix.\n> ")
        assert words(model) == ["Name an animal.", "A cat.", "Its name?"]
        terminal.type("/new\n")
        terminal.until("A new conversation.\n> ")
        terminal.type("Another animal.\n")
        terminal.until("A dog.\n> ")
        assert words(model) == ["Another animal."]
        terminal.type("/quit\n")
        terminal.rest()
    assert terminal.process.returncode == 0


@pytest.mark.parametrize(("number", "answering"), crossed([signal.SIGTERM, signal.SIGHUP], [True, False]))
def test_nothing_of_a_chat_stays_when_its_terminal_is_closed(
    terminals: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, answering: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    gate = Gate()
    with hangups(ignored=False), ScriptServer(["A cat.", *[turn(["Fel", gate, "ix."])][:answering]]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("Name an animal.\n")
        terminal.until("A cat.\n> ")
        assert list(tmp_path.glob("antwort-*/antwort.db"))
        if answering:
            terminal.type("Its name?\n")
            terminal.until("Fel")
        terminal.signal(number)
        assert "Traceback" not in terminal.rest()
        if answering:
            gate.wait_abandoned()
    assert (terminal.process.returncode, list(tmp_path.iterdir())) == (128 + number, [])


def test_an_interrupt_stops_the_answer_and_the_conversation_goes_on(terminals: ExitStack) -> None:
    gate = Gate()
    with ScriptServer(["A cat.", turn(["Fel", gate, "ix."]), "Felix."]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("Name an animal.\n")
        terminal.until("A cat.\n> ")
        terminal.type("Its name?\n")
        terminal.until("Fel")
        terminal.process.send_signal(signal.SIGINT)
        assert "ix." not in terminal.until("(stopped)\n> ")
        gate.wait_abandoned()
        terminal.type("Its name, please?\n")
        terminal.until("Felix.\n> ")
        assert words(model) == ["Name an animal.", "A cat.", "Its name, please?"]


def test_an_interrupt_at_the_prompt_drops_the_line(terminals: ExitStack) -> None:
    terminal = chat(terminals)
    terminal.until("> ")
    terminal.type("/quit")
    terminal.until("/quit")
    terminal.process.send_signal(signal.SIGINT)
    terminal.type("\n/help\n")
    terminal.until("show this list")
    terminal.type("/quit\n")
    terminal.rest()
    assert terminal.process.returncode == 0


def test_an_answer_that_fails_is_no_end(terminals: ExitStack) -> None:
    gate = Gate()
    with ScriptServer([turn(["Oh", gate, " no"], error=fail(500, "out of memory", after=2)), "Again."]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("hi\n")
        terminal.until("Oh")
        gate.open()
        assert terminal.until("out of memory").startswith(" no\nantwort: ")
        terminal.until("\n> ")
        terminal.type("hi again\n")
        terminal.until("Again.\n> ")
        assert words(model) == ["hi again"]


def test_an_answer_cannot_play_with_the_terminal(terminals: ExitStack) -> None:
    with ScriptServer(["a\x1b[2Jb\nc\x9b3md"]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("hi\n")
        assert "a\\x1b[2Jb\nc\\x9b3md" in terminal.until("\n> ")


def test_commands_are_listed_and_unknown_ones_refused(terminals: ExitStack) -> None:
    terminal = chat(terminals)
    terminal.until("> ")
    terminal.type("/help\n")
    listed = terminal.until("\n> ")
    assert all(name in listed for name in ("/new", "/help", "/quit"))
    terminal.type("/qit\n")
    assert "There is no command '/qit'; did you mean '/quit'?" in terminal.until("\n> ")


def test_a_file_goes_with_the_first_message_only(terminals: ExitStack) -> None:
    Path("notes.txt").write_text("Tea is 3 €.", encoding="utf-8")
    with ScriptServer(["3 €.", "Yes."]) as model:
        terminal = chat(terminals, "--file", "notes.txt", "--backend", model.url)
        terminal.until("> ")
        terminal.type("What is tea?\n")
        terminal.until("3 €.\n> ")
        terminal.type("Really?\n")
        terminal.until("Yes.\n> ")
        first, _, second = words(model)
    assert "Tea is 3 €." in str(first)
    assert second == "Really?"


def test_a_server_keeps_the_conversation_too(terminals: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        ScriptServer(["A cat.", "Felix."]) as model,
        running(Antwort(Config(data_dir=tmp_path_factory.mktemp("data")), backend=model.url)) as served,
    ):
        terminal = chat(terminals, "--url", served.url)
        assert served.url in terminal.until("> ")
        terminal.type("Name an animal.\n")
        terminal.until("A cat.\n> ")
        terminal.type("Its name?\n")
        terminal.until("Felix.\n> ")
        assert words(model) == ["Name an animal.", "A cat.", "Its name?"]


def test_a_server_that_keeps_nothing_cannot_chat(terminals: ExitStack) -> None:
    terminal = chat(terminals, "--url", "http://127.0.0.1:1", "--no-store")
    assert terminal.rest().startswith("antwort: --no-store: ")
    assert terminal.process.returncode == 2


def test_what_is_pasted_is_one_question_whether_the_terminal_marks_it_or_not(terminals: ExitStack) -> None:
    with ScriptServer(["One.", "Two."]) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("These lines\n/are one\nquestion.\n")
        terminal.until("One.\n> ")
        assert words(model) == ["These lines\n/are one\nquestion."]
        terminal.type("\x04")
        assert "Traceback" not in terminal.rest()
        other = Terminal("run", "--backend", model.url, kind="xterm")
        terminals.callback(other.close)
        other.until("> ")
        other.type("\x1b[200~These lines\r/are one\rquestion.\x1b[201~\r")
        other.until("Two.")
        assert words(model) == ["These lines\n/are one\nquestion."]


SHOP = """
@function
def price(item: str) -> str:
    '''Tell a price.'''
    raise ValueError('not for sale')
"""


def test_people_are_told_what_an_answer_is_called_that_is_kept(terminals: ExitStack, tmp_path: Path) -> None:
    with running(Antwort(Config(data_dir=tmp_path / "data"))) as served:
        said = chat(terminals, "What is 12*7?", "--url", served.url, "--function", "calculate").rest().splitlines()
        assert said[-1].startswith("antwort: resp_")
        told = chat(terminals, "What is 12*7?", "--url", served.url, "--no-store").rest()
        assert "resp_" not in told


def test_what_was_done_is_told_and_kept(terminals: ExitStack, plugin: Callable[[str, str], None]) -> None:
    plugin("shop", SHOP)
    script: list[Turn | str] = [turn(calls=[call("price", item="gold")]), "No idea.", "A guess: 3.", "Felix."]
    with ScriptServer(script, models=["small", "large"]) as model:
        terminal = chat(terminals, "--backend", model.url, "--plugins-dir", "plugins")
        terminal.until("> ")
        for command in ("/trace", "/save", "/retry"):
            terminal.type(f"{command}\n")
            assert "antwort: nothing was a" in terminal.until("yet\n> ")
        terminal.type("/functions\n")
        assert "price" in terminal.until("Tell a price.")
        terminal.until("\n> ")
        terminal.type("/model\n")
        assert "  small\n  large\n" in terminal.until("None is chosen: the server's default answers.\n> ")
        terminal.type("/model large\n")
        terminal.until("large answers from now on.\n> ")
        terminal.type("What is gold?\n")
        told = terminal.until("(/trace tells what did not work)\n> ")
        assert "✗ price: " in told
        assert model.requests[-1]["model"] == "large"
        terminal.type("/trace\n")
        told = terminal.until("\n> ")
        assert "✓ root (large)" in told
        assert '✗ price({"item": "gold"})' in told
        assert "What did not work:" in told
        terminal.type("/trace --json\n")
        story = json.loads(terminal.until("\n}\n").partition("\n")[2])
        assert [failure["name"] for failure in story["failures"]] == ["price"]
        terminal.until("> ")
        terminal.type("/retry\n")
        terminal.until("A guess: 3.\n> ")
        assert words(model) == ["What is gold?"]
        terminal.type("Its name?\n")
        terminal.until("Felix.\n> ")
        assert words(model) == ["What is gold?", "A guess: 3.", "Its name?"]
        for _again in range(2):
            terminal.type("/save said.md\n")
            terminal.until("\n> ")
        terminal.type("/save said.json\n")
        terminal.until("Saved in said.json.\n> ")
    saved = Path("said.md").read_text()
    assert (
        saved
        == "## Question\n\nWhat is gold?\n\n## large\n\nA guess: 3.\n\n## Question\n\nIts name?\n\n## large\n\nFelix.\n"
    )
    assert [one["response"]["status"] for one in json.loads(Path("said.json").read_text())] == ["completed"] * 2


def test_a_retry_that_fails_leaves_the_answer_before_it(terminals: ExitStack) -> None:
    script: list[Turn | str] = ["A cat.", turn(error=fail(400, "not now")), "Felix."]
    with ScriptServer(script) as model:
        terminal = chat(terminals, "--backend", model.url)
        terminal.until("> ")
        terminal.type("Name an animal.\n")
        terminal.until("A cat.\n> ")
        terminal.type("/retry\n")
        terminal.until("not now")
        terminal.until("\n> ")
        terminal.type("/trace\n")
        assert "it failed before anything was done" in terminal.until("\n> ")
        terminal.type("Its name?\n")
        terminal.until("Felix.\n> ")
        assert words(model) == ["Name an animal.", "A cat.", "Its name?"]


def test_the_commands_of_a_chat_ask_a_server_that_is_named(terminals: ExitStack, tmp_path: Path) -> None:
    with ScriptServer(["A cat."], models=["small"]) as model:
        config = Config(data_dir=tmp_path / "data")
        with running(Antwort(config, backend=model.url)) as served:
            terminal = chat(terminals, "--url", served.url, "--function", "calculate")
            terminal.until("> ")
            terminal.type("/model none\n")
            assert "antwort: The model 'none' does not exist." in terminal.until("\n> ")
            terminal.type("/functions\n")
            assert "calculate (asked for)" in terminal.until("\n> ")
            terminal.type("Name an animal.\n")
            terminal.until("A cat.\n> ")
            terminal.type("/trace\n")
            assert "✓ root" in terminal.until("\n> ")
            for wrong, why in {
                "/trace resp_none": "Response with id 'resp_none' not found.",
                "/trace a b": "/trace takes the id of one response",
                "/help me": "/help stands alone",
                "/save /nowhere/chat.md": "cannot be written: No such file",
            }.items():
                terminal.type(f"{wrong}\n")
                assert why in terminal.until("\n> ")
