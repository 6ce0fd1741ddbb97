"""What code can do, and what its session keeps: through the served app."""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.code_interpreter.stage import OUTPUTS, TOOL, calls, executed, outputs, running_code, staged

from antwort import Antwort, Context
from antwort.config import Config
from antwort.errors import ConfigError
from antwort.providers.code_interpreter import CodeInterpreter
from antwort.providers.code_interpreter.tool import RENEWED
from antwort.sandbox import Sandbox, SandboxProcess, SandboxPython
from antwort.testing import ScriptedBackend, call, turn


def test_variables_stay_from_call_to_call_and_the_last_line_is_shown(tmp_path: Path) -> None:
    read = executed(tmp_path, "x = 20\nimport math", "x + math.floor(1.5)", "print('a')\n'b'", "y = 1", "None")
    assert read == ["[no output]", "21", "a\n'b'", "[no output]", "[no output]"]


def test_output_of_all_kinds_comes_in_its_order(tmp_path: Path) -> None:
    code = "import os, sys\nprint('one')\n_ = os.system('echo two; echo three >&2')\nprint('four', file=sys.stderr)"
    assert executed(tmp_path, code) == ["one\ntwo\nthree\nfour"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def f():\n    return 1 / 0\nf()", 'File "<call 1>", line 2, in f\n    return 1 / 0'),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("exit(3)", "SystemExit: 3"),
        ("input()", "EOFError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("print(chr(0xd800))", "\\ud800"),
    ],
)
def test_what_goes_wrong_is_a_traceback_and_the_session_goes_on(tmp_path: Path, code: str, told: str) -> None:
    failed, after = executed(tmp_path, code, "1 + 1")
    assert told in failed
    assert "driver" not in failed
    assert after == "2"


def test_code_that_takes_too_long_is_interrupted_and_keeps_its_session(tmp_path: Path) -> None:
    stopped, after = executed(tmp_path, "x = 5\nwhile True: pass", "x", max_time="1s")
    assert "KeyboardInterrupt" in stopped
    assert stopped.endswith("[Stopped: it took longer than 1 seconds.]")
    assert after == "5"


def test_code_that_does_not_let_itself_be_interrupted_is_ended(tmp_path: Path) -> None:
    stubborn = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass"
    stopped, after = executed(tmp_path, stubborn, "1 + 1", max_time="1s")
    assert "[The session has ended: it took longer than 1 seconds and did not stop." in stopped
    assert after == f"{RENEWED}\n2"


def test_endless_output_is_stopped(tmp_path: Path) -> None:
    stopped, after = executed(tmp_path, "x = 5\nwhile True: print('abcdefghi')", "x", max_output=50_000)
    assert stopped.endswith("[Stopped: it printed more than 50,000 bytes; write long output to a file.]")
    assert after == "5"


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout = sys.stderr = None",
        "import io, sys; sys.stdout = sys.stderr = io.StringIO()",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import os; os.close(1); os.close(2)",
        "import os; os.dup2(os.open('file', os.O_WRONLY | os.O_CREAT), 1)",
    ],
)
def test_a_call_that_loses_its_output_does_not_lose_that_of_the_next(tmp_path: Path, code: str) -> None:
    _, after, failed = executed(tmp_path, f"x = 41\n{code}", "print(x + 1)", "1 / 0")
    assert after == "42"
    assert "ZeroDivisionError" in failed


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os._exit(3)", "the interpreter has ended"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the interpreter has ended, by the signal SIGSEGV"),
        ("b = b'x' * (600 << 20)", "it used more than 104,857,600 bytes of memory"),
    ],
    ids=["exit", "crash", "memory"],
)
def test_a_session_that_dies_is_begun_anew_and_the_model_is_told(tmp_path: Path, code: str, why: str) -> None:
    steps = ("open('kept.txt', 'w').write('kept')\nx = 1", code, "open('kept.txt').read()", "x")
    _, died, after, gone = executed(tmp_path, *steps, max_memory=100 << 20)
    assert f"[The session has ended: {why}." in died
    assert after == f"{RENEWED}\n'kept'"
    assert "NameError" in gone


def test_quick_code_that_writes_too_much_finds_the_container_full(tmp_path: Path) -> None:
    code = "for i in range(4): open(f'big{i}', 'wb').write(b'x' * 400_000)"
    ended, after = executed(tmp_path, code, "import os\nsorted(os.listdir())", max_bytes=1_000_000)
    assert "OSError: [Errno 28] No space left on device" in ended
    assert "[No room: a container holds at most 1,000,000 bytes and 5,000 files; delete some.]" in ended
    assert after == "['big0', 'big1', 'big2']"


def test_a_child_that_code_forks_takes_no_calls(tmp_path: Path) -> None:
    forks = "import os\nchild = os.fork()\nprint('both', flush=True)\nif child: _ = os.wait()"
    both, *after = executed(tmp_path, forks, *(f"os.getpid()  # {number}" for number in range(5)))
    assert both == "both\nboth"
    assert len(set(after)) == 1


def test_what_is_left_running_stands_still_between_calls(tmp_path: Path) -> None:
    begin = (
        "import subprocess, time\n"
        "p = subprocess.Popen(['sh', '-c', 'while :; do date +%s%N >> ticks; done'])\n"
        "while not __import__('os').path.exists('ticks'): time.sleep(0.01)"
    )
    steps = [*running_code(begin), *running_code("p.kill(); p.wait()")]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        conversation = client.conversations.create().id
        create: Any = {"model": "m", "input": "Go.", "tools": [TOOL], "conversation": conversation}
        container = calls(client.responses.create(**create))[0].container_id

        def size() -> int:
            (file,) = client.containers.files.list(container).data
            return file.bytes

        before = size()
        for _ in range(20):
            client.containers.retrieve(container)
        assert size() == before
        client.responses.create(**create)
        assert outputs(stage)[-1].startswith("-9")


def test_a_conversation_has_a_session_and_another_one_another(tmp_path: Path) -> None:
    steps = [*running_code("x = 1"), *running_code("x"), *running_code("x")]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        first = client.responses.create(model="m", input="Go.", tools=[TOOL])
        second = client.responses.create(model="m", input="Go on.", tools=[TOOL], previous_response_id=first.id)
        assert outputs(stage)[-1] == "1"
        assert calls(second)[0].container_id == calls(first)[0].container_id
        other = client.responses.create(model="m", input="Go.", tools=[TOOL])
        assert "NameError" in outputs(stage)[-1]
        assert calls(other)[0].container_id != calls(first)[0].container_id


def _app(tmp_path: Path, model: ScriptedBackend, **settings: Any) -> Antwort:
    provider = CodeInterpreter.from_settings(settings)
    return Antwort(Config(data_dir=tmp_path / "data", providers={}), backend=model, providers=[provider])


async def _execute(app: Antwort, conversation: str, code: str, tenant: str = "t") -> str:
    ctx = Context(tenant, conversation_id=conversation)
    return (await app.registry.execute("code_interpreter", {"code": code}, ctx)).output


def _provider(app: Antwort) -> CodeInterpreter:
    handler: Any = app.registry.get("code_interpreter").handler
    found = handler.__self__
    assert isinstance(found, CodeInterpreter)
    return found


def _places(app: Antwort) -> list[Any]:
    """Return the places of sessions that are at work or kept."""
    return list(_provider(app).sessions._places.values())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def test_a_tenant_has_a_bounded_number_of_sessions_and_the_idle_ones_go_first(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model, max_sessions=2) as app:
            for name in ("a", "b", "c"):
                assert await _execute(app, name, f"x = '{name}'") == "[no output]"
            assert await _execute(app, "d", "1", tenant="other") == "1"
            assert await _execute(app, "c", "x") == "'c'"
            assert await _execute(app, "b", "x") == "'b'"
            assert (await _execute(app, "a", "1")).startswith(RENEWED)


async def test_a_tenant_whose_sessions_are_all_at_work_is_told(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model, max_sessions=1, max_wait=0.01) as app:
            first = asyncio.create_task(_execute(app, "a", "import time; time.sleep(600)"))
            await _until(lambda: bool(_places(app)))
            told = await app.registry.execute("code_interpreter", {"code": "1"}, Context("t", conversation_id="b"))
            assert "1 sessions are at work" in told.output
            assert told.item == {"container_id": _provider(app).containers.id_of_conversation("t", "b")}
            first.cancel()
            await asyncio.wait([first])


async def test_calls_wait_for_a_session_when_all_are_at_work_and_hold_up_nobody_else(tmp_path: Path) -> None:
    busy = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model, max_sessions=1, concurrency=2) as app:
            first = asyncio.create_task(_execute(app, "a", busy))
            await _until(lambda: any(place.session is not None for place in _places(app)))
            waiting = [asyncio.create_task(_execute(app, name, f"'{name}'")) for name in "bcd"]
            await _until(lambda: len(_places(app)) == 4)
            assert await _execute(app, "e", "1", tenant="other") == "1"
            assert not any(one.done() for one in waiting)
            containers = _provider(app).containers
            with containers.held(containers.find("t", containers.id_of_conversation("t", "a")).folder) as place:
                (place / "go").touch()
            assert await asyncio.gather(*waiting) == ["'b'", "'c'", "'d'"]
            await first


async def test_a_container_that_goes_after_the_request_has_come_is_told_to_the_model(tmp_path: Path) -> None:
    gone = "cntr_" + 48 * "0"
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model) as app:
            ctx = Context("t", conversation_id="a", options={"container": gone})
            named = await app.registry.execute("code_interpreter", {"code": "1"}, ctx)
            assert (named.status, named.output) == ("error", f"There is no container with the id '{gone}'.")
            assert named.item == {"container_id": gone}
            ctx = ctx.with_(options={"container": {"type": "auto", "container_id": gone}})
            assert (await app.registry.execute("code_interpreter", {"code": "1"}, ctx)).output == "1"
            ctx = ctx.with_(options={"container": {"type": "auto", "container_id": ["what clients send"]}})
            assert (await app.registry.execute("code_interpreter", {"code": "1"}, ctx)).output == "1"


async def test_idle_sessions_are_closed(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model, idle="1h") as app:
            sessions = _provider(app).sessions
            assert await _execute(app, "a", "x = 1") == "[no output]"
            assert await sessions.sweep() == 0
            sessions._idle = -1.0
            assert await sessions.sweep() == 1
            assert sessions.count == 0
            assert (await _execute(app, "a", "1")).startswith(RENEWED)


async def test_the_metric_of_sessions_counts_those_that_there_are_whoever_has_ended_the_others(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model, idle="1h") as app:
            for name in ("a", "b", "c"):
                assert await _execute(app, name, "1") == "1"
            assert _counted(app) == 3
            containers, sessions = _provider(app).containers, _provider(app).sessions
            await sessions.close(containers.find("t", containers.id_of_conversation("t", "a")))
            assert _counted(app) == 2, "as when its container is deleted"
            sessions._idle = -1.0
            await sessions.sweep()
            assert _counted(app) == 0


def _counted(app: Antwort) -> float:
    name = "antwort_code_interpreter_sessions "
    [line] = [line for line in app.metrics.render(None)[0].decode().splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


async def test_a_call_that_is_left_ends_its_session(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model) as app:
            assert await _execute(app, "a", "x = 1") == "[no output]"
            left = asyncio.create_task(_execute(app, "a", "import time; time.sleep(600)"))
            await _until(lambda: any(place.waiting for place in _places(app)))
            left.cancel()
            await asyncio.wait([left])
            await _until(lambda: not _places(app))
            assert await _execute(app, "a", "1") == f"{RENEWED}\n1"


async def test_an_interpreter_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with ScriptedBackend([]) as model:
        for python in ("no-such-python", "/no/such/python", "/bin/false"):
            with pytest.raises(ConfigError, match=r"[^.]\. Install Python there, or set `python`"):
                async with _app(tmp_path, model, python=python):
                    pass


PLOTS = """
def get_fignums(): return [1, 2]
def close(which): pass
class figure:
    def __init__(self, number): self.number = number
    def savefig(self, name, **options): open(name, "w").write(f"figure {self.number}")
"""


@pytest.fixture
def environment() -> Iterator[Path]:
    """A virtual environment outside of the system, with a package that makes plots."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="antwort-python-") as folder:
        Path(folder).chmod(0o755)
        place = Path(folder, "environment")
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place], check=True)
        (packages,) = place.glob("lib/python3*/site-packages")
        (packages / "matplotlib").mkdir()
        (packages / "matplotlib" / "__init__.py").touch()
        (packages / "matplotlib" / "pyplot.py").write_text(PLOTS)
        yield place


def test_the_operator_s_interpreter_has_its_packages_and_open_figures_become_pictures(
    tmp_path: Path, environment: Path
) -> None:
    python = str(environment / "bin" / "python")
    with staged(tmp_path, running_code("import matplotlib.pyplot as plt"), python=python) as stage:
        client = stage.client()
        answer = client.responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS)
        (item,) = calls(answer)
        files = client.containers.files.list(item.container_id, order="asc").data
        assert [file.path for file in files] == ["/mnt/data/figure-1-1.png", "/mnt/data/figure-1-2.png"]
        assert item.outputs is not None
        assert [output.type for output in item.outputs] == ["image", "image"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\nsleep 600", "said nothing for 0.5 seconds and was ended"),
        ("#!/bin/sh\necho hello", "is no Python"),
        ("#!/nothing/like/it", "cannot be started: No such file or directory"),
    ],
)
async def test_an_interpreter_that_says_nothing_or_is_none_is_named(tmp_path: Path, script: str, why: str) -> None:
    python = tmp_path / "python"
    python.write_text(script)
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=f"'{python}' {why}."):
        await SandboxPython.find(Sandbox(), str(python), seconds=0.5)


async def test_without_a_sandbox_the_provider_refuses_to_start(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with ScriptedBackend([]) as model, pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        async with _app(tmp_path, model):
            pass


def test_parallel_calls_of_one_turn_take_turns(tmp_path: Path) -> None:
    both = turn(calls=[call("code_interpreter", code="a = 1\na"), call("code_interpreter", code="b = 2\nb")])
    steps = [both, *running_code("a + b")]
    with staged(tmp_path, steps) as stage:
        stage.client().responses.create(model="m", input="Go.", tools=[TOOL])
        assert outputs(stage) == ["1", "2", "3"]


def test_models_see_the_function_without_being_asked_for_the_tool(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("6 * 7")) as stage:
        answer = stage.client().responses.create(model="m", input="Go.")
        assert outputs(stage) == ["42"]
        assert [item.type for item in answer.output] == ["code_interpreter_call", "message"]


async def test_what_a_call_uses_is_looked_at_when_it_ends_and_not_when_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = SandboxProcess._excess

    def counted(process: SandboxProcess) -> Any:
        nonlocal looks
        looks += 1
        return look(process)

    with ScriptedBackend([]) as model:
        async with _app(tmp_path, model) as app:
            monkeypatch.setattr("antwort.sandbox.process._SOON", 600.0)
            assert await _execute(app, "a", "x = 1") == "[no output]"
            monkeypatch.setattr(SandboxProcess, "_excess", counted)
            for _ in range(5):
                assert await _execute(app, "a", "x") == "1"
    assert looks == 5
