"""What an operator can set."""

from pydantic import PositiveInt

from antwort.provider import Duration, Field, Settings


class VariablesSettings(Settings):
    """How much of a variable a model reads at once."""

    max_read: PositiveInt = Field(
        default=4000, ge=500, description="Bytes of a value that a call returns unless it asks for another number."
    )
    max_limit: PositiveInt = Field(default=20_000, ge=500, description="Most bytes that a call can ask for.")
    max_summarized: PositiveInt = Field(
        default=50_000, ge=1000, description="Bytes that a model reads for a summary; of a larger value, samples."
    )
    expires_in: Duration | None = Field(
        default=None, description="Time after which variables of a tenant expire that say nothing else."
    )
