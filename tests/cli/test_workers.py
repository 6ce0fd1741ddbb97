"""`antwort serve --workers`: real processes on a real PostgreSQL."""

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.cli.terminals import hangups

from antwort.server.http.serve import bind
from antwort.testing import Gate, ScriptServer, turn

Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
Process = Callable[..., subprocess.Popen[str]]
Plugin = Callable[[str, str], None]
Refused = Callable[..., str]
Write = Callable[[str], Path]

PATIENCE = 60.0
REFUSED = "antwort: flag --workers: server.workers: only one is possible"
REQUESTS = re.compile(r'^antwort_http_requests_total\{.*path="/v1/responses".*worker="(\d)"\} (\d+)', re.MULTILINE)


@pytest.fixture(autouse=True)
def demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has a database is answered by the demo model only by name."""
    monkeypatch.setenv("ANTWORT_BACKENDS__DEFAULT__URL", "demo")


@pytest.fixture
def two_workers(
    listening: Listening, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[subprocess.Popen[str], str]]:
    """Start a server with two workers; return it with its URL."""
    monkeypatch.setenv("ANTWORT_STORAGE__URL", ready_url)

    def two_workers(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        server, banner = listening("--workers", "2", *arguments)
        return server, banner[-1].removeprefix("Listening on ")

    return two_workers


TwoWorkers = Callable[..., tuple[subprocess.Popen[str], str]]


def workers_of(server: subprocess.Popen[str]) -> list[int]:
    """Return the processes of the workers."""
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            assert select.select([handle], [], [], PATIENCE)[0], "it goes on"
        finally:
            os.close(handle)


def wait_until_refused(url: str) -> None:
    """Wait until a server takes no connections any more."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(httpx.TransportError):
        while time.monotonic() < deadline:
            httpx.get(f"{url}/healthz")
            time.sleep(0.01)
        raise AssertionError("it goes on")


def served(page: str) -> dict[str, int]:
    """Return how many responses each worker has made."""
    counts: Counter[str] = Counter()
    for worker, count in REQUESTS.findall(page):
        counts[worker] += int(count)
    return counts


async def ask(url: str, count: int) -> list[httpx.Response]:
    """Ask for many responses at the same time, each on a connection of its own."""
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE) as client:
        return await asyncio.gather(
            *(client.post("/v1/responses", json={"input": f"Hello {number}"}) for number in range(count))
        )


def test_all_workers_answer_on_one_port_and_stop_on_a_signal(two_workers: TwoWorkers) -> None:
    server, url = two_workers()
    assert len(workers_of(server)) == 2
    answers = asyncio.run(ask(url, 60))
    assert {answer.status_code for answer in answers} == {200}
    ids = [answer.json()["id"] for answer in answers]
    assert len(set(ids)) == 60
    with httpx.Client(base_url=url, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        assert all(client.get(f"/v1/responses/{id_}").status_code == 200 for id_ in ids)  # whoever has made it
        pages = [client.get("/metrics") for _ in range(4)]
    for page in pages:  # whoever is asked
        counts = served(page.text)
        assert set(counts) == {"0", "1"}
        assert sum(counts.values()) == 60
    server.send_signal(signal.SIGTERM)
    stdout, stderr = server.communicate(timeout=PATIENCE)
    assert (server.returncode, stdout, stderr) == (0, "", "")


def test_the_workers_of_an_ordinary_user_share_the_file_systems_that_code_works_on(
    listening: Listening, postgres_url: str, monkeypatch: pytest.MonkeyPatch, config: Write, tmp_path: Path
) -> None:
    config("providers:\n  workspace:\n    enabled: true\n")
    monkeypatch.setenv("ANTWORT_STORAGE__URL", postgres_url)
    alone = tmp_path / "alone"
    alone.write_text(f'#!/bin/sh\nexec unshare --user --map-root-user {sys.executable} "$@"\n')
    alone.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(alone))
    server, banner = listening("--workers", "2")
    assert {"  disks of code  fuse", "  disks of code  memory"} & set(banner)
    url = f"{banner[-1].removeprefix('Listening on ')}/v1/workspaces/mine/files"
    with httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=PATIENCE) as client:
        for number in range(12):  # whoever is asked
            assert client.put(url, params={"path": str(number)}, content=b"tea").status_code == 200
            assert len(client.get(url).json()["data"]) == number + 1
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_end_that_are_under_way(two_workers: TwoWorkers, number: int) -> None:
    gate = Gate()
    with ScriptServer([turn(["It is ", "done."], wait_for=gate)]) as model:
        server, url = two_workers("--backend", model.url)
        with httpx.stream("POST", f"{url}/v1/responses", json={"input": "Go on.", "stream": True}) as response:
            gate.wait_reached()
            server.send_signal(number)
            deadline = time.monotonic() + PATIENCE
            with pytest.raises(httpx.TransportError):
                while time.monotonic() < deadline:  # until all have heard it
                    httpx.get(f"{url}/healthz")
                    time.sleep(0.01)
            gate.open()
            assert b"It is done." in response.read()
        assert server.wait(PATIENCE) == 0


def test_a_hangup_that_is_ignored_ends_nothing(two_workers: TwoWorkers) -> None:
    with hangups(ignored=True):
        server, url = two_workers()
    server.send_signal(signal.SIGHUP)
    assert [httpx.get(f"{url}/healthz").status_code for _ in range(8)] == [200] * 8
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0


def test_a_hangup_has_all_workers_read_the_configuration_also_those_that_start_later(
    two_workers: TwoWorkers, config: Write
) -> None:
    keys = (
        "auth: {api_keys: [{id: ops, key: key-of-ops}, {id: %s, key: key-of-%s}]}\nobservability: {audit_file: audit}\n"
    )
    config(keys % ("old", "old"))
    server, url = two_workers()

    def statuses(key: str) -> set[int]:
        headers = {"Authorization": f"Bearer key-of-{key}"}
        return {httpx.get(f"{url}/v1/models", headers=headers, timeout=PATIENCE).status_code for _ in range(16)}

    assert (statuses("old"), statuses("new")) == ({200}, {401})
    config(keys % ("new", "new"))
    server.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while statuses("old") != {401} or statuses("new") != {200}:
        assert time.monotonic() < deadline, "not all have read it"
    config("not: right\n")  # those that start later go by what was right
    server.send_signal(signal.SIGHUP)
    for pid in workers_of(server):
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
    assert (statuses("old"), statuses("new")) == ({401}, {200})
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert stderr.count("nothing has changed") == 1
    assert Path("audit").read_text(encoding="utf-8").count('"configuration.reloaded"') == 1


def test_a_second_interrupt_ends_it_at_once(two_workers: TwoWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_SERVER__SHUTDOWN_TIMEOUT", "600")
    gate = Gate()
    with ScriptServer([turn("Never.", wait_for=gate)]) as model:
        server, url = two_workers("--backend", model.url)
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("POST", f"{url}/v1/responses", json={"input": "Go on.", "stream": True}),
        ):
            gate.wait_reached()
            server.send_signal(signal.SIGINT)
            wait_until_refused(url)  # two signals at once could be one
            server.send_signal(signal.SIGINT)
            server.wait(PATIENCE)
        gate.open()
    assert server.returncode is not None


def test_a_worker_that_is_killed_in_a_storm_is_replaced_and_the_others_go_on(two_workers: TwoWorkers) -> None:
    server, url = two_workers("--log-level", "warning")
    first, second = workers_of(server)

    async def storm() -> list[httpx.Response | BaseException]:
        limits = httpx.Limits(max_connections=16, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE) as client:
            asking = [asyncio.ensure_future(client.post("/v1/responses", json={"input": "Hello"})) for _ in range(150)]
            await asyncio.wait(asking[:30])
            os.kill(first, signal.SIGKILL)
            return await asyncio.gather(*asking, return_exceptions=True)

    outcomes = asyncio.run(storm())
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # Those that it was answering are lost; those that waited for it are answered by its successor.
    assert len(failures) <= 16
    assert {type(failure) for failure in failures} <= {httpx.RemoteProtocolError, httpx.ReadError}
    assert {outcome.status_code for outcome in outcomes if isinstance(outcome, httpx.Response)} == {200}
    assert {answer.status_code for answer in asyncio.run(ask(url, 40))} == {200}
    kept, new = workers_of(server)
    assert kept == second
    assert new != first
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    messages = [json.loads(line)["message"] for line in stderr.splitlines()]
    of_workers = [message for message in messages if not message.startswith("the event loop ")]
    assert of_workers == [f"worker 0, process {first}, was killed by SIGKILL; it is started again at once"]


def test_a_worker_that_was_stopped_does_not_keep_the_server_from_ending(two_workers: TwoWorkers) -> None:
    server, _ = two_workers()
    os.kill(workers_of(server)[0], signal.SIGSTOP)
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0


def test_workers_do_not_outlive_the_process_that_has_them(two_workers: TwoWorkers) -> None:
    server, _ = two_workers()
    workers = workers_of(server)
    server.kill()
    server.wait(PATIENCE)
    for worker in workers:
        wait_for_end(worker)


HANGING = """
import os, pathlib, signal, time

from antwort.provider import route

def hang(how):
    mark = pathlib.Path(how)
    if mark.exists():
        mark.unlink()  # its successor is to come about
        os.kill(os.getpid(), signal.SIGSTOP)

hang("import")

class Hanging(Provider):
    async def lifespan(self):
        hang("lifespan")
        yield

    @route("GET", "/v1/block")
    async def block(self) -> str:
        '''Block.'''
        print("stuck", flush=True)
        while True:
            time.sleep(1)
"""


def stop_first(server: subprocess.Popen[str], _url: str) -> None:
    """Stop one of the workers, as a debugger does."""
    os.kill(workers_of(server)[0], signal.SIGSTOP)


def block_one(server: subprocess.Popen[str], url: str) -> None:
    """Have one of the workers block its event loop."""

    def ask() -> None:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/v1/block", timeout=PATIENCE)

    threading.Thread(target=ask, daemon=True).start()
    assert server.stdout is not None
    assert "stuck\n" in iter(server.stdout.readline, ""), "it has ended"


@pytest.mark.parametrize("hang", [stop_first, block_one])
def test_a_worker_that_hangs_does_not_outlive_the_process_that_has_it_either_and_the_port_is_free(
    two_workers: TwoWorkers, plugin: Plugin, config: Write, hang: Callable[[subprocess.Popen[str], str], None]
) -> None:
    plugin("hanging", HANGING)
    config("server:\n  shutdown_timeout: 0.1\n  worker_timeout: null\nfunctions:\n  close_timeout: 0.1\n")
    with contextlib.ExitStack() as stack:
        server, url = two_workers("--plugins-dir", "plugins")
        workers = workers_of(server)
        for worker in workers:
            stack.callback(end, worker)
        hang(server, url)
        server.kill()
        server.wait(PATIENCE)
        for worker in workers:
            wait_for_end(worker)
    bind("127.0.0.1", int(url.rpartition(":")[2])).close()


def end(pid: int) -> None:
    """End a process if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("when", ["import", "lifespan"])
def test_a_worker_that_stands_still_while_it_starts_is_replaced(
    two_workers: TwoWorkers, plugin: Plugin, config: Write, when: str
) -> None:
    plugin("hanging", HANGING)
    config("server:\n  worker_timeout: 6\nfunctions:\n  start_timeout: 4\n")
    server, url = two_workers("--plugins-dir", "plugins", "--log-level", "warning")
    Path(when).touch()
    first = workers_of(server)[0]
    os.kill(first, signal.SIGKILL)
    said = [read_message(server) for _ in range(3)]
    pid = said[1].partition("process ")[2].partition(",")[0]
    assert said == [
        f"worker 0, process {first}, was killed by SIGKILL; it is started again at once",
        f"worker 0, process {pid}, gives no sign of life for 10 s while it starts; it is killed",
        f"worker 0, process {pid}, was killed by SIGKILL; it is started again in 0.5 s",
    ]
    assert {answer.status_code for answer in asyncio.run(ask(url, 20))} == {200}
    assert not {first, int(pid)} & set(workers_of(server))
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0


def read_message(server: subprocess.Popen[str]) -> str:
    """Read the next line of the log, and nothing of the one behind it, which nobody would wait for any more."""
    assert server.stderr is not None
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([server.stderr], [], [], PATIENCE)[0], "it says nothing"
        line += (byte := os.read(server.stderr.fileno(), 1))
        assert byte, "it has ended"
    return str(json.loads(line)["message"])


def test_a_first_worker_that_stands_still_while_it_starts_ends_the_server(
    process: Process, plugin: Plugin, config: Write, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", ready_url)
    plugin("hanging", HANGING)
    config("server:\n  worker_timeout: 1\nfunctions:\n  start_timeout: 4\n")
    Path("lifespan").touch()
    code, lines = refusal(process("serve", "--port", "0", "--workers", "2", "--plugins-dir", "plugins"))
    assert code == 1
    last = json.loads(lines.splitlines()[-1])["message"]
    assert last == "the server ends: worker 0 was killed by SIGKILL before it was ready"


def test_a_rate_holds_for_all_workers_together(two_workers: TwoWorkers, config: Write) -> None:
    config("limits:\n  per_tenant: {requests_per_minute: 1, burst: 10}\n")
    _, url = two_workers()
    with httpx.Client(base_url=url, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        codes = Counter(client.get("/v1/models").status_code for _ in range(40))
    assert codes == {200: 10, 429: 30}


# --- what is wrong ----------------------------------------------------------------------------------------------------


def refusal(server: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a server that does not start, and all it says."""
    stdout, stderr = server.communicate(timeout=PATIENCE)
    assert stdout == ""
    return server.returncode, stderr


@pytest.mark.parametrize("url", ["", "sqlite:///mine.db"])
def test_sqlite_is_for_one_process(process: Process, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", url)  # an empty one counts as not set
    code, line = refusal(process("serve", "--port", "0", "--workers", "2"))
    reason = (
        "a SQLite database is for one process; "
        "set storage.url to a PostgreSQL database (postgresql://user:password@host/database), or have one worker"
    )
    assert (code, line) == (2, f"{REFUSED} (storage.url): {reason}\n")


def test_without_postgres_nobody_else_can_work(process: Process) -> None:
    code, line = refusal(process("serve", "--port", "0", "--without-worker"))
    assert code == 2
    assert "background responses can be left to others on PostgreSQL only; set storage.url" in line
    code, line = refusal(process("worker"))
    told = "antwort: storage.url: a worker shares a PostgreSQL database with servers; set storage.url to that\n"
    assert (code, line) == (2, told)


def test_a_provider_says_that_it_is_for_one_process(
    process: Process, plugin: Plugin, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", ready_url)
    plugin(
        "single",
        """
        class Single(Provider):
            one_process = "its file has one owner; give each server a file"
        """,
    )
    code, line = refusal(process("serve", "--port", "0", "--workers", "2", "--plugins-dir", "plugins"))
    assert (code, line) == (2, f"{REFUSED} (providers.single): its file has one owner; give each server a file\n")


def test_what_is_wrong_at_start_is_told_once_as_with_one_process(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("ANTWORT_OBSERVABILITY__LOOP_WARNING", "600")  # other tests have the processors, too
    alone = refusal(process("serve", "--port", "0"))
    assert refusal(process("serve", "--port", "0", "--workers", "2")) == alone
    assert alone[0] == 2
    assert alone[1].count("\n") == 1


def test_a_worker_that_dies_before_it_is_ready_ends_the_server(
    process: Process, plugin: Plugin, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", ready_url)
    plugin(
        "second",
        """
        import os, pathlib, signal

        class Second(Provider):
            async def lifespan(self):
                mark = pathlib.Path("mark")
                if mark.exists():
                    os.kill(os.getpid(), signal.SIGKILL)
                mark.touch()
                yield
        """,
    )
    arguments = ("serve", "--port", "0", "--workers", "2", "--plugins-dir", "plugins", "--log-level", "warning")
    code, lines = refusal(process(*arguments))
    assert code == 1
    (line,) = lines.splitlines()
    assert json.loads(line)["message"] == "the server ends: worker 1 was killed by SIGKILL before it was ready"


def test_workers_that_die_again_and_again_are_given_up_when_none_is_left(
    two_workers: TwoWorkers, plugin: Plugin
) -> None:
    plugin(
        "fragile",
        """
        import os, pathlib, signal

        class Fragile(Provider):
            async def lifespan(self):
                if pathlib.Path("broken").exists():
                    os.kill(os.getpid(), signal.SIGKILL)
                yield
        """,
    )
    server, url = two_workers("--plugins-dir", "plugins", "--log-level", "warning")
    Path("broken").touch()
    for worker in workers_of(server):
        os.kill(worker, signal.SIGKILL)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 1
    messages = [json.loads(line)["message"] for line in stderr.splitlines()]
    how = [message.partition("; ")[2] for message in messages if message.startswith("worker 0")]
    whens = ("at once", "in 0.5 s", "in 1 s", "in 2 s")
    assert how[:4] == [f"it is started again {when}" for when in whens]
    assert messages[-1].endswith("was killed by SIGKILL, as often before, and no other is left")
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_second_server_does_not_share_the_port(two_workers: TwoWorkers, process: Process) -> None:
    _, url = two_workers()
    port = url.rpartition(":")[2]
    code, line = refusal(process("serve", "--port", port, "--workers", "2"))
    assert (code, line.partition(";")[0]) == (2, f"antwort: cannot listen on 127.0.0.1:{port}: Address already in use")
