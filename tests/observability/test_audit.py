import io
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from antwort.errors import ConfigError
from antwort.observability import AuditLog, Redactor, bind_log_context, configure_logging


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def audit(path: Path) -> Iterator[AuditLog]:
    log = AuditLog(path)
    yield log
    log.close()


def events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_line_of_json(audit: AuditLog, path: Path) -> None:
    audit.record("key.created", tenant="acme", subject="me", request_id="req_1", key_id="k1", count=2, name="x")
    audit.record("key.revoked")
    first, second = events(path)
    assert str(first.pop("ts")).endswith("Z")
    assert first == {
        "event": "key.created",
        "tenant": "acme",
        "subject": "me",
        "request_id": "req_1",
        "key_id": "k1",
        "count": 2,
        "name": "x",
    }
    assert set(second) == {"ts", "event"}


def test_tenant_and_request_id_default_to_those_of_the_logs(audit: AuditLog, path: Path) -> None:
    with bind_log_context(request_id="req_1", tenant="acme"):
        audit.record("a")
        audit.record("b", tenant="other")
    assert [(event["request_id"], event["tenant"]) for event in events(path)] == [("req_1", "acme"), ("req_1", "other")]


def test_only_the_owner_can_read_the_file(audit: AuditLog, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_continued(path: Path) -> None:
    for event in ("first", "second"):
        log = AuditLog(path)
        log.record(event)
        log.close()
    assert [event["event"] for event in events(path)] == ["first", "second"]


def test_a_truncated_file_is_continued_at_its_start(audit: AuditLog, path: Path) -> None:
    audit.record("before")
    os.truncate(path, 0)
    audit.record("after")
    assert [event["event"] for event in events(path)] == ["after"]


def test_processes_share_a_file_without_mixing_lines(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from antwort.observability import AuditLog\n"
        "log = AuditLog(Path(sys.argv[1]))\n"
        "for n in range(200): log.record(sys.argv[2], text='x' * 5000, n=n)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b")]
    assert [process.wait() for process in processes] == [0, 0]
    found = events(path)
    for name in ("a", "b"):
        assert [event["n"] for event in found if event["event"] == name] == list(range(200))


def test_secrets_and_odd_values_are_masked_and_written(path: Path) -> None:
    log = AuditLog(path, redactor=Redactor(["correct-horse"]))
    log.record("x", api_key="hunter2", nested={"token": "hunter2"}, text="password=hunter2 correct-horse", odd=object())
    log.close()
    text = path.read_text()
    assert "hunter2" not in text
    assert "correct-horse" not in text
    assert "<object object at" in text


def test_a_newline_in_a_value_does_not_make_a_second_line(audit: AuditLog, path: Path) -> None:
    audit.record("x", subject='me"}\n{"event": "forged')
    assert len(events(path)) == 1


def test_a_field_with_the_name_of_a_part_of_the_line_is_kept_beside_it(audit: AuditLog, path: Path) -> None:
    audit.record("x", ts="mine")
    (event,) = events(path)
    assert event["ts_"] == "mine"
    assert event["ts"] != "mine"


def test_without_a_path_events_go_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    AuditLog().record("function.called", tenant="acme", name="calculate", api_key="hunter2")
    line = json.loads(stream.getvalue())
    line.pop("ts")
    assert line == {
        "level": "info",
        "logger": "antwort.audit",
        "message": "function.called",
        "tenant": "acme",
        "name": "calculate",
        "api_key": "***",
    }


@pytest.mark.parametrize("worker", [None, 3])
def test_an_event_is_logged_in_the_same_way_if_others_listen_too(worker: int | None) -> None:
    stream, others = io.StringIO(), io.StringIO()
    configure_logging("info", "json", stream, worker=worker)
    handler = logging.StreamHandler(others)
    logger = logging.getLogger("antwort.audit")
    try:
        with bind_log_context(request_id="req_1", tenant="acme"):
            AuditLog().record("key.used", subject="me", level="mine", token="sk-0123456789")
            logger.addHandler(handler)
            AuditLog().record("key.used", subject="me", level="mine", token="sk-0123456789")
    finally:
        logger.removeHandler(handler)
    alone, beside = (list(json.loads(line).items()) for line in stream.getvalue().splitlines())
    assert [name for name, _ in alone] == [name for name, _ in beside]
    assert alone[1:] == beside[1:]  # but for the time
    assert dict(alone)["token"] == "***"
    assert others.getvalue() == "key.used\n"


class _Used(msgspec.Struct):
    subject: str
    seconds: float


@pytest.mark.parametrize("worker", [None, 3])
@pytest.mark.parametrize("subject", ["me", "mé", "\ud800"])
def test_an_event_with_the_fields_of_a_struct_is_one_with_a_dictionary(worker: int | None, subject: str) -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream, worker=worker)
    logger = logging.getLogger("antwort.audit")
    try:
        AuditLog().write("key.used", {"subject": subject, "seconds": 0.5})
        AuditLog().write("key.used", _Used(subject, 0.5))
        logger.addFilter(lambda record: True)
        AuditLog().write("key.used", _Used(subject, 0.5))
    finally:
        logger.filters.clear()
    first, *others = (list(json.loads(line).items()) for line in stream.getvalue().splitlines())
    assert [other[1:] for other in others] == [first[1:], first[1:]]  # but for the time


def test_an_event_that_the_stream_does_not_take_is_no_failed_request(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    stream.close()
    AuditLog().record("key.used")
    assert "Logging error" in capsys.readouterr().err


def test_a_disabled_log_drops_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = AuditLog.disabled()
    log.record("x", tenant="acme")
    log.close()
    assert caplog.records == []


def test_a_failed_write_is_an_error_in_the_logs_and_not_in_the_request(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(Path("/dev/full"))
    log.record("key.created", tenant="acme")
    log.close()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "audit event not written to /dev/full: [Errno 28]" in record.message
    assert getattr(record, "antwort_fields")["event"] == "key.created"  # noqa: B009


def test_an_event_after_close_is_an_error_in_the_logs(
    audit: AuditLog, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit.close()
    audit.close()
    audit.record("late")
    assert "the log is closed" in caplog.text
    assert path.read_text() == ""


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot open the audit log .*missing/audit.jsonl: No such file"):
        AuditLog(tmp_path / "missing" / "audit.jsonl")
