"""Dice for agents."""

import secrets
from typing import Annotated

from antwort.provider import Counter, Field, Provider, Settings, function, route


class DiceSettings(Settings):
    sides: int = Field(default=6, ge=2, description="Sides of each die.")


class Dice(Provider[DiceSettings]):
    rolled = Counter("rolled_total", "Dice rolled.")

    @function
    async def roll_dice(self, count: Annotated[int, Field(ge=1, le=100)] = 1) -> list[int]:
        """Roll dice and return what each of them shows."""
        self.rolled.inc(count)
        return [1 + secrets.randbelow(self.settings.sides) for _ in range(count)]

    @route("GET", "/v1/dice/roll")
    async def roll(self) -> dict[str, int]:
        """Roll one die."""
        return {"shows": (await self.roll_dice())[0]}
