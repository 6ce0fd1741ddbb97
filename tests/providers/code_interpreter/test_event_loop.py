"""Code that awaits something at its top: one event loop for a session."""

from pathlib import Path

from tests.providers.code_interpreter.stage import executed


def test_code_can_await_at_its_top_in_all_ways(tmp_path: Path) -> None:
    begin = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1"
    calls = {
        begin: "[no output]",
        "await f(1)": "2",
        "a, b = await asyncio.gather(f(1), f(2))\nprint(a, b)": "2 3",
        "async def g():\n    for n in range(3):\n        yield n\nasync for n in g():\n    print(n)": "0\n1\n2",
        "[n async for n in g()]": "[0, 1, 2]",
        "lock = asyncio.Lock()\nasync with lock:\n    print(lock.locked())\nlock.locked()": "True\nFalse",
        "if True:\n    x = await f(41)\nx": "42",
        "asyncio.run(f(1))": "2",
        "await f(2)": "3",
        "asyncio.get_event_loop().run_until_complete(f(3))": "4",
    }
    assert dict(zip(calls, executed(tmp_path, *calls), strict=True)) == calls


def test_there_is_one_loop_for_all_calls_and_tasks_that_are_left_go_on_in_it(tmp_path: Path) -> None:
    first, other, second, third = executed(
        tmp_path,
        "import asyncio\nloop = asyncio.get_running_loop()\ndone = asyncio.Event()\n"
        "async def work():\n    print('begun')\n    await done.wait()\n    print('ended')\n    return 7\n"
        "task = asyncio.create_task(work())\nawait asyncio.sleep(0)",
        "task.done()",
        "done.set()\nawait task",
        "loop is asyncio.get_running_loop(), await asyncio.sleep(0, 1)",
    )
    assert first == "begun"
    assert other == "False"
    assert second == "ended\n7"
    assert third == "(True, 1)"


def test_what_goes_wrong_is_a_traceback_of_the_code_alone(tmp_path: Path) -> None:
    code = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 1 / 0\nawait f()"
    failed, ended, after = executed(tmp_path, code, "await asyncio.sleep(0)\nexit(3)", "await asyncio.sleep(0, 2)")
    assert failed.startswith(
        'Traceback (most recent call last):\n  File "<call 1>", line 5, in <module>\n    await f()'
    )
    assert failed.endswith("ZeroDivisionError: division by zero")
    assert "base_events" not in failed
    assert "SystemExit: 3" in ended
    assert after == "2"


def test_code_that_waits_too_long_is_interrupted_where_it_waits(tmp_path: Path) -> None:
    begin = "import asyncio\nasync def others():\n    try:\n        await asyncio.sleep(600)\n"
    begin += "    finally:\n        print('cancelled')\nawait asyncio.sleep(0)"
    waits = "other = asyncio.create_task(others())\nawait asyncio.sleep(0)\nawait asyncio.sleep(600)"
    begun, stopped, busy, after = executed(
        tmp_path,
        begin,
        waits,
        "await asyncio.sleep(0)\nwhile True: pass",
        "other.cancelled(), await asyncio.sleep(0)",
        max_time="3s",
    )
    assert begun == "[no output]"
    assert 'File "<call 2>", line 3, in <module>\n    await asyncio.sleep(600)' in stopped
    assert "KeyboardInterrupt" in stopped
    assert "cancelled\n" in stopped
    assert stopped.endswith("[Stopped: it took longer than 3 seconds.]")
    assert "while True: pass" in busy
    assert after == "(True, None)"
