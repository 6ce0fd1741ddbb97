"""Structured logs on the standard library: JSON lines for machines, one-liners for people, both without secrets."""

import functools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO, TypeAlias

import msgspec
from typing_extensions import override

from antwort.errors import ConfigError, did_you_mean
from antwort.observability.redaction import Redactor, trace_of
from antwort.types import JSONValue

LogFormat: TypeAlias = Literal["auto", "console", "json"]

Fields: TypeAlias = dict[str, JSONValue] | msgspec.Struct
"""The fields of an event. Those of a struct are known beforehand: none has the name of what every line has."""

LEVELS = ("debug", "info", "warning", "error", "critical")

FIELDS = "antwort_fields"
"""The key of `extra` whose mapping is spread over the line, for names that `logging` keeps for itself."""
CLEAN_FIELDS = "antwort_clean_fields"
"""The same for what is JSON already, and has no secrets."""

READABLE = "antwort_readable"
"""The key of `extra` whose text people read in the place of the fields."""

_LOGGERS = ("antwort", "uvicorn.error", "asyncio")

# uvicorn adds the message a second time, coloured.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
    FIELDS,
    CLEAN_FIELDS,
    READABLE,
}

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"
} | {ord("\n"): "\\n", ord("\r"): "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}  # fmt: skip
_BARE = re.compile(r"[^\s\"'=\\]+")

_MILLISECONDS = tuple(f".{number:03d}Z" for number in range(1000))
"""How a moment ends; to format a number takes longer than all the rest of it."""

_context: ContextVar[dict[str, str]] = ContextVar("antwort_log_context")
_NOTHING: Mapping[str, str] = {}


# --- context ---------------------------------------------------------------------------------------------------------


class _Binding:
    """Has names as the log context between enter and exit."""

    __slots__ = ("_names", "_token")

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        self._token = _context.set(self._names)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _context.reset(self._token)


def bind_log_context(*, request_id: str | None = None, tenant: str | None = None) -> _Binding:
    """Put the request id and the tenant on every line logged inside the `with` block; None keeps what is bound."""
    names = {**_context.get(_NOTHING)}
    if request_id is not None:
        names["request_id"] = request_id
    if tenant is not None:
        names["tenant"] = tenant
    return _Binding(names)


def bind_tenant(tenant: str) -> None:
    """Put a tenant, who is known only now, on every line of the innermost `bind_log_context` block."""
    bound = _context.get(None)
    if bound is not None:
        bound["tenant"] = tenant


def log_context() -> Mapping[str, str]:
    """Return what is bound: `request_id` and `tenant`, where known."""
    return _context.get(_NOTHING)


# --- formats ---------------------------------------------------------------------------------------------------------


class _Formatter(logging.Formatter):
    """The parts of a line, each with its secrets masked."""

    def __init__(self, redactor: Redactor | None = None, worker: int | None = None) -> None:
        super().__init__()
        self.redactor = redactor or Redactor()
        self._worker = worker
        self._process: Mapping[str, JSONValue] = {} if worker is None else {"worker": worker}

    def message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 — a wrong placeholder must not cost us the line
            text = json.dumps(self.redactor.value([record.msg, record.args]))
        return self.redactor.excerpt(text)

    def fields(self, record: logging.LogRecord) -> dict[str, JSONValue]:
        found: dict[str, object] = {**self._process, **log_context()}
        found |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        found |= getattr(record, FIELDS, {})
        clean: Mapping[str, JSONValue] = getattr(record, CLEAN_FIELDS, {})
        return self._beside(clean, found)

    def _beside(self, clean: Mapping[str, JSONValue], found: Mapping[str, object]) -> dict[str, JSONValue]:
        """Return clean fields behind others that were found, of which the secrets are masked."""
        return {name: self.redactor.field(name, value) for name, value in found.items() if name not in clean} | dict(
            clean
        )

    def trace(self, record: logging.LogRecord) -> str:
        parts = []
        if record.exc_info:
            error = record.exc_info[1]
            parts.append("NoneType: None" if error is None else trace_of(error, self.redactor))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return self.redactor.excerpt("\n".join(parts))


class JSONFormatter(_Formatter):
    """One JSON object per line: `ts`, `level`, `logger`, `message`, then the context, the extras and the exception."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, JSONValue] = {
            "ts": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.message(record),
        }
        if trace := self.trace(record):
            line["exception"] = trace
        return json.dumps(merge(line, self.fields(record)))

    def event(self, logger: str, event: str, fields: Fields) -> str:
        """Return the line of a record at INFO that has these clean fields, the context among them, without a record."""
        now = timestamp(time.time())
        if isinstance(fields, msgspec.Struct):  # in half the time of one dictionary with all of it
            return f'{{"ts":"{now}",{_event_parts(logger, event, self._worker)},{json_line(fields)[1:]}'
        line: dict[str, JSONValue] = {"ts": now, "level": "info", "logger": logger, "message": event}
        return json_line(merge(line, {**self._process, **fields}))


@functools.lru_cache(maxsize=64)  # events have few names
def _event_parts(logger: str, event: str, worker: int | None) -> str:
    """Return what all lines of an event have, as members of a JSON object."""
    parts: dict[str, JSONValue] = {"level": "info", "logger": logger, "message": event}
    if worker is not None:
        parts["worker"] = worker
    return json.dumps(parts, separators=(",", ":"))[1:-1]


class ConsoleFormatter(_Formatter):
    """A line to read: time, level, message, `key=value`.

    Nothing that was logged can pass for a line of its own: control characters are escaped, tracebacks indented.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        parts = [f"{time}.{int(record.msecs):03d} {record.levelname:<8}{self.message(record)}"]
        readable: str | None = getattr(record, READABLE, None)
        if readable is None:
            parts += [f"{name}={_formatted(value)}" for name, value in self.fields(record).items()]
        else:
            parts.append(self.redactor.excerpt(readable))
        lines = ["  ".join((parts[0], " ".join(parts[1:]))).rstrip(), *self.trace(record).splitlines()]
        text = "\n    ".join(line.translate(_CONTROLS) for line in lines)
        return text.encode("utf-8", "backslashreplace").decode()


def timestamp(seconds: float) -> str:
    """Return a moment as ISO 8601 in UTC with milliseconds."""
    whole, rest = divmod(round(seconds * 1_000_000), 1_000_000)
    return _second(whole) + _MILLISECONDS[rest // 1000]


@functools.lru_cache(maxsize=1)  # lines of the same second follow each other
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def merge(line: dict[str, JSONValue], fields: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    """Add fields to a line; one that has the name of a part of the line gets an underscore behind it."""
    if line.keys().isdisjoint(fields):
        line.update(fields)
        return line
    return line | {f"{name}_" if name in line else name: value for name, value in fields.items()}


def json_line(line: Fields) -> str:
    """Return a line as JSON in ASCII, which no terminal and no encoding can spoil."""
    try:
        data = msgspec.json.encode(line)  # a seventh of what `json` takes
    except (OverflowError, TypeError, ValueError):  # integers of more than 64 bits, subclasses, halves of characters
        return json.dumps(as_mapping(line))
    return data.decode() if data.isascii() else json.dumps(as_mapping(line))


def as_mapping(fields: Fields) -> dict[str, JSONValue]:
    """Return the fields of an event by name."""
    return msgspec.structs.asdict(fields) if isinstance(fields, msgspec.Struct) else fields


def _formatted(value: JSONValue) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


# --- set-up ----------------------------------------------------------------------------------------------------------


class _Handler(logging.StreamHandler[TextIO]):
    """Marks the handler as ours, so that a second set-up replaces it."""

    def write(self, line: str) -> None:
        """Write a line, as `emit` does that of a record."""
        with self.lock:  # type: ignore[union-attr] # every handler of a stream has one
            self.stream.write(line + self.terminator)
            self.stream.flush()


def log_clean(logger: logging.Logger, event: str, fields: Fields) -> None:
    """Log an event at INFO, of a logger below `antwort`, by a name and with fields that have no secrets and are JSON.

    What is bound by `bind_log_context` is among the fields. Where nobody but our own handler gets the event, as on
    nearly every server, its line is written without a record: that would cost several times as much.
    """
    handler = _only_handler(logger)
    if handler is not None and isinstance(handler.formatter, JSONFormatter):
        try:
            handler.write(handler.formatter.event(logger.name, event, fields))
        except (OSError, ValueError):
            pass  # `logging` has its way to tell of a stream that takes nothing
        else:
            return
    logger.info(event, extra={CLEAN_FIELDS: as_mapping(fields)})


def _only_handler(logger: logging.Logger) -> _Handler | None:
    """Return our handler, if nobody else has a say in what becomes of a logger's records."""
    parent = logger.parent
    if parent is None or logger.handlers or logger.filters or not logger.propagate or parent.propagate:
        return None
    handlers = parent.handlers
    return handlers[0] if len(handlers) == 1 and isinstance(handlers[0], _Handler) else None


def is_read_by_people(level: str, format: LogFormat) -> bool:  # noqa: A002 — the word operators use
    """Tell whether lines of the level `info` are shown, and somebody sits at the terminal that shows them."""
    return level.lower() in {"debug", "info"} and format != "json" and sys.stderr.isatty()


def configure_logging(
    level: str = "info",
    format: LogFormat = "auto",  # noqa: A002 — the word operators use
    stream: TextIO | None = None,
    *,
    redactor: Redactor | None = None,
    worker: int | None = None,
) -> None:
    """Send the logs of antwort, uvicorn and asyncio to a stream, standard error if none is given.

    So go warnings and errors that other libraries log, and Python's own warnings, which would be plain lines else.
    Each line has the number of the worker, if the process is one of several. `auto` is `console` on a terminal and
    `json` elsewhere. A second call replaces the first. This changes the process's logging, so it is for programs, not
    for libraries.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(
            f"unknown log level '{level}'{did_you_mean(level.lower(), LEVELS)} (one of: {', '.join(LEVELS)})"
        )
    if format not in {"auto", "console", "json"}:
        raise ConfigError(f"unknown log format '{format}' (one of: auto, console, json)")
    stream = stream or sys.stderr
    console = format == "console" or (format == "auto" and stream.isatty())
    handler = _Handler(stream)
    handler.setFormatter(ConsoleFormatter(redactor, worker) if console else JSONFormatter(redactor, worker))
    reset_logging()
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)


def reset_logging() -> None:
    """Undo `configure_logging`; do nothing if it was not called."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        for handler in [handler for handler in logger.handlers if isinstance(handler, _Handler)]:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
    others = logging.getLogger()
    for handler in [handler for handler in others.handlers if isinstance(handler, _Handler)]:
        others.removeHandler(handler)
        logging.captureWarnings(False)


# --- the audit log: who did what, one JSON object per line -----------------------------------------------------------


audit_logger = logging.getLogger("antwort.audit")
logger = logging.getLogger(__name__)


class AuditLog:
    """Appends events to a file that several processes may share, or logs them at INFO as `antwort.audit`.

    The file is created with mode 0600. Each event is one append of one line, so that lines never mix; a file that is
    rotated by copying and truncating stays in use.
    """

    def __init__(self, path: Path | None = None, *, redactor: Redactor | None = None) -> None:
        self.path = path
        self.redactor = redactor or Redactor()
        self._enabled = True
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(
                    f"cannot open the audit log {path}: {error.strerror}; "
                    "its folder must exist and be writable for the server"
                ) from error

    @classmethod
    def disabled(cls) -> Self:
        """Return a log that drops every event."""
        audit = cls()
        audit._enabled = False
        return audit

    def record(
        self,
        event: str,
        *,
        tenant: str | None = None,
        subject: str | None = None,
        request_id: str | None = None,
        **fields: object,
    ) -> None:
        """Write an event. Tenant and request id default to those bound for the logs; secrets are masked.

        Never raise: an event that cannot be written is an error in the logs, not a failed request.
        """
        if not self.enabled:
            return
        bound = log_context()
        details = {
            "tenant": tenant or bound.get("tenant"),
            "subject": subject,
            "request_id": request_id or bound.get("request_id"),
            **fields,
        }
        self.write(event, self.redactor.fields(details))

    @property
    def enabled(self) -> bool:
        """Tell whether anybody gets to read the events."""
        return self._enabled and (self.path is not None or audit_logger.isEnabledFor(logging.INFO))

    def write(self, event: str, fields: Fields) -> None:
        """Write an event with fields that are JSON and have no secrets, for whoever knows that `record` need not look.

        Never raise, as `record` does not.
        """
        if self.path is None:
            log_clean(audit_logger, event, fields)
        else:
            self._append(merge({"ts": timestamp(time.time()), "event": event}, as_mapping(fields)))

    def close(self) -> None:
        """Close the file. Events recorded afterwards are reported as errors."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, line: dict[str, JSONValue]) -> None:
        try:
            self._write(json_line(line).encode() + b"\n")
        except OSError as error:
            # The event goes with the error, so that it is not lost; a traceback would say nothing.
            logger.error(  # noqa: TRY400
                "audit event not written to %s: %s", self.path, error, extra={FIELDS: line}
            )

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise OSError("the log is closed")
        written = os.write(self._file, data)
        if written < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")
