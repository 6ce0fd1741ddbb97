"""What one call through the registry costs over calling the function directly."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import Field

from antwort import Context, FunctionRegistry
from antwort.observability import AuditLog
from benchmarks.measure import Row, cpu_per_call

BAR = 60.0


async def forecast(ctx: Context, city: str, days: Annotated[int, Field(ge=1, le=7)] = 1) -> str:
    """Forecast the weather for a city."""
    return f"{city} {days} {ctx.tenant}"


def blocking_forecast(city: str, days: Annotated[int, Field(ge=1, le=7)] = 1) -> str:
    """Forecast the weather for a city."""
    return f"{city} {days}"


def dispatch_rows(*, full: bool) -> list[Row]:
    """Measure a dispatch with validation, metrics, time-out and guard; with an audit file; and on a worker thread."""
    ctx = Context("tenant")
    arguments = '{"city": "Berlin", "days": 3}'
    registry = FunctionRegistry()
    registry.register(forecast)
    registry.register(blocking_forecast)
    with TemporaryDirectory() as folder:
        audit = AuditLog(Path(folder) / "audit.jsonl")
        audited = FunctionRegistry(audit=audit)
        audited.register(forecast)
        cost = cpu_per_call(
            {
                "bare": lambda: forecast(ctx, "Berlin", 3),
                "registry": lambda: registry.execute("forecast", arguments, ctx),
                "audited": lambda: audited.execute("forecast", arguments, ctx),
                "thread": lambda: registry.execute("blocking_forecast", arguments, ctx),
            },
            rounds=15 if full else 5,
            repeat=5000 if full else 2000,
        )
        audit.close()
    return [
        Row("registry dispatch over the bare call", cost["registry"] - cost["bare"], "µs", BAR),
        Row("the same, with an audit file", cost["audited"] - cost["bare"], "µs"),
        Row("the same, a plain def on a worker thread", cost["thread"] - cost["bare"], "µs"),
    ]
