"""What went wrong, in words that may leave the process."""

from antwort.observability import Redactor

__all__ = ["described"]

_SHOWN = 500
_SHOWN_CAUSES = 3


def described(error: BaseException, redactor: Redactor) -> str:
    """Name an exception nobody expected, in one line and without secrets; of a group, what is in it."""
    if isinstance(error, BaseExceptionGroup):
        causes = [described(cause, redactor) for cause in error.exceptions[:_SHOWN_CAUSES]]
        return "; ".join(causes)[:_SHOWN]
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a stranger's __str__ may fail as well
        text = ""
    kind = type(error).__name__
    return redactor.text(f"{kind}: {text}" if text else kind)[:_SHOWN]
