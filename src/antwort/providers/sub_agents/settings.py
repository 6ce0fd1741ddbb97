"""Settings of the provider `sub_agents`."""

from antwort.provider import Field, Settings


class SubAgentsSettings(Settings):
    """Which model is asked, and how much of what agents give each other stands in their windows."""

    call_model: str | None = Field(
        default=None,
        min_length=1,
        description="The model that `call_llm` and `call_llm_many` ask, such as a small one; the agent's if none.",
    )

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
    max_schema: int = Field(
        default=1500, ge=100, le=100_000, description="Characters of a schema that the result of an agent has to fit."
    )
