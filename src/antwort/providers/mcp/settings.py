"""What an operator can set."""

from typing import Literal

from pydantic import PositiveInt

from antwort.provider import Duration, Field, Settings


class McpSettings(Settings):
    """How servers are asked that requests name, and within which limits."""

    require_approval: Literal["always", "never"] = Field(
        default="always",
        description="Whether calls wait for an approval where a request does not say so: `always`, as at OpenAI, or "
        "`never`.",
    )
    timeout: Duration = Field(default=60.0, description="Time that a call may take.")
    list_timeout: Duration = Field(default=15.0, description="Time that a server may take to say which tools it has.")
    max_bytes: PositiveInt = Field(default=32 * 1024**2, description="Bytes of one answer of a server.")
    max_tools: PositiveInt = Field(default=1000, description="Tools of one server; none of one that has more is used.")
