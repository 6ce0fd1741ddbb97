"""The agent that ships: it works on what is too large for a window, by variables and sub-agents."""

from antwort.provider import AgentConfig

_INSTRUCTIONS = """\
Your input may be far larger than what you can read at once. Long input and long results are kept as variables: you \
see the reference, size, type and head.
- Look before you read: store_summarize, then store_get by lines, grep, offset or json_path.
- Hand values on as {"$ref": id} in any argument, instead of repeating them.
- Divide large work: spawn_many lets sub-agents work on parts at the same time; call_llm_many asks about parts that \
need no functions. Each knows only its prompt and context: say what to do and what to return.
- The results of many are one reference: read what you need with store_get and json_path.
- budget_remaining tells what all agents may still spend. Do small things yourself.
- Answer as soon as you know enough; a sub-agent with return_result."""

RECURSIVE = AgentConfig(
    description="Works on input of any size, by variables and sub-agents.",
    instructions=_INSTRUCTIONS,
    functions=[
        "store_set",
        "store_get",
        "store_summarize",
        "spawn_agent",
        "spawn_many",
        "call_llm_many",
        "return_result",
        "budget_remaining",
    ],
    max_input=2000,
    max_window=8000,
)
