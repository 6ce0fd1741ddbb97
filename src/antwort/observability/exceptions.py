"""Exceptions as text. A stranger's may be of any length and any number, and whoever writes them must not take long."""

import traceback
from dataclasses import dataclass, field

from antwort.observability.redaction import LONGEST_TEXT, Redactor

_WRITTEN = 10
"""Exceptions that are written of one: what it comes from, and what is in it."""
_MEMBERS = 5
"""Exceptions that are written of one group."""
_DEEPEST = 5
"""How many groups within each other are opened."""
_NOTES = 5
_LONGEST = 12_000
"""Characters of one exception that are written whole; of a longer text, the beginning."""

_CAUSED = "The above exception was the direct cause of the following exception:"
_MET = "During handling of the above exception, another exception occurred:"
_NO_TEXT = "<its text cannot be told>"


def text_of(error: BaseException) -> str | None:
    """Return what an exception says, for which it is asked once; None if it cannot tell."""
    try:
        return str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - a stranger's __str__ may fail as well, or want to end the process
        return None


def trace_of(error: BaseException, redactor: Redactor) -> str:
    """Return the traceback of an exception as Python writes it, with as much as nobody has to wait for.

    That is a number of the exceptions it comes from and of those in it, and the beginning of each text, in which the
    secrets are masked: in a text that is cut, nobody can tell one afterwards.
    """
    return "\n".join(_Trace(redactor).lines(error))


@dataclass(slots=True)
class _Trace:
    redactor: Redactor
    seen: set[int] = field(default_factory=set)

    def lines(self, error: BaseException, depth: int = 0) -> list[str]:
        """Return the lines of an exception behind those of what it comes from."""
        blocks: list[list[str]] = []
        one: BaseException | None = error
        while one is not None:
            if len(self.seen) == _WRITTEN:
                blocks[-1][:0] = ["[… what it comes from is left out …]", ""]
                break
            self.seen.add(id(one))
            block = self._own_lines(one, depth)
            cause, link = one.__cause__, _CAUSED
            if cause is None and not one.__suppress_context__:
                cause, link = one.__context__, _MET
            one = None if cause is None or id(cause) in self.seen else cause
            if one is not None and len(self.seen) < _WRITTEN:
                block[:0] = ["", link, ""]
            blocks.append(block)
        return [line for block in reversed(blocks) for line in block]

    def _own_lines(self, error: BaseException, depth: int) -> list[str]:
        lines = []
        if error.__traceback__ is not None:
            places = "".join(traceback.format_tb(error.__traceback__))
            lines += ["Traceback (most recent call last):", places.rstrip("\n")]
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in {"builtins", "__main__"}:
            name = f"{kind.__module__}.{name}"
        text = self._text(error)
        lines.append(f"{name}: {text}" if text else name)
        lines += self._notes(error)
        if isinstance(error, BaseExceptionGroup):
            lines += self._members(error, depth)
        return lines

    def _text(self, error: BaseException) -> str:
        # To ask for the text of one that was made with a long one may take as long as to write it.
        long = next((part for part in error.args if isinstance(part, str | bytes) and len(part) > LONGEST_TEXT), None)
        if isinstance(long, bytes):
            text: str | None = repr(long[:LONGEST_TEXT])
        else:
            text = text_of(error) if long is None else str.__str__(long)
        return _NO_TEXT if text is None else self.redactor.excerpt(text, _LONGEST)

    def _notes(self, error: BaseException) -> list[str]:
        notes = getattr(error, "__notes__", None)
        if not isinstance(notes, list):
            return []
        lines = [self.redactor.excerpt(note, _LONGEST) for note in notes[:_NOTES] if isinstance(note, str)]
        return [*lines, f"[… {len(notes) - _NOTES:,} more notes …]"] if len(notes) > _NOTES else lines

    def _members(self, group: BaseExceptionGroup[BaseException], depth: int) -> list[str]:
        lines = []
        written = 0
        for n, one in enumerate(group.exceptions[: _MEMBERS if depth < _DEEPEST else 0], start=1):
            if len(self.seen) < _WRITTEN and id(one) not in self.seen:
                lines += [
                    f"  +---- {n} ----",
                    *(f"  | {line}" for part in self.lines(one, depth + 1) for line in part.split("\n")),
                ]
                written += 1
        if left := len(group.exceptions) - written:
            lines.append(f"  +---- {left:,} of {len(group.exceptions):,} exceptions are left out ----")
        return lines
