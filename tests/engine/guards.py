"""A provider whose checks mask one secret and refuse one word, wherever they come."""

from typing import Any

from typing_extensions import override

from antwort.functions import Allow, Ask, CheckedCall, CheckSpec, Mask, MaskedSpan, Provider, Refuse, Verdict, check
from antwort.types import JSON

SECRET = "hunter2 is it"
WORD = "forbidden"
REASON = "That is not said here."
STARS = "[secret]"


def verdict_of(text: str) -> Verdict:
    if WORD in text:
        return Refuse(REASON)
    spans, start = [], text.find(SECRET)
    while start >= 0:
        spans.append(MaskedSpan(start, start + len(SECRET), STARS))
        start = text.find(SECRET, start + len(SECRET))
    return Mask(spans=spans) if spans else Allow()


class Guards(Provider):
    """Checks of every stage."""

    def __init__(self, *stages: str) -> None:
        super().__init__()
        self.stages = stages
        self.seen: list[str] = []

    @override
    def configures(self, check: CheckSpec) -> CheckSpec | None:
        return check if check.stage in self.stages else None

    @check("input", "output", "result", holds=len(SECRET))
    async def texts(self, text: str) -> Verdict:
        """Keep the secret, and the word."""
        self.seen.append(text)
        return verdict_of(text)

    @check("call")
    def calls(self, call: CheckedCall) -> Verdict:
        """Look at what is called."""
        said = " ".join(map(str, call.arguments.values()))
        if "approve" in said:
            return Ask("It is dear.")
        found = verdict_of(said)
        if isinstance(found, Mask):
            return Mask(arguments=cleaned(call.arguments))
        return found


def cleaned(arguments: Any) -> JSON:
    return {name: str(value).replace(SECRET, STARS) for name, value in arguments.items()}
