"""The frame of the console: who is asking, where one can go, and the view of the server."""

import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tests.console.desk import KEY, KEYS, Desk, console
from tests.console.hostile import HOSTILE
from tests.console.test_hostile import check

from antwort import Antwort
from antwort.config import load_config
from antwort.testing import ScriptedBackend, running

Open = Callable[..., Desk]


def test_whoever_opens_the_address_sees_how_the_server_is(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path) as (server, _):
        tab = desk(server.url, "#/server")
        expect(tab.page.get_by_role("heading", name="Server", exact=True)).to_be_visible()
        tab.sees("ready")
        tab.sees("scripted")
        expect(tab.page.get_by_role("img", name="Requests a second")).to_be_visible()
        expect(tab.page).to_have_title("Server · antwort")
        expect(tab.page.get_by_role("link", name="Server")).to_have_attribute("aria-current", "page")
        assert {address.split("/")[2] for address in tab.asked} == {server.url.split("/")[2]}


def test_the_key_is_asked_for_and_stays_in_the_tab(
    tmp_path: Path, desk: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with console(tmp_path, auth=KEYS) as (server, _):
        tab = desk(server.url, "#/server")
        dialog = tab.page.get_by_role("dialog", name="API key")
        expect(dialog).to_contain_text("This server wants to know who is asking.")
        tab.page.get_by_label("Key", exact=True).fill("sk-wrong")
        tab.press("Go on")
        expect(dialog).to_contain_text("API key")
        expect(dialog).not_to_contain_text("wants to know")
        tab.page.get_by_label("Key", exact=True).fill(KEY)
        tab.press("Go on")
        tab.sees("scripted")
        expect(dialog).to_have_count(0)
        assert tab.page.evaluate("[localStorage.length, document.cookie, location.href, history.length]")[:3] == [
            0,
            "",
            f"{server.url}/#/server",
        ]
        assert not [address for address in tab.asked if "sk-" in address]
        assert KEY not in caplog.text
        tab.page.reload()
        tab.sees("scripted")
        other = desk(server.url, "#/server")
        expect(other.page.get_by_role("dialog", name="API key")).to_be_visible()
        tab.press("Forget the key")
        expect(dialog).to_be_visible()


def test_who_may_not_read_the_metrics_is_told_so(tmp_path: Path, desk: Open) -> None:
    keys = {"api_keys": [{**KEYS["api_keys"][0], "scopes": ["responses:write"]}]}
    with console(tmp_path, auth=keys, server={"protect_metrics": True}) as (server, _):
        tab = desk(server.url, "#/server", key=KEY)
        tab.sees("Your key may not read the metrics")
        tab.sees("scripted")


def test_what_a_key_may_not_see_is_asked_for_once(tmp_path: Path, desk: Open) -> None:
    keys = {"api_keys": [{**KEYS["api_keys"][0], "scopes": ["responses:write"]}]}
    with console(tmp_path, auth=keys) as (server, _):
        tab = desk(server.url, "#/server", key=KEY)
        while tab.page.evaluate("document.querySelector('console-app').blind") is None:  # until it was told
            tab.page.wait_for_timeout(10)
        for _again in range(3):
            tab.page.evaluate("document.querySelector('console-app').count()")
        assert len([address for address in tab.asked if "/v1/questions" in address]) == 1


def test_a_server_that_is_away_is_shown_as_such(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path) as (server, _):
        tab = desk(server.url, "#/server")
        tab.sees("ready")
    tab.sees("The server does not answer.")
    tab.sees("The server is away", within="header")


def test_it_is_used_with_the_keyboard_alone(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "Hello.") as (server, _):
        tab = desk(server.url, "#/nowhere")
        expect(tab.page.get_by_label("Message")).to_be_focused()
        tab.page.keyboard.type("Hi")
        tab.page.keyboard.press("Enter")
        tab.sees("Hello.")
        tab = desk(server.url, "#/server")
        tab.sees("ready")
        tab.page.keyboard.press("Tab")
        expect(tab.page.get_by_role("link", name="Skip to the content")).to_be_focused()
        tab.page.keyboard.press("Enter")
        expect(tab.page.get_by_role("main")).to_be_focused()


def test_it_fits_a_phone_and_follows_the_system_to_the_dark(tmp_path: Path, desk: Open) -> None:
    colours = set()
    with console(tmp_path) as (server, _):
        for scheme in ("light", "dark"):
            tab = desk(
                server.url, "#/server", color_scheme=scheme, viewport={"width": 390, "height": 780}, has_touch=True
            )
            tab.sees("ready")
            colours.add(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
    assert len(colours) == 2


def test_keys_are_made_told_once_and_revoked(tmp_path: Path, desk: Open) -> None:
    keys = [*KEYS["api_keys"], {"id": "other", "key": "sk-of-another", "tenant": "other"}]
    with console(tmp_path, auth={"api_keys": keys}) as (server, _):
        tab = desk(server.url, "#/server", key=KEY)
        section = tab.page.locator("section").filter(has=tab.page.get_by_role("heading", name="API keys"))
        expect(section.locator("tbody tr")).to_have_count(1)
        tab.page.get_by_text("Make a key").click()
        tab.page.get_by_label("Who uses it").fill("nightly")
        tab.page.get_by_label("What it may do").fill("runs:read, nonsense:*")
        tab.page.get_by_label("A note").fill("<b>The night</b>")
        tab.page.get_by_label("How long it lasts").select_option("30 days")
        tab.press("Make the key")
        made = tab.page.get_by_label("The new key").inner_text()
        row = section.locator("tbody tr").filter(has_text="nightly")
        expect(row).to_contain_text("<b>The night</b>")
        expect(row).to_contain_text("nonsense:*, runs:read")
        expect(row).to_contain_text("in 30 days")
        tab.press("I have it")
        expect(tab.page.get_by_label("The new key")).to_have_count(0)
        assert made not in tab.page.content()
        assert not [address for address in tab.asked if made in address]
        while httpx.get(f"{server.url}/v1/models", headers={"authorization": f"Bearer {made}"}).status_code == 401:
            tab.page.wait_for_timeout(20)  # the server has not read its file again
        other = desk(server.url, "#/server", key=made)
        other.sees("keys with the scope admin")
        row.get_by_role("button", name="Revoke").click()
        tab.press("Keep")
        row.get_by_role("button", name="Revoke").click()
        tab.press("Revoke it for good")
        expect(section.locator("tbody tr")).to_have_count(1)
        tab.page.get_by_label("What it may do").fill("runs:reed")
        tab.press("Make the key")
        expect(section.get_by_role("alert")).to_contain_text("runs:reed")


def test_the_settings_are_shown_with_where_they_were_given(tmp_path: Path, desk: Open) -> None:
    file = tmp_path / "antwort.yaml"
    file.write_text(
        f"data_dir: {tmp_path}\nbackends:\n  main: {{url: 'http://127.0.0.1:1/v1', api_key: sk-hidden-key}}\n"
    )
    with ScriptedBackend([]) as model, running(Antwort(load_config(file, environ={}), backend=model)) as server:
        tab = desk(server.url, "#/server")
        section = tab.page.locator("section").filter(has=tab.page.get_by_role("heading", name="Settings"))
        row = section.locator("tbody tr").filter(has_text="backends.main.api_key")
        expect(row).to_contain_text("********")
        expect(row).to_contain_text("antwort.yaml:3")
        assert "sk-hidden-key" not in tab.page.content()
        expect(section.locator("tbody tr").filter(has_text="server.port")).to_have_count(0)
        tab.page.get_by_label("Defaults, too").check()
        tab.page.get_by_label("Find a setting").fill("server.port")
        expect(section.locator("tbody tr")).to_have_count(1)
        expect(section.locator("tbody tr")).to_contain_text("default")
        tab.page.get_by_text("Make a key").click()
        tab.press("Make the key")
        tab.sees("This server asks nobody for keys.")


def test_what_keys_and_settings_say_is_text(tmp_path: Path, desk: Open) -> None:
    texts = [text for text in HOSTILE if text.strip() and len(text) <= 200]
    agents = {f"agent{number}": {"description": text} for number, text in enumerate(texts)}
    with console(tmp_path, auth=KEYS, agents=agents) as (server, _):
        for text in texts:
            body = {"label": text, "subject": text}
            headers = {"authorization": f"Bearer {KEY}"}
            httpx.post(f"{server.url}/v1/keys", json=body, headers=headers, timeout=60).raise_for_status()
        tab = desk(server.url, "#/server", key=KEY)
        expect(tab.page.locator(".keys tbody tr")).to_have_count(len(texts) + 1)
        tab.page.get_by_label("Defaults, too").check()
        tab.page.get_by_label("Find a setting").fill("description")
        expect(tab.page.locator(".settings tbody tr")).to_have_count(len(texts))
        text = check(tab)
        assert text.count("<script>window.pwned=1</script>") >= 3
