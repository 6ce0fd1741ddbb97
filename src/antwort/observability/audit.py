"""The audit log: who did what, one JSON object per line."""

import logging
import os
import time
from pathlib import Path
from typing import Self

from antwort.errors import ConfigError
from antwort.observability.logs import FIELDS, Fields, as_mapping, json_line, log_clean, log_context, merge, timestamp
from antwort.observability.redaction import Redactor
from antwort.types import JSONValue

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
