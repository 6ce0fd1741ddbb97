"""The provider `basics`."""

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from antwort.provider import Field, FunctionError, Provider, function
from antwort.providers.basics.expression import ExpressionError, evaluate, format_number


class Basics(Provider):
    """Arithmetic and the time."""

    @function(idempotent=True, inline=True)
    def calculate(
        self, expression: Annotated[str, Field(description="An arithmetic expression, such as (3 + 4) * sqrt(2)")]
    ) -> str:
        """Evaluate an arithmetic expression exactly.

        Knows + - * / // % ** and parentheses, pi, e and tau, and functions such as sqrt, round, min, max, log, sin
        and factorial.
        """
        try:
            return format_number(evaluate(expression))
        except ExpressionError as error:
            raise FunctionError(str(error)) from None

    @function(idempotent=True, inline=True)
    def current_time(
        self,
        timezone: Annotated[str, Field(description="An IANA time zone, such as Europe/Berlin")] = "UTC",
    ) -> dict[str, str]:
        """Tell the current date and time in a time zone."""
        try:
            now = datetime.now(UTC if timezone.upper() == "UTC" else ZoneInfo(timezone))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise FunctionError(
                f"'{timezone}' is not a time zone known here; use an IANA name such as Europe/Berlin, or UTC."
            ) from None
        return {
            "time": now.isoformat(timespec="seconds"),
            "weekday": now.strftime("%A"),
            "timezone": timezone,
            "utc_offset": now.strftime("%z"),
        }
