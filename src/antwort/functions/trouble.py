"""What went wrong, in words that may leave the process."""

from antwort.observability import Redactor

__all__ = ["described"]

_SHOWN = 500
_READ = 5000
"""Characters of a text that are looked at. It may be of any length, and whoever waits must not wait for it."""
_SHOWN_CAUSES = 3
_DEEPEST = 5
"""How many groups within each other are opened."""


def described(error: BaseException, redactor: Redactor) -> str:
    """Name an exception nobody expected, in one line and without secrets; of a group, what is in it."""
    return _described(error, redactor, 0)


def _described(error: BaseException, redactor: Redactor, depth: int) -> str:
    if isinstance(error, BaseExceptionGroup) and depth < _DEEPEST:
        causes = [_described(cause, redactor, depth + 1) for cause in error.exceptions[:_SHOWN_CAUSES]]
        return "; ".join(causes)[:_SHOWN]
    text = _line(error)
    kind = type(error).__name__
    return redactor.text(f"{kind}: {text}" if text else kind)[:_SHOWN]


def _line(error: BaseException) -> str:
    """Return the text of an exception in one line; of a long one, the beginning."""
    try:
        text = str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - a stranger's __str__ may fail as well, or want to end the process
        return ""
    words = text[:_READ].split()
    if len(text) > _READ and words and len(words[-1]) < _READ:
        words.pop()  # it may be half a secret, which is not known for one
    return " ".join(words)
