"""Settings of the provider `sub_agents`, and the agent that comes with it."""

from antwort.provider import AgentConfig, Field, Settings


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


_INSTRUCTIONS = """\
Your input may be far larger than what you can read at once. Long input and long results are kept as variables: you \
see the key, reference, size, type and head.
- A program is your first means (run_program). Look into the variable (`v = await variable(key)`, then read slices or \
grep), split what matters into parts of some 5,000 characters, ask call_llm about each, all in one gather, put \
together what comes back, and end with `await final_answer(text)`. Print little.
- For a look at one place: store_get by lines, grep, offset or json_path.
- Parts that need functions are for sub-agents: spawn_agent, many at once. Each knows only its prompt and context: say \
what to do and what to return.
- Hand values on as {"$ref": id} in any argument, instead of repeating them.
- Answer as soon as you know enough, with final_answer; a sub-agent with return_result."""

RECURSIVE = AgentConfig(
    description="Works on input of any size, by programs, variables and sub-agents.",
    instructions=_INSTRUCTIONS,
    functions=[
        "run_program",
        "final_answer",
        "store_get",
        "call_llm",
        "spawn_agent",
    ],
    max_input=2000,
    max_window=8000,
)
