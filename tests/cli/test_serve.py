import ast
import json
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from tests.cli.terminals import Terminal, hangups
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

import antwort
from antwort.auth import check_bind
from antwort.config import Override, load_config
from antwort.testing import ScriptServer

Cli = Callable[..., Result]
Write = Callable[[str], Path]
Plugin = Callable[[str, str], None]
Process = Callable[..., subprocess.Popen[str]]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
Refused = Callable[..., str]


def _url(banner: list[str]) -> str:
    return banner[-1].removeprefix("Listening on ")


@pytest.mark.usefixtures("cold")
def test_it_tells_where_it_listens_answers_there_and_stops_on_a_signal(listening: Listening, refused: Refused) -> None:
    server, banner = listening()
    assert banner[:-1] == [
        f"antwort {antwort.__version__}",
        "  configuration  defaults",
        "  model          the built-in demo model (antwort-demo); connect a real one with --backend URL",
        "  auth           none",
        "  functions      24 (basics, files, programs, sub_agents, user, variables); file_search when it is used",
        "  data           .antwort",
    ]
    answer = httpx.get(f"{_url(banner)}/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert answer.json()["model"].startswith("the built-in demo model")
    second = refused("serve", "--port", "0")
    assert second.startswith(".antwort/antwort.db: another server uses it; stop that one, or give this one a folder")
    server.send_signal(signal.SIGTERM)
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout, stderr) == (0, "", "")
    assert sorted(file.name for file in Path(".antwort").iterdir()) == ["antwort.db", "antwort.db-reserve"]


@pytest.mark.usefixtures("cold")
def test_a_server_without_a_configuration_starts_without_what_it_does_not_need(
    listening: Listening, plugin: Plugin
) -> None:
    plugin(
        "modules",
        """
        import sys

        class Modules(Provider):
            async def lifespan(self):
                yield
                print(sorted({name.partition(".")[0] for name in sys.modules}), flush=True)
        """,
    )
    server, banner = listening("--plugins-dir", "plugins")
    assert _ask(banner) != ""
    server.send_signal(signal.SIGTERM)
    stdout, _ = server.communicate(timeout=60)
    modules = set(ast.literal_eval(stdout))
    assert modules >= {"antwort", "pydantic", "starlette"}
    heavy = {
        "uvicorn",
        "yaml",
        "cryptography",
        "jwt",
        "jsonschema_rs",
        "websockets",
        "aiohttp",
        "sqlalchemy",
        "alembic",
        "psycopg",
    }
    assert modules & heavy == set()


def test_an_interrupt_closes_the_providers_and_ends_with_0(listening: Listening, plugin: Plugin) -> None:
    plugin(
        "resource",
        """
        class Resource(Provider):
            async def lifespan(self):
                yield
                print("closed", flush=True)
        """,
    )
    server, banner = listening("--plugins-dir", "plugins")
    assert httpx.get(f"{_url(banner)}/readyz").status_code == 200
    server.send_signal(signal.SIGINT)
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout, stderr) == (0, "closed\n", "")


def test_a_hangup_that_is_ignored_is_none(listening: Listening) -> None:
    with hangups(ignored=True):
        server, banner = listening()
    server.send_signal(signal.SIGHUP)
    assert httpx.get(f"{_url(banner)}/healthz").status_code == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_it_can_do_without_standard_streams(closed: str) -> None:
    command = f'exec "{sys.executable}" -m antwort serve --port 0 --log-level error {closed}'
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            banner = [next(line for line in server.stdout if line.startswith("Listening on ")).rstrip("\n")]
            assert httpx.get(f"{_url(banner)}/healthz").status_code == 200
        finally:
            server.terminate()
        assert server.wait(60) == 0


def test_a_signal_while_a_provider_starts_ends_the_start(process: Process, plugin: Plugin) -> None:
    plugin(
        "slow",
        """
        import asyncio

        class Slow(Provider):
            async def lifespan(self):
                print("starting", flush=True)
                await asyncio.Event().wait()
                yield
        """,
    )
    server = process("serve", "--port", "0", "--plugins-dir", "plugins")
    assert server.stdout is not None
    assert server.stdout.readline() == "starting\n"
    server.send_signal(signal.SIGTERM)
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout, stderr) == (0, "", "")


def test_it_may_open_as_many_files_as_its_user_may(listening: Listening) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        server, _ = listening()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def _status(banner: list[str], host: str, path: str = "/v1/models") -> int:
    return httpx.get(f"{_url(banner)}{path}", headers={"host": host}).status_code


def test_a_page_whose_name_points_at_this_machine_gets_nothing_from_an_open_server(listening: Listening) -> None:
    _, banner = listening()
    port = _url(banner).rpartition(":")[2]
    for host in ("localhost", "app.localhost", "127.0.0.1", "[::1]"):
        assert _status(banner, f"{host}:{port}") == 200, host
    for path in ("/v1/models", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert _status(banner, f"evil.example:{port}", path) == 403, path
    answer = httpx.post(f"{_url(banner)}/v1/responses", json={"input": "hi"}, headers={"host": f"evil.example:{port}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    with (
        pytest.raises(InvalidStatus) as found,
        socket.create_connection(("127.0.0.1", int(port))) as raw,
        connect(
            f"ws://evil.example:{port}/v1/responses",
            sock=raw,
            origin=Origin(f"http://evil.example:{port}"),
            proxy=None,
        ),
    ):
        pass
    assert found.value.response.status_code == 403


def test_the_name_it_listens_on_is_one_of_its_own(listening: Listening) -> None:
    _, banner = listening("--host", "127.1")  # only the system can tell that this is 127.0.0.1
    assert [_status(banner, host) for host in ("127.1:80", "localhost", "evil.example")] == [200, 200, 403]


def test_the_hosts_of_the_configuration_replace_those_of_this_machine(listening: Listening, config: Write) -> None:
    config("server:\n  allowed_hosts: [host.docker.internal, '*.example']\n")
    _, banner = listening()
    hosts = ("host.docker.internal:8080", "a.example", "localhost", "127.0.0.1:8080")
    assert [_status(banner, host) for host in hosts] == [200, 200, 403, 403]


def test_all_hosts_can_be_allowed(listening: Listening, config: Write) -> None:
    config("server:\n  allowed_hosts: ['*']\n")
    _, banner = listening()
    assert _status(banner, "anything.example") == 200


def test_with_authentication_the_credentials_guard_it_whatever_the_host(cli: Cli, listening: Listening) -> None:
    cli("keys", "new", "--tenant", "acme")
    _, banner = listening("--backend", "demo")
    assert [_status(banner, "api.example", path) for path in ("/v1/models", "/healthz")] == [401, 200]


def test_a_host_that_is_none_names_the_place(refused: Refused, config: Write) -> None:
    config("server:\n  allowed_hosts: ['http://a.example']\n")
    line = refused("serve", "--port", "0")
    assert line.startswith("antwort.yaml:2: server.allowed_hosts: ")
    assert "'http://a.example' is no host name, address or network; leave out scheme and port" in line


def test_keys_made_and_revoked_take_effect_without_restart(cli: Cli, listening: Listening) -> None:
    first = cli("keys", "new", "--tenant", "acme").stdout.strip()
    _, banner = listening("--backend", "demo")
    assert "  auth           API keys (1)" in banner
    second = json.loads(cli("keys", "new", "--tenant", "globex", "--json").stdout)

    with httpx.Client(base_url=_url(banner)) as client:

        def status(key: str) -> int:
            return client.get("/v1/functions", headers={"authorization": f"Bearer {key}"}).status_code

        def becomes(key: str, *expected: int) -> bool:
            # The server looks at the file once a second.
            end = time.monotonic() + 60
            while status(key) not in expected:
                if time.monotonic() > end:
                    return False
                time.sleep(0.02)
            return True

        assert client.get("/v1/functions").status_code == 401
        assert status(first) == 200
        assert becomes(second["key"], 200)
        assert cli("keys", "revoke", second["id"]).exit_code == 0
        assert becomes(second["key"], 401, 429)  # by now there were many that failed
        assert status(first) == 200


def _ask(banner: list[str], **request: object) -> str:
    """Create a response and return its text."""
    response = httpx.post(f"{_url(banner)}/v1/responses", json={"input": "hi", **request}, timeout=60).json()
    return str(response["output"][0]["content"][0]["text"])


def test_a_model_server_is_named_by_a_flag(listening: Listening) -> None:
    with ScriptServer(["Hello."], models=["small", "large"]) as model:
        server, banner = listening("--backend", model.url, "--model", "large")
        assert f"  model          default ({model.url})" in banner
        assert server.stdout is not None
        assert server.stdout.readline() == f"  backend        default ({model.url}): 2 models: small, large\n"
        ready = httpx.get(f"{_url(banner)}/readyz").json()
        assert ready["backends"] == [{"name": "default", "state": "ok", "models": 2}]
        for path in ("/healthz", "/readyz"):  # they are public, and the address is not
            assert httpx.get(f"{_url(banner)}{path}").json()["model"] == "default"
        assert _ask(banner) == "Hello."
        assert model.requests[0]["model"] == "large"


def test_the_model_server_of_the_flag_comes_before_those_of_the_file(listening: Listening, config: Write) -> None:
    with ScriptServer(["From the flag."]) as model:
        config("backends:\n  other:\n    url: http://127.0.0.1:1/v1\n    models: [theirs]\n")
        _, banner = listening("--backend", model.url)
        assert f"  model          default ({model.url}), other (http://127.0.0.1:1/v1)" in banner
        assert _ask(banner) == "From the flag."


def test_the_key_of_the_flags_model_server_comes_from_the_environment(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_BACKENDS__DEFAULT__API_KEY", "s3cret")
    with ScriptServer(["Hello."]) as model:
        _, banner = listening("--backend", model.url)
        assert _ask(banner) == "Hello."
        assert model.headers[0]["authorization"] == "Bearer s3cret"


def test_a_model_server_that_the_environment_names_is_found(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTWORT_NO_PROBE")
    with ScriptServer(["Hello."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
        _, banner = listening()
        (line,) = (line for line in banner if line.startswith("  model  "))
        assert line == f"  model          OPENAI_BASE_URL, at {model.url.removeprefix('http://').removesuffix('/v1')}"
        assert _ask(banner) == "Hello."
        assert model.headers[0]["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("configured", [False, True])
def test_a_model_server_of_the_environment_is_not_used_when_told_so_or_when_there_is_another(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    monkeypatch.delenv("ANTWORT_NO_PROBE")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    _, banner = listening(*(["--backend", "http://127.0.0.1:2/v1"] if configured else ["--no-probe"]))
    (line,) = (line for line in banner if line.startswith("  model  "))
    assert ("127.0.0.1:2/v1" if configured else "demo") in line


def test_an_address_of_the_environment_that_is_none_is_one_line(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTWORT_NO_PROBE")
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    assert refused("serve", "--port", "0").startswith("OPENAI_BASE_URL: ")


def test_a_model_server_without_a_scheme_names_the_flag(refused: Refused) -> None:
    line = refused("serve", "--port", "0", "--backend", "localhost:8000")
    assert line == "--backend must be a URL, such as http://localhost:11434/v1, or 'openai', or 'demo'"


@pytest.mark.parametrize("options", [(), ("--data-dir", "my data"), ("--config", "other.yaml")])
def test_the_cure_for_an_open_server_that_others_can_reach_works_as_printed(
    cli: Cli, refused: Refused, options: tuple[str, ...]
) -> None:
    Path("other.yaml").write_text("auth:\n  keys_file: their.json\n", encoding="utf-8")
    line = refused("serve", "--host", "0.0.0.0", "--port", "0", *options)
    command = line.split("create an API key with '")[1].split("', or allow it with the flag --allow-anonymous.")[0]
    program, *arguments = shlex.split(command)
    assert program == "antwort"
    assert cli(*arguments).exit_code == 0
    loaded = load_config(
        Path("other.yaml") if "--config" in options else None,
        overrides=[
            Override("server.host", "0.0.0.0", "--host"),
            Override("data_dir", "my data" if "--data-dir" in options else None, "--data-dir"),
        ],
    )
    check_bind(loaded.config)


def test_on_a_terminal_each_request_is_a_line_to_read() -> None:
    terminal = Terminal("serve", "--port", "0")
    try:
        terminal.until("Listening on ")
        url = terminal.until("\n").strip()
        httpx.get(f"{url}/healthz")
        httpx.get(f"{url}/nothing", headers={"x-request-id": "mine"})
        assert re.fullmatch(r"[\d:.]+ INFO    GET /healthz 200  \d+ ms\n", terminal.until("\n"))
        refused = terminal.until("\n")
        assert re.fullmatch(
            r"[\d:.]+ INFO    GET /nothing 404  \d+ ms  mine  There is no /nothing here\. .+\n", refused
        )
    finally:
        terminal.close()


def test_flags_reach_the_server(listening: Listening, config: Write) -> None:
    config("server:\n  port: 1\ndata_dir: in-file\n")
    _, banner = listening("--data-dir", "by-flag", "--host", "localhost")
    assert "  configuration  antwort.yaml" in banner
    assert "  data           by-flag" in banner
    assert httpx.get(f"{_url(banner)}/healthz").status_code == 200


def test_a_port_in_use_is_one_line(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused("serve", "--port", str(port)) == (
            f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --host and --port"
        )


def test_a_port_that_does_not_exist_names_the_flag(refused: Refused) -> None:
    assert refused("serve", "--port", "70000").startswith("flag --port: server.port: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_others_can_reach_is_refused_without_authentication(refused: Refused, host: str) -> None:
    line = refused("serve", "--port", "0", "--host", host)
    assert line.startswith(f"server.host: Other machines can reach '{host}', and no authentication is configured.")
    assert "--allow-anonymous" in line


def test_the_flag_lets_it_try_such_an_address(refused: Refused) -> None:
    # An address for documentation, which no machine has: it gets as far as binding.
    line = refused("serve", "--port", "0", "--host", "192.0.2.1", "--allow-anonymous")
    assert line.startswith("cannot listen on 192.0.2.1:0: ")


def test_an_unknown_provider_type_is_one_line_with_the_place(refused: Refused, config: Write) -> None:
    config("providers:\n  web_serch:\n    enabled: true\n")
    line = refused("serve", "--port", "0")
    assert line.startswith(
        "antwort.yaml:2: providers.web_serch: unknown provider type; did you mean 'web_search'? (known: "
    )


def test_a_constructor_that_fails_is_one_line_that_names_the_provider(process: Process, plugin: Plugin) -> None:
    plugin(
        "broken", "class Broken(Provider):\n    def __init__(self, settings):\n        raise ValueError('no luck')\n"
    )
    server = process("serve", "--port", "0", "--plugins-dir", "plugins")
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert line.startswith("antwort: ")
    assert "providers.broken" in line
    assert line.endswith("plugins/broken.py cannot be loaded: ValueError: no luck")


def test_a_lifespan_that_fails_is_one_line_that_names_the_provider(process: Process, plugin: Plugin) -> None:
    plugin(
        "broken",
        """
        class Broken(Provider):
            async def lifespan(self):
                raise ConnectionError("no database at postgres://me:hunter22@db")
                yield
        """,
    )
    server = process("serve", "--port", "0", "--plugins-dir", "plugins")
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout) == (2, "")
    (line,) = stderr.splitlines()
    assert line.startswith("antwort: ")
    assert "providers.broken" in line
    assert line.endswith("ConnectionError: no database at postgres://me:***@db")


def test_a_bad_setting_of_a_provider_is_one_line_with_the_place(refused: Refused, config: Write) -> None:
    config("providers:\n  basics:\n    enabled: true\n    colour: red\n")
    line = refused("serve", "--port", "0")
    assert line.startswith("antwort.yaml:4: providers.basics.settings.colour: unknown key")


def test_a_folder_of_plug_ins_that_is_missing_is_named(refused: Refused) -> None:
    assert "plugins_dir: there is no folder nowhere" in refused("serve", "--port", "0", "--plugins-dir", "nowhere")


def test_the_log_leaves_out_secrets_that_only_a_provider_knows(
    listening: Listening, plugin: Plugin, config: Write
) -> None:
    plugin(
        "vault",
        """
        class VaultSettings(Settings):
            dsn: SecretStr

        class Vault(Provider[VaultSettings]):
            @route("GET", "/v1/vault")
            async def fail(self) -> None:
                '''Fail.'''
                raise RuntimeError("cannot use " + self.settings.dsn.get_secret_value())
        """,
    )
    config(
        "plugins_dir: plugins\nproviders:\n  vault:\n    enabled: true\n    settings:\n      dsn: s3cret-dsn-value\n"
    )
    server, banner = listening()
    assert httpx.get(f"{_url(banner)}/v1/vault").status_code == 500
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=60)
    assert "cannot use" in stderr
    assert "s3cret" not in stderr
