"""The function registry on its own, without a server: register functions, show them to a model, execute its calls."""

import asyncio
import json
from typing import Annotated

from antwort import Context, FunctionError, FunctionRegistry
from antwort.provider import Field

registry = FunctionRegistry()


@registry.register
def convert(amount: float, rate: Annotated[float, Field(gt=0, description="Units per unit")]) -> float:
    """Convert an amount of money at a given rate."""
    return round(amount * rate, 2)


@registry.register(name="whoami", timeout=5)
async def who_am_i(ctx: Context) -> str:
    """Tell on whose behalf the call is made."""
    return f"You are {ctx.subject} of {ctx.tenant}."


def find_order(number: str) -> dict[str, str]:
    if not number.startswith("A"):
        raise FunctionError(f"There is no order {number}; numbers start with A.")
    return {"number": number, "state": "on its way"}


# The same as a mapping, for functions described elsewhere.
registry.register(
    {
        "name": "find_order",
        "description": "Look up an order by its number.",
        "parameters": {"number": {"type": "string", "description": "The order's number, such as A17"}},
        "handler": find_order,
    }
)


async def main() -> None:
    print("functions:", ", ".join(spec.name for spec in registry.list()))
    for shape in ("responses", "chat", "anthropic"):
        print(f"{shape}:", json.dumps(registry.to_tool_definitions(shape)[-1]))

    ada = Context("acme", subject="ada")
    async with registry:
        for name, arguments in (
            ("convert", '{"amount": 12.5, "rate": 1.1}'),  # as a model sends them
            ("whoami", {}),  # as Python has them
            ("find_order", {"number": "A17"}),
            ("find_order", {"number": "B2"}),  # what goes wrong is a result, too: the model can act on it
            ("convert", {"amount": 1, "rate": -1}),
            ("fnd_order", {}),
        ):
            result = await registry.execute(name, arguments, ada)
            print(f"{name}: [{result.status}] {result.output}")


if __name__ == "__main__":
    asyncio.run(main())
