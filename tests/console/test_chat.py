"""The chat of the console: everything that can be said, seen and done there."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, expect
from tests.console.desk import KEY, KEYS, Desk, console, free_port, process

from antwort import Context
from antwort.provider import Source
from antwort.testing import Gate, ScriptServer, Turn, call, turn

Open = Callable[..., Desk]


async def find_page(ctx: Context, topic: str) -> str:
    """Find a page about a topic."""
    return f"[{ctx.sources.add(Source('On tea', url='https://example.org/tea'))}] {topic} is a drink."


async def split(a: int) -> int:
    """Split a number."""
    raise ValueError(f"{a} cannot be split")


async def speak(size: int) -> str:
    """Say much."""
    return "x" * size


def say(tab: Desk, text: str) -> None:
    tab.page.get_by_label("Message").fill(text)
    tab.press("Send")


def over(tab: Desk, turns: int = 1) -> None:
    """Wait until all turns are over."""
    expect(tab.button("Retry")).to_have_count(turns)
    expect(tab.button("Send")).to_be_visible()


def sent(tab: Desk) -> list[Any]:
    """Record the bodies of the requests for responses from now on."""
    bodies: list[Any] = []
    tab.page.on(
        "request",
        lambda one: bodies.append(one.post_data_json) if one.method == "POST" and "/v1/responses" in one.url else None,
    )
    return bodies


def unfold(tab: Desk, name: str) -> Locator:
    """Open the call of a function."""
    shown = tab.page.locator("details.call").filter(has_text=name)
    shown.locator("summary").click()
    return shown


def test_an_answer_is_seen_while_it_comes_and_is_there_after_a_reload(tmp_path: Path, desk: Open) -> None:
    gate = Gate()
    with console(tmp_path, turn(["Tea is ", gate, "a **drink**."], reasoning="Let me think.")) as (server, _):
        tab = desk(server.url)
        say(tab, "What is tea?")
        tab.sees("Tea is")
        expect(tab.button("Stop")).to_be_visible()
        expect(tab.page.locator(".message strong")).to_have_count(0)
        gate.open()
        over(tab)
        expect(tab.page.locator(".message strong")).to_have_text("drink")
        tab.page.get_by_text("Thoughts").click()
        tab.sees("Let me think.")
        assert "#/chat/resp_" in tab.page.url
        tab.page.reload()
        tab.sees("What is tea?")
        expect(tab.page.locator(".message strong")).to_have_text("drink")


def test_calls_unfold_with_what_went_in_and_what_came_out(tmp_path: Path, desk: Open) -> None:
    gate = Gate()
    steps = [
        turn(calls=[call("find_page", topic="tea"), call("split", a=7), call("speak", size=50_000)]),
        turn(["A drink [1].", gate]),
    ]
    functions: list[Callable[..., Any]] = [find_page, split, speak]
    with console(tmp_path, *steps, offered=functions) as (server, _):
        tab = desk(server.url)
        say(tab, "What is tea?")
        found = unfold(tab, "find_page")
        expect(found).to_contain_text('"topic": "tea"')
        expect(found).to_contain_text("[1] tea is a drink.")
        failed = unfold(tab, "split")
        expect(failed).to_contain_text("failed")
        gate.open()
        over(tab)
        expect(found).to_contain_text("[1] tea is a drink.")
        source = tab.page.locator(".sources").get_by_role("link", name="On tea")
        expect(source).to_have_attribute("href", "https://example.org/tea")
        expect(source).to_have_attribute("rel", "noopener noreferrer nofollow")
        expect(tab.page.locator("sup a")).to_have_attribute("href", "https://example.org/tea")


def test_a_result_of_a_megabyte_is_cut_and_can_be_seen_in_full(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [turn(calls=[call("speak", size=1_000_000)]), "Done."]
    config = {"functions": {"spill": None, "max_output": 2_000_000}}
    with console(tmp_path, *steps, offered=[speak], **config) as (server, _):
        tab = desk(server.url)
        say(tab, "Speak!")
        over(tab)
        shown = unfold(tab, "speak")
        tab.press("Show all 1,000,000 characters")
        expect(shown.locator("pre").last).to_have_text("x" * 1_000_000)
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_request_says_what_was_chosen(tmp_path: Path, desk: Open) -> None:
    agents = {"clerk": {"description": "Keeps books."}}
    with console(tmp_path, '{"sum": 4}', agents=agents) as (server, _):
        tab = desk(server.url)
        bodies = sent(tab)
        tab.press("Options")
        tab.page.get_by_label("Model", exact=True).select_option("scripted")
        tab.page.get_by_label("Agent", exact=True).select_option("clerk")
        tab.page.get_by_label("calculate").check()
        tab.page.get_by_label("Instructions").fill("Be brief.")
        tab.page.get_by_label("JSON schema").fill("{")
        say(tab, "2+2?")
        tab.sees("The JSON schema cannot be read")
        schema = {
            "type": "object",
            "properties": {"sum": {"type": "number"}},
            "required": ["sum"],
            "additionalProperties": False,
        }
        tab.page.get_by_label("JSON schema").fill(json.dumps(schema))
        tab.press("Send")
        over(tab)
        tab.sees('{"sum": 4}')
    assert bodies == [
        {
            "model": "scripted",
            "agent": "clerk",
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "calculate"}],
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}},
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "2+2?"}]}],
            "include": ["file_search_call.results"],
            "stream": True,
        }
    ]


def test_files_and_pictures_are_uploaded_and_sent(tmp_path: Path, desk: Open) -> None:
    picture = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489") + bytes(20)
    with console(tmp_path, "Read.") as (server, model):
        tab = desk(server.url)
        bodies = sent(tab)
        tab.page.get_by_label("Files to attach").set_input_files(
            [
                FilePayload(name="tea.txt", mimeType="text/plain", buffer=b"Tea is a drink."),
                FilePayload(name="dot.png", mimeType="image/png", buffer=picture),
            ]
        )
        tab.sees("tea.txt")
        tab.press("Leave out dot.png")
        expect(tab.page.locator(".attached .muted").first).to_have_text("")
        say(tab, "Read it.")
        over(tab)
        assert [part["type"] for part in bodies[0]["input"][0]["content"]] == ["input_text", "input_file"]
        assert b64encode(b"Tea is a drink.").decode() in str(model.script.requests[0].items)
        drop = "name => { const data = new DataTransfer(); data.items.add(new File(['x'], name, {type: 'image/png'}));"
        drop += " document.querySelector('.composer').dispatchEvent(new DragEvent('drop', {dataTransfer: data})) }"
        tab.page.evaluate(drop, "<img src=x>.png")
        tab.sees("<img src=x>.png")


def test_an_answer_is_stopped_tried_again_and_both_are_kept(tmp_path: Path, desk: Open) -> None:
    gate = Gate()
    with console(tmp_path, turn(["Well, ", gate]), "Yes.", "And no.") as (server, _):
        tab = desk(server.url)
        say(tab, "Is it?")
        tab.sees("Well,")
        tab.press("Stop")
        tab.sees("Stopped.")
        gate.open()
        tab.press("Retry")
        tab.sees("Yes.")
        tab.sees("2/2")
        tab.press("Earlier version")
        tab.sees("Well,")
        tab.press("Later version")
        tab.sees("Yes.")
        say(tab, "And not?")
        tab.sees("And no.")


def test_a_chat_goes_on_from_an_earlier_turn(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "One.", "Two.", "Three.") as (server, model):
        tab = desk(server.url)
        for number, text in enumerate(("A", "B"), 1):
            say(tab, text)
            over(tab, number)
        tab.button("Branch").first.click()
        expect(tab.page.locator("main")).not_to_contain_text("Two.")
        tab.press("Back to the latest")
        tab.sees("Two.")
        tab.button("Branch").first.click()
        say(tab, "C")
        tab.sees("Three.")
        tab.sees("2/2")
        told = [item.get("content") for item in model.script.requests[2].items]
        assert "B" not in str(told)
        assert "One." in str(told)
        tab.press("Earlier version")
        tab.sees("Two.")
        tab.press("New chat")
        tab.sees("What would you like to know?")


def test_the_request_is_shown_for_programs_without_the_key(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "It's fine.", auth=KEYS) as (server, _):
        tab = desk(server.url, key=KEY)
        say(tab, "How's it?")
        over(tab)
        tab.press("Code")
        dialog = tab.page.get_by_role("dialog")
        for language, word in (
            ("curl", "authorization: Bearer $ANTWORT_API_KEY"),
            ("Python", "OpenAI("),
            ("JavaScript", "new OpenAI("),
        ):
            tab.press(language)
            expect(dialog).to_contain_text(word)
            expect(dialog).not_to_contain_text(KEY)
        program = dialog.locator("pre").inner_text()
        assert f"{server.url}/v1" in program
        tab.press("curl")
        command = dialog.locator("pre").inner_text().replace("/v1/responses", "/v1/responses/input_tokens")
        told = subprocess.run(
            ["bash", "-c", f"{command} -s"], env={**os.environ, "ANTWORT_API_KEY": KEY}, capture_output=True, check=True
        )
        assert json.loads(told.stdout)["object"] == "response.input_tokens"
        tab.press("Close")


def test_what_cannot_be_done_is_told(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "Hi.") as (server, _):
        tab = desk(server.url)
        tab.page.evaluate("sessionStorage.setItem('antwort.request', JSON.stringify({agent: 'nobody'}))")
        tab.page.reload()
        say(tab, "Hello")
        tab.sees("nobody")
        expect(tab.page.get_by_role("alert")).to_be_visible()
        other = desk(server.url, "#/chat/resp_0123")
        other.sees("There is no such chat, or it is not yours.")
        tab.page.evaluate("sessionStorage.clear()")
        tab.page.reload()
        say(tab, "Hello")
        tab.sees("Hi.")


def test_a_chat_of_another_tenant_is_not_shown(tmp_path: Path, desk: Open) -> None:
    keys = {"api_keys": [*KEYS["api_keys"], {"id": "other", "key": "sk-of-another", "tenant": "other"}]}
    with console(tmp_path, "A secret.", auth=keys) as (server, _):
        tab = desk(server.url, key=KEY)
        say(tab, "Tell me!")
        over(tab)
        other = desk(server.url, tab.page.url.removeprefix(f"{server.url}/"), key="sk-of-another")
        other.sees("There is no such chat, or it is not yours.")


def test_an_approval_is_refused_in_the_foreground(tmp_path: Path, desk: Open) -> None:
    providers = {"basics": {"enabled": True, "approval": {"calculate": "always"}, "offer": "always"}}
    steps: list[Turn | str] = [turn(calls=[call("calculate", expression="6*7")]), "Then not."]
    with console(tmp_path, *steps, providers=providers) as (server, _):
        tab = desk(server.url)
        say(tab, "What is 6*7?")
        tab.press("Refuse")
        tab.sees("Then not.")
        tab.sees("Refused.")


def test_a_question_in_the_background_is_answered_in_place(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("ask_user", question="Which colour?", choices=["blue", "red"])]),
        "Blue it is.",
    ]
    with console(tmp_path, *steps) as (server, _):
        tab = desk(server.url)
        tab.press("Options")
        tab.page.get_by_label("ask_user").check()
        tab.page.get_by_label("In the background").check()
        say(tab, "Paint it!")
        tab.sees("Which colour?")
        tab.press("blue")
        tab.sees("Blue it is.")
        over(tab)
        expect(tab.page.get_by_role("link", name="Run", exact=True)).to_be_visible()


# --- a server that goes away in the middle of a stream, and comes back ------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_a_stream_goes_on_after_the_server_was_killed(tmp_path: Path, desk: Open, background: bool) -> None:
    gate = Gate()
    port = free_port()
    steps = [turn(["Tea ", gate]), turn("Tea is a drink.")] if background else [turn(["Tea ", gate])]
    with ScriptServer(steps, models=["scripted"]) as model:
        with process(port, tmp_path, model, kill=True) as url:
            tab = desk(url)
            if background:
                tab.press("Options")
                tab.page.get_by_label("In the background").check()
            say(tab, "What is tea?")
            expect(tab.page.locator(".message")).to_contain_text("Tea")
            gate.wait_reached()
        tab.sees("The connection is lost; trying again")
        gate.open()
        with process(port, tmp_path, model, kill=False):
            over(tab)
            if background:
                tab.sees("Tea is a drink.")
                assert tab.page.locator(".message").count() == 1
            else:
                expect(tab.page.get_by_role("alert")).to_be_visible()  # nobody went on with it, and it says so
