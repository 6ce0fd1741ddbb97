"""Settings of the provider `sub_agents`."""

from antwort.provider import Field, Settings


class SubAgentsSettings(Settings):
    """How much of what agents give each other stands in their windows."""

    max_inline: int = Field(
        default=2000,
        ge=200,
        le=100_000,
        description="Characters of an answer, or of a text given to an agent, above which a variable is made of it.",
    )
    max_results: int = Field(
        default=1200,
        ge=200,
        le=100_000,
        description="Characters that the answers of many agents may have together; above, they become one variable.",
    )
    max_read: int = Field(
        default=100_000,
        ge=1000,
        description="Bytes of a referenced value that a model is given to read at once, where it has no functions.",
    )
