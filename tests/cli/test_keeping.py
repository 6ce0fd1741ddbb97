"""What providers keep when their functions are called by a command, with and without a database that is there."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.config import Config
from antwort.testing import ScriptServer, call, running, turn

Cli = Callable[..., Result]
Plugin = Callable[[str, str], None]

CALL = ("functions", "call", "--plugins-dir", "plugins")


@pytest.fixture
def notes(plugin: Plugin) -> None:
    plugin(
        "notes",
        "class Notes(Provider):\n"
        "    @function\n"
        "    async def note(self, ctx: Context, text: str) -> int:\n"
        "        'Keep a text, as a record and as a file.'\n"
        "        await self.services.records.create(ctx.tenant, 'note', text, {})\n"
        "        (self.services.folder / text).touch()\n"
        "        return await self.services.records.count(ctx.tenant, 'note')\n"
        "    @function\n"
        "    async def noted(self, ctx: Context) -> list[str]:\n"
        "        'List the texts.'\n"
        "        page = await self.services.records.list(ctx.tenant, 'note', order='asc')\n"
        "        if await self.services.records.get(ctx.tenant, 'note', 'nothing') is None:\n"
        "            await self.services.records.delete(ctx.tenant, 'note', 'nothing')\n"
        "        return [kept.id for kept in page.data]\n",
    )


def kept(cli: Cli, *arguments: str) -> str:
    result = cli(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.strip()


def note(cli: Cli, text: str) -> str:
    return kept(cli, *CALL, "note", json.dumps({"text": text}))


@pytest.mark.usefixtures("notes")
def test_what_a_call_keeps_before_the_first_start_is_there_for_calls_answers_and_servers(cli: Cli) -> None:
    assert [note(cli, text) for text in "ab"] == ["1", "2"]
    with ScriptServer([turn(calls=[call("note", text="c")]), turn("Noted.")]) as model:
        asking = ("run", "Note c.", "--plugins-dir", "plugins", "--function", "note", "--quiet", "--backend", model.url)
        assert kept(cli, *asking) == "Noted."
        assert model.requests[-1]["messages"][-1]["content"] == "3"
    with (
        ScriptServer([turn(calls=[call("noted")]), turn("Done.")]) as model,
        running(Antwort(Config(plugins_dir=Path("plugins")), backend=model.url)) as served,
    ):
        request = {"input": "What is noted?", "tools": [{"type": "function", "name": "noted"}]}
        answer = httpx.post(f"{served.url}/v1/responses", json=request, timeout=60).json()
        assert answer["output"][-1]["content"][0]["text"] == "Done."
        assert json.loads(model.requests[-1]["messages"][-1]["content"]) == ["a", "b", "c"]
    assert sorted(path.name for path in Path(".antwort", "providers", "notes").iterdir()) == ["a", "b", "c"]


@pytest.mark.usefixtures("notes")
def test_what_an_answer_keeps_before_the_first_start_is_kept_though_the_answer_is_not(cli: Cli) -> None:
    with ScriptServer([turn(calls=[call("note", text="a")]), turn("Noted.")]) as model:
        asking = ("run", "Note a.", "--plugins-dir", "plugins", "--function", "note", "--json", "--backend", model.url)
        made = json.loads(kept(cli, *asking))
    assert note(cli, "b") == "2"
    gone = cli("run", "And?", "--previous", made["id"])
    assert (gone.exit_code, made["id"] in gone.stderr) == (2, True)


@pytest.mark.usefixtures("notes")
def test_a_call_that_keeps_nothing_creates_nothing(cli: Cli) -> None:
    assert kept(cli, *CALL, "noted") == "[]"
    assert [path.name for path in Path().iterdir()] == ["plugins"]


@pytest.mark.usefixtures("notes")
def test_a_database_of_postgresql_is_prepared_when_something_is_kept(
    cli: Cli, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", postgres_url)
    assert kept(cli, *CALL, "noted") == "[]"
    assert "is empty or does not exist" in cli("db", "current").stdout
    assert [note(cli, text) for text in "ab"] == ["1", "2"]
    assert not Path(".antwort", "antwort.db").exists()


@pytest.mark.usefixtures("notes")
def test_a_call_beside_a_running_server_shares_its_records(cli: Cli) -> None:
    with (
        ScriptServer([turn(calls=[call("note", text="a")]), turn("Noted.")]) as model,
        running(Antwort(Config(plugins_dir=Path("plugins")), backend=model.url)) as served,
    ):
        request = {"input": "Note a.", "tools": [{"type": "function", "name": "note"}]}
        assert httpx.post(f"{served.url}/v1/responses", json=request, timeout=60).json()["status"] == "completed"
        assert note(cli, "b") == "2"


@pytest.mark.usefixtures("notes")
def test_a_database_that_cannot_be_created_fails_the_call(cli: Cli) -> None:
    Path(".antwort").write_text("in the way", encoding="utf-8")
    result = cli(*CALL, "note", '{"text": "a"}')
    assert (result.exit_code, result.stdout) == (1, "")
    assert "The database cannot be opened" in result.stderr
