import asyncio
import io
import itertools
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from antwort.errors import ConfigError
from antwort.observability import Redactor, bind_log_context, configure_logging, log_context, reset_logging
from antwort.observability.logs import ConsoleFormatter, JSONFormatter

log = logging.getLogger("antwort.test")


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    return stream


@pytest.fixture
def console() -> io.StringIO:
    stream = io.StringIO()
    configure_logging("info", "console", stream)
    return stream


def parsed(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_importing_configures_nothing() -> None:
    code = (
        "import logging, antwort.observability\n"
        "assert not logging.getLogger().handlers\n"
        "assert not logging.getLogger('antwort').handlers\n"
        "assert logging.getLogger('antwort').propagate"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_json_line_has_time_level_logger_message_and_extras(lines: io.StringIO) -> None:
    log.warning("took %d ms", 12, extra={"path": "/x", "count": 3})
    (line,) = parsed(lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
    assert line == {
        "level": "warning",
        "logger": "antwort.test",
        "message": "took 12 ms",
        "path": "/x",
        "count": 3,
    }


def test_each_line_of_a_worker_has_its_number() -> None:
    for kind, shown in (("json", '"worker": 3'), ("console", "worker=3")):
        stream = io.StringIO()
        configure_logging("info", kind, stream, worker=3)  # type: ignore[arg-type]
        log.info("hello")
        assert shown in stream.getvalue()


def test_a_console_line_can_be_read_at_a_glance(console: io.StringIO) -> None:
    with bind_log_context(request_id="req_1"):
        log.info("took %d ms", 12, extra={"path": "/x", "note": "two words", "empty": "", "size": 3, "none": None})
    log.error("bare")
    first, second = console.getvalue().splitlines()
    extras = 'path=/x note="two words" empty="" size=3 none=null'
    assert re.fullmatch(rf"\d\d:\d\d:\d\d\.\d{{3}} INFO    took 12 ms  request_id=req_1 {extras}", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} ERROR   bare", second)


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_auto_is_console_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    configure_logging("info", "auto", stream)
    log.info("hello")
    assert stream.getvalue().startswith("{") is is_json


def test_the_default_stream_is_standard_error_at_the_time_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    log.info("hello")
    captured = capsys.readouterr()
    assert json.loads(captured.err)["message"] == "hello"
    assert captured.out == ""


def test_request_id_and_tenant_are_on_every_line_while_bound(lines: io.StringIO) -> None:
    with bind_log_context(request_id="req_1"):
        log.info("a")
        with bind_log_context(tenant="acme"):
            log.info("b")
        log.info("c")
    log.info("d")
    found = [(line.get("request_id"), line.get("tenant")) for line in parsed(lines)]
    assert found == [("req_1", None), ("req_1", "acme"), ("req_1", None), (None, None)]
    assert log_context() == {}


async def test_concurrent_requests_do_not_see_each_other(lines: io.StringIO) -> None:
    barrier = asyncio.Barrier(3)

    async def request(name: str) -> None:
        with bind_log_context(request_id=name):
            await barrier.wait()
            log.info(name)
            await asyncio.to_thread(log.info, name)

    await asyncio.gather(*(request(f"req_{n}") for n in range(3)))
    assert len(parsed(lines)) == 6
    assert all(line["request_id"] == line["message"] for line in parsed(lines))


def test_an_exception_in_the_block_unbinds_too() -> None:
    with pytest.raises(ValueError, match="x"), bind_log_context(tenant="acme"):
        raise ValueError("x")
    assert log_context() == {}


def test_a_second_call_replaces_the_first_instead_of_doubling_lines(lines: io.StringIO) -> None:
    other = io.StringIO()
    configure_logging("info", "json", other)
    configure_logging("info", "json", other)
    log.info("once")
    assert lines.getvalue() == ""
    assert len(parsed(other)) == 1


def test_a_handler_of_the_root_does_not_double_lines_until_reset(lines: io.StringIO) -> None:
    roots = io.StringIO()
    handler = logging.StreamHandler(roots)
    logging.getLogger().addHandler(handler)
    try:
        log.warning("ours alone")
        assert roots.getvalue() == ""
        reset_logging()
        log.warning("the root's alone")
    finally:
        logging.getLogger().removeHandler(handler)
    assert roots.getvalue() == "the root's alone\n"
    assert [line["message"] for line in parsed(lines)] == ["ours alone"]


def test_the_level_is_respected(lines: io.StringIO) -> None:
    stream = io.StringIO()
    configure_logging("WARNING", "json", stream)
    log.info("no")
    log.warning("yes")
    assert [line["message"] for line in parsed(stream)] == ["yes"]


def test_uvicorn_and_asyncio_go_through_the_same_handler(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info(
        "running on %s", "x", extra={"color_message": "\x1b[1mrunning on %s\x1b[0m"}
    )
    logging.getLogger("asyncio").error("never retrieved")
    assert [(line["logger"], line["message"]) for line in parsed(lines)] == [
        ("uvicorn.error", "running on x"),
        ("asyncio", "never retrieved"),
    ]
    assert "color_message" not in lines.getvalue()


def test_a_traceback_is_one_field_of_a_json_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    (line,) = parsed(lines)
    assert str(line["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(line["exception"]).endswith("ValueError: broken")


def test_very_long_messages_and_exceptions_are_cut(lines: io.StringIO) -> None:
    try:
        raise ValueError("x" * 5_000_000)
    except ValueError as error:
        log.exception("failed: %s", error)
    (line,) = parsed(lines)
    assert str(line["message"]).startswith("failed: xxx")
    for name in ("message", "exception"):
        assert len(str(line[name])) < 100_000
        assert str(line[name]).endswith("characters is left out …]")


def test_a_logged_text_cannot_pass_for_a_line_of_its_own(console: io.StringIO) -> None:
    try:
        raise ValueError("x\n12:00:00.000 INFO    forged\u202812:00:00.000 forged")
    except ValueError:
        log.exception("a\r\n12:00:00.000 INFO    forged\x1b[2K", extra={"name_": "b\nforged", "key\nforged": 1})
    first, *rest = console.getvalue().splitlines()
    assert "a\\r\\n12:00:00.000 INFO    forged\\x1b[2K" in first
    assert 'name_="b\\nforged" key\\nforged=1' in first
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize("format_", ["json", "console"])
def test_secrets_are_masked_in_message_extras_and_exceptions(format_: str) -> None:
    stream = io.StringIO()
    configure_logging("info", "json" if format_ == "json" else "console", stream, redactor=Redactor(["correct-horse"]))
    try:
        raise ValueError("password=hunter2")
    except ValueError:
        log.exception(
            "Bearer %s and %s",
            "hunter2hunter2",
            "correct-horse",
            extra={"api_key": "hunter2", "nested": {"token": "hunter2"}, "url": "http://me:hunter2@host"},
        )
    text = stream.getvalue()
    assert "hunter2" not in text
    assert "correct-horse" not in text
    assert text.count("***") >= 6


class Strange:
    @override
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_line_is_written_whatever_is_logged(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    configure_logging("info", "json" if format_ == "json" else "console", stream)
    loop: dict[str, object] = {}
    loop["self"] = loop
    log.info(
        "odd \ud800", extra={"a": object(), "b": Strange(), "c": loop, "d": float("inf"), "e": {(1, 2): {3}}, "f": b"x"}
    )
    log.info("wrong placeholder %d", "password=hunter2")
    stream.flush()
    stream.seek(0)
    odd, wrong = stream.read().splitlines()
    assert "<object object at" in odd
    assert "Strange whose repr raised" in odd
    assert "wrong placeholder %d" in wrong
    assert "hunter2" not in wrong
    assert capsys.readouterr().err == ""
    if format_ == "json":
        assert json.loads(odd)["e"] == {"(1, 2)": [3]}


def test_an_extra_with_the_name_of_a_part_of_the_line_is_kept_beside_it(lines: io.StringIO) -> None:
    log.info("hello", extra={"level": 3, "logger": "x", "request_id": "req_2"})
    (line,) = parsed(lines)
    assert (line["level"], line["level_"]) == ("info", 3)
    assert (line["logger"], line["logger_"]) == ("antwort.test", "x")
    assert line["request_id"] == "req_2"


def test_an_unknown_level_or_format_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown log level 'warn'; did you mean 'warning'\? \(one of: debug, info"):
        configure_logging("warn", "json")
    with pytest.raises(ConfigError, match=r"unknown log format 'xml' \(one of: auto, console, json\)"):
        configure_logging("info", "xml")  # type: ignore[arg-type]


def test_a_very_long_exception_is_written_in_part() -> None:
    """To write all of it would hold up the event loop; so nobody asks for its whole text."""
    long = "word " * 1_000_000

    class AskedError(ValueError):
        @override
        def __str__(self) -> str:
            raise AssertionError("its text is asked for")

    def failed() -> None:
        try:
            raise KeyError(long)
        except KeyError as error:
            raise AskedError(long) from error

    with pytest.raises(AskedError) as caught:
        failed()
    error = caught.value
    record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), (AskedError, error, error.__traceback__))
    for formatter in (JSONFormatter(), ConsoleFormatter()):
        line = formatter.format(record)
        assert len(line) < 20_000
        assert "AskedError: word" in line
        assert "KeyError: word" in line
        assert "in failed" in line
        assert "is left out" in line


def test_what_other_libraries_warn_of_is_in_the_log_as_all_else(lines: io.StringIO) -> None:
    logging.getLogger("psycopg.pool").warning("error connecting in %r", "pool-1")
    logging.getLogger("psycopg").info("not this")
    logging.getLogger("asyncio").error("a task")
    warnings.showwarning("old", DeprecationWarning, "file.py", 3)
    reset_logging()
    assert [(line["level"], line["logger"]) for line in parsed(lines)] == [
        ("warning", "psycopg.pool"),
        ("error", "asyncio"),
        ("warning", "py.warnings"),
    ]
    assert parsed(lines)[0]["message"] == "error connecting in 'pool-1'"
    assert "DeprecationWarning: old" in str(parsed(lines)[2]["message"])


def test_a_database_that_is_away_writes_json_and_nothing_else(tmp_path: Path) -> None:
    program = """
import asyncio
from antwort.observability import configure_logging
from psycopg_pool import AsyncConnectionPool

async def main():
    pool = AsyncConnectionPool("host=127.0.0.1 port=1 connect_timeout=2", min_size=1, open=False, reconnect_timeout=0.1)
    await pool.open()
    try:
        await pool.wait(timeout=3)
    except Exception:
        pass
    await pool.close()

configure_logging("info", "json")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["logger"] for line in found} == {"psycopg.pool"}


class CountingError(Exception):
    """Counts how often exceptions of its kind are asked for their text."""

    asked = 0

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    @override
    def __str__(self) -> str:
        type(self).asked += 1
        return "x" * self._length


def _many_in_a_group(kind: type[CountingError]) -> BaseException:
    return ExceptionGroup("many", [kind(1000) for _ in range(20_000)])


def _groups_in_groups(kind: type[CountingError]) -> BaseException:
    error: Exception = kind(1000)
    for _ in range(300):
        error = ExceptionGroup("inner", [error, kind(1000), kind(1000)])
    return error


def _many_causes(kind: type[CountingError]) -> BaseException:
    first = error = kind(1000)
    for _ in range(20_000):
        error.__cause__ = kind(1000)
        error = error.__cause__
    return first


def _many_contexts_of_members(kind: type[CountingError]) -> BaseException:
    members = [kind(1000) for _ in range(1000)]
    for one, other in itertools.pairwise(members):
        one.__context__ = other
    return ExceptionGroup("many", members)


def _long_texts(kind: type[CountingError]) -> BaseException:
    return ExceptionGroup("long", [kind(5_000_000) for _ in range(3)])


def _many_notes(kind: type[CountingError]) -> BaseException:
    error = kind(10)
    for _ in range(1000):
        error.add_note("x" * 50_000)
    return error


@pytest.mark.parametrize(
    "made", [_many_in_a_group, _groups_in_groups, _many_causes, _many_contexts_of_members, _long_texts, _many_notes]
)
def test_of_many_exceptions_a_few_are_written_and_each_is_asked_once(
    made: Callable[[type[CountingError]], BaseException],
) -> None:
    class AskedError(CountingError):
        pass

    error = made(AskedError)
    record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), (type(error), error, None))
    line = json.loads(JSONFormatter().format(record))["exception"]
    assert 1 <= AskedError.asked <= 10
    assert len(line) < 30_000
    assert "AskedError: xxx" in line
    assert "left out …]" in line or "left out ----" in line


def test_a_long_text_is_cut_without_showing_half_a_secret() -> None:
    secret = "correct-horse-battery-staple"
    formatter = JSONFormatter(Redactor([secret]))
    for spaces in range(11_970, 12_001):
        error = ValueError("x" * spaces + secret + "x" * 50_000)
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), (ValueError, error, None))
        assert "correct" not in formatter.format(record)


def test_causes_contexts_groups_and_notes_are_written_as_python_does(lines: io.StringIO) -> None:
    def fail() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError("second") from error
        except ValueError:
            third = ExceptionGroup("third", [OSError(2, "gone"), TypeError("wrong")])
            third.add_note("a note")
            raise third  # noqa: B904 — its context is what is looked at

    try:
        fail()
    except ExceptionGroup:
        log.exception("failed")
    (line,) = parsed(lines)
    parts = [
        "KeyError: 'first'",
        "The above exception was the direct cause of the following exception:",
        "ValueError: second",
        "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):",
        "ExceptionGroup: third (2 sub-exceptions)",
        "a note",
        "  | FileNotFoundError: [Errno 2] gone",
        "  | TypeError: wrong",
    ]
    written = [part for part in str(line["exception"]).split("\n") if part in parts]
    assert written == ["Traceback (most recent call last):", *parts[:2], parts[4], *parts[2:]]


def test_an_exception_that_cannot_tell_its_text_is_named() -> None:
    class MuteError(Exception):
        @override
        def __str__(self) -> str:
            raise SystemExit

    error = MuteError()
    record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), (MuteError, error, None))
    assert json.loads(JSONFormatter().format(record))["exception"].endswith("MuteError: <its text cannot be told>")
