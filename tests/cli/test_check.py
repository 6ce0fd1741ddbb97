import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.providers.web_search.stage import found
from tests.support.s3 import Bucket
from tests.support.site import Reply, Site

import antwort
from antwort.search.base import SEARCH_ENGINES
from antwort.testing import ScriptServer

VARIABLES = "store_set, store_get, store_ref, store_list, store_summarize, store_append, store_delete"
SUB_AGENTS = (
    "spawn_agent, spawn_many, return_result, call_llm, call_llm_many, list_agents, wait_agent, interrupt_agent, "
    "followup_task, close_agent, budget_remaining"
)

Cli = Callable[..., Result]
Write = Callable[[str], Path]
Plugin = Callable[[str, str], None]


def test_every_part_that_works_has_its_line(cli: Cli, config: Write) -> None:
    config("server:\n  port: 0\n")
    result = cli("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "ok  configuration: antwort.yaml",
        "ok  authentication: none",
        "ok  storage: .antwort/antwort.db, to be created at the next start",
        "ok  provider basics: calculate, current_time",
        "ok  provider files: no functions",
        "ok  provider programs: run_program",
        f"ok  provider sub_agents: {SUB_AGENTS}",
        "ok  provider user: ask_user, notify_user, final_answer",
        f"ok  provider variables: {VARIABLES}",
        "ok  model: the built-in demo model (antwort-demo), unless a model server is found",
    ]
    assert not Path(".antwort").exists()


def test_it_names_the_kind_of_disk_that_code_works_on(cli: Cli, config: Write) -> None:
    config("providers:\n  workspace:\n    enabled: true\n")
    parts = json.loads(cli("check", "--json").stdout)["parts"]
    assert parts["disks of code"] in ({"loop"} if os.geteuid() == 0 else {"fuse", "memory"})


def test_as_json_it_is_one_object(cli: Cli) -> None:
    assert json.loads(cli("check", "--json").stdout) == {
        "ok": True,
        "parts": {
            "configuration": "defaults",
            "authentication": "none",
            "storage": ".antwort/antwort.db, to be created at the next start",
            "provider basics": "calculate, current_time",
            "provider files": "no functions",
            "provider programs": "run_program",
            "provider sub_agents": SUB_AGENTS,
            "provider user": "ask_user, notify_user, final_answer",
            "provider variables": VARIABLES,
            "model": "the built-in demo model (antwort-demo), unless a model server is found",
        },
        "problems": [],
    }


def test_all_problems_of_the_file_are_shown_one_line_each(cli: Cli, config: Write) -> None:
    config("server:\n  prot: 1\n  port: 70000\n")
    result = cli("check")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first == "antwort: antwort.yaml:2: server.prot: unknown key; did you mean 'port'?"
    assert second.startswith("antwort: antwort.yaml:3: server.port: ")


def test_problems_of_providers_are_told_beside_those_of_the_rest(
    cli: Cli, config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(
        """
        server:
          prot: 1
        auth:
          api_keys: 7
        providers:
          basics:
            enabled: true
            colour: red
          web_serch:
            enabled: true
          user:
            enabled: perhaps
            colour: blue
          files:
            enabled: true
            colour: ${MISSING_COLOUR}
        """
    )
    monkeypatch.setenv("ANTWORT_PROVIDERS__VARIABLES__COLOUR", "green")
    result = cli("check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert [line.split(": ")[2] for line in result.stderr.splitlines()] == [
        "server.prot",
        "auth.api_keys",
        "providers.user.enabled",
        "providers.files.colour",
        "providers.basics.settings.colour",
        "providers.web_serch",
    ]


def test_without_the_folder_of_plug_ins_nothing_is_said_of_providers(cli: Cli, config: Write) -> None:
    config("plugins_dir: [7]\nproviders:\n  mine:\n    enabled: true\n")
    (line,) = cli("check").stderr.splitlines()
    assert "plugins_dir" in line


def test_an_extension_that_two_packages_bring_is_told_with_both(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("zeta", "acme"):
        folder = tmp_path / "site" / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(
            f"[antwort.search_engines]\nnotes = {name}.notes:Notes\nbrave = {name}.brave:Brave\n"
        )
    monkeypatch.syspath_prepend(tmp_path / "site")
    result = cli("check")
    own = f"antwort {antwort.__version__}"
    conflicts = [
        f"'{name}' of antwort.search_engines is brought by {first} and again by {second} 1.0; the first one is used, "
        f"and use: '{second}.{name}:{name.title()}' means the other"
        for name, first, second in (("brave", own, "acme"), ("notes", "acme 1.0", "zeta"), ("brave", own, "zeta"))
    ]
    (told,) = [line for line in result.stdout.splitlines() if line.startswith("ok  names: ")]
    conflicts = [conflict.removeprefix("'") for conflict in conflicts]
    assert sorted(told.removeprefix("ok  names: '").split("; '")) == sorted(conflicts)
    assert all(conflict in result.stderr for conflict in conflicts)
    Path("antwort.yaml").write_text("strict_names: true\n")
    assert (cli("check").exit_code, "(strict_names is on)" in cli("check").stderr) == (2, True)
    assert SEARCH_ENGINES.find("notes").origin == "acme 1.0"


def test_problems_as_json_have_their_place(cli: Cli, config: Write) -> None:
    config("server:\n  prot: 1\n")
    result = cli("check", "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert answer["problems"] == [
        {"where": "antwort.yaml:2", "message": "server.prot: unknown key; did you mean 'port'?"}
    ]


def test_problems_of_several_parts_are_found_in_one_run(cli: Cli, config: Write, plugin: Plugin) -> None:
    config(
        """
        plugins_dir: plugins
        server:
          host: 192.0.2.1
        auth:
          mode: none
        providers:
          web_serch:
            enabled: true
          basics:
            enabled: true
            colour: red
        """
    )
    plugin(
        "broken", "class Broken(Provider):\n    def __init__(self, settings):\n        raise ValueError('no luck')\n"
    )
    result = cli("check")
    assert (result.exit_code, result.stdout) == (2, "ok  configuration: antwort.yaml\n")
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("antwort: server.host: Other machines can reach '192.0.2.1'")
    assert lines[1].startswith("antwort: antwort.yaml:8: providers.web_serch: unknown provider type; did you mean")
    assert lines[2].startswith("antwort: antwort.yaml:12: providers.basics.settings.colour: unknown key")
    assert lines[3].endswith("providers.broken: plugins/broken.py cannot be loaded: ValueError: no luck")


def test_checks_are_told_with_their_provider_and_what_they_do_not_see_is_too(
    cli: Cli, plugin: Plugin, config: Write
) -> None:
    plugin(
        "rules",
        """
        from antwort.provider import Allow, CheckedCall, check

        class Rules(Provider):
            @check("input", "output")
            def no_rival(self, text: str) -> Allow:
                return Allow()

            @check("call")
            def no_money(self, call: CheckedCall) -> Allow:
                return Allow()
        """,
    )
    told = cli("check", "--plugins-dir", "plugins").stdout.splitlines()
    assert "ok  provider rules: no functions; checks: no_rival of input and output, no_money of call" in told
    (unchecked,) = [line for line in told if line.startswith("ok  checks: ")]
    assert unchecked.endswith("with server.chat_completions.functions they see /v1/chat/completions")
    config("server: {chat_completions: {functions: true}}")
    assert "ok  checks: " not in cli("check", "--plugins-dir", "plugins").stdout


def test_a_provider_is_started_and_closed(cli: Cli, plugin: Plugin) -> None:
    plugin(
        "resource",
        """
        from pathlib import Path

        class Resource(Provider):
            async def lifespan(self):
                Path("trace").write_text("opened")
                yield
                Path("trace").write_text(Path("trace").read_text() + " closed")
        """,
    )
    result = cli("check", "--plugins-dir", "plugins")
    assert "ok  provider resource: no functions" in result.stdout.splitlines()
    assert Path("trace").read_text(encoding="utf-8") == "opened closed"


def test_a_provider_that_does_not_start_is_one_line(cli: Cli, plugin: Plugin) -> None:
    plugin(
        "broken",
        """
        class Broken(Provider):
            async def lifespan(self):
                raise ConnectionError("no database")
                yield
        """,
    )
    result = cli("check", "--plugins-dir", "plugins")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "broken" in line
    assert "ConnectionError: no database" in line


def test_required_authentication_without_a_key_is_a_problem(cli: Cli, config: Write) -> None:
    config("auth:\n  mode: required\n")
    result = cli("check", "--backend", "demo")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "antwort keys new" in result.stderr


def test_each_backend_is_asked_for_its_models(cli: Cli, config: Write) -> None:
    with ScriptServer([], models=["small", "large"]) as first, ScriptServer([]) as second:
        config(f"backends:\n  one:\n    url: {first.url}\n  two:\n    url: {second.url}\n")
        result = cli("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-2:] == [
        f"ok  backend one: {first.url}, 2 models: small, large",
        f"ok  backend two: {second.url}, 1 model: scripted",
    ]


def test_a_backend_is_checked_by_a_flag_and_a_wrong_path_told_with_the_right_one(cli: Cli) -> None:
    with ScriptServer([]) as model:
        result = cli("check", "--backend", model.url.removesuffix("/v1"))
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("antwort: flag --backend: backends.default: The backend 'default' has no such endpoint")
        cure = line.split("It answers at ")[1].removesuffix(": use that.")
        result = cli("check", "--backend", cure)
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_backend_without_models_is_a_problem_unless_it_takes_any_name(cli: Cli, config: Write) -> None:
    with ScriptServer([], models=[]) as model:
        config(f"backends:\n  bare:\n    url: {model.url}\n  any:\n    url: {model.url}\n    any_model: true\n")
        result = cli("check")
    assert result.stdout.splitlines()[-1] == f"ok  backend any: {model.url}, no models"
    (line,) = result.stderr.splitlines()
    assert line == (
        "antwort: antwort.yaml:2: backends.bare: The backend 'bare' answers, but has no models; load one there."
    )


def test_models_that_the_configuration_names_and_the_server_lacks_are_problems(cli: Cli, config: Write) -> None:
    with ScriptServer([], models=["llama3.2:latest", "qwen3"]) as model:
        agents = "agents:\n  one:\n    model: llama3.2\n  two:\n    model: qwen4\n"
        config(f"backends:\n  main:\n    url: {model.url}\nengine:\n  default_model: lama3.2\n{agents}")
        result = cli("check")
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first.startswith("antwort: antwort.yaml:5: engine.default_model: The backend 'main' does not list the model")
    assert second.startswith("antwort: antwort.yaml:10: agents.two.model: The backend 'main' does not list the model")
    assert "It has 'qwen3'." in second


def test_models_that_agents_may_choose_and_providers_ask_are_looked_for_as_well(cli: Cli, config: Write) -> None:
    with ScriptServer([], models=["qwen3", "qwen3:4b"]) as model:
        config(
            f"""
            backends:
              main:
                url: {model.url}
            engine:
              run:
                models: [qwen3, qwen4]
            agents:
              one:
                models: ["qwen*", gemma3]
            providers:
              sub_agents:
                enabled: true
                settings:
                  call_model: phi4
            """
        )
        result = cli("check")
    assert result.exit_code == 2
    lacking = "The backend 'main' does not list the model"
    assert [line.partition("'. ")[0] for line in result.stderr.splitlines()] == [
        f"antwort: antwort.yaml:7: engine.run.models.1: {lacking} 'qwen4",
        f"antwort: antwort.yaml:10: agents.one.models.1: {lacking} 'gemma3",
        f"antwort: antwort.yaml:15: providers.sub_agents.settings.call_model: {lacking} 'phi4",
    ]


def test_without_a_configuration_it_says_who_would_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTWORT_NO_PROBE")
    with ScriptServer([], models=["qwen3"]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        last = cli("check").stdout.splitlines()[-1]
    assert last == f"ok  model: OPENAI_BASE_URL, at {model.url.removeprefix('http://').removesuffix('/v1')}"


def test_a_service_that_is_not_used_is_noted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-word")
    result = cli("check")
    assert result.stdout.splitlines()[-1] == (
        "ok  note: OPENAI_API_KEY is set, and not used: --backend openai asks api.openai.com"
    )
    assert "sk-word" not in result.output


def test_a_backend_that_cannot_be_reached_is_a_problem_in_one_line_with_its_place(cli: Cli, config: Write) -> None:
    config("backends:\n  lost:\n    url: http://me:hunter22@127.0.0.1:1/v1\n")
    result = cli("check")
    assert result.exit_code == 2
    assert result.stderr == (
        "antwort: antwort.yaml:2: backends.lost: The backend 'lost' cannot be reached: connection refused.\n"
    )
    assert "hunter22" not in result.output


def test_a_provider_and_a_backend_that_fail_are_both_told(cli: Cli, config: Write, plugin: Plugin) -> None:
    config("plugins_dir: plugins\nbackends:\n  lost:\n    url: http://127.0.0.1:1/v1\n")
    plugin(
        "broken",
        "class Broken(Provider):\n    async def lifespan(self):\n        raise ValueError('no')\n        yield\n",
    )
    result = cli("check")
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert "broken" in first
    assert "'lost' cannot be reached" in second


def test_a_database_that_is_there_is_looked_at(cli: Cli) -> None:
    assert cli("db", "upgrade").exit_code == 0
    assert "ok  storage: .antwort/antwort.db, up to date" in cli("check").stdout.splitlines()


def test_a_database_of_another_program_is_a_problem(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect("other.db")) as database:
        database.execute("CREATE TABLE sheep (name TEXT)")
    Path("antwort.yaml").write_text("storage:\n  url: sqlite:///other.db\n", encoding="utf-8")
    result = cli("check", "--backend", "demo")
    assert result.exit_code == 2
    assert result.stderr.startswith("antwort: other.db: The database belongs to another program")


def test_a_data_folder_that_cannot_be_one_is_a_problem(cli: Cli) -> None:
    Path("file").touch()
    result = cli("check", "--data-dir", "file/below")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith("/file is no folder one may write to")


def test_a_bucket_is_asked_and_names_the_package_that_is_missing(
    cli: Cli, config: Write, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = "storage:\n  s3:\n    bucket: {}\n    endpoint: {}\n    region: us-east-1\n"
    config(written.format(bucket.name, bucket.settings.endpoint))
    assert f"ok  bytes of files: the bucket {bucket.name}" in cli("check").stdout.splitlines()
    config(written.format("nowhere", bucket.settings.endpoint))
    away = cli("check")
    assert away.exit_code == 2
    cause = "storage.s3: nowhere: The bucket that has the files fails: there is no such bucket."
    assert f"antwort: {cause}" in away.stderr.splitlines()
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "antwort.files.s3")
    result = cli("check")
    assert result.exit_code == 2
    cause = "storage.s3: the blob store 's3' needs packages that are not installed: pip install 'antwort[s3]'"
    assert f"antwort: {cause}" in result.stderr.splitlines()


def test_a_database_that_is_not_supported_is_a_problem_without_its_password(cli: Cli, config: Write) -> None:
    config("storage:\n  url: mysql://me:hunter22@db/antwort\n")
    result = cli("check", "--backend", "demo")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "sqlite:///" in result.stderr
    assert "hunter22" not in result.output


def test_a_provider_that_keeps_things_is_tried_without_keeping_any(cli: Cli, config: Write) -> None:
    config("providers:\n  file_search:\n    enabled: true\n")
    result = cli("check")
    assert result.exit_code == 0, result.stderr
    assert "ok  provider file_search: file_search" in result.stdout.splitlines()
    assert not Path(".antwort").exists()


def test_what_a_provider_depends_on_is_asked_though_its_start_goes_on_without_it(cli: Cli, config: Write) -> None:
    config(
        "providers:\n  file_search:\n    enabled: true\n    settings:\n      vector_backend: qdrant\n"
        "      qdrant:\n        url: http://127.0.0.1:1\n      embedding_url: http://127.0.0.1:2/v1/embeddings\n"
    )
    result = cli("check")
    assert result.exit_code == 2
    database, embedding = [line for line in result.stderr.splitlines() if line.startswith("antwort: ")]
    assert "antwort.yaml:2: providers.file_search: The vector database at" in database
    assert "antwort.yaml:2: providers.file_search: The embedding service at" in embedding
    assert "provider file_search" not in result.stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return ['The disk\\nis full.', 'It rains.']", ["The disk is full.", "It rains."]),
        (
            "raise RuntimeError('token sk-abcdefghijklmnopqrstuvwxyz')",
            ["it could not be examined: RuntimeError: token sk-***"],
        ),
    ],
)
def test_all_that_a_provider_finds_wrong_is_shown(cli: Cli, plugin: Plugin, body: str, said: list[str]) -> None:
    plugin(
        "weather",
        "class Weather(Provider):\n"
        "    async def examine(self):\n"
        f"        {body}\n"
        "    @function\n"
        "    async def forecast(self) -> str:\n"
        "        'Forecast the weather.'\n"
        "        return 'Rain.'\n",
    )
    result = cli("check", "--plugins-dir", "plugins")
    assert result.exit_code == 2
    assert [line.partition("providers.weather: ")[2] for line in result.stderr.splitlines()] == said


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (found(), None),
        (Reply("Forbidden", status=403), "The search backend refuses to answer in JSON."),
        (Reply("<html>A blog</html>"), "The answer of the search backend cannot be read."),
    ],
)
def test_a_search_engine_is_asked_once(cli: Cli, config: Write, reply: Reply, said: str | None) -> None:
    with Site({"/search": reply}) as engine:
        config(f"providers:\n  web_search:\n    enabled: true\n    settings:\n      url: {engine.url}\n")
        result = cli("check")
    assert len(engine.asked) == 1
    assert result.exit_code == (0 if said is None else 2)
    assert said is None or said in result.stderr
