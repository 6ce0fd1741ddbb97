"""The provider `guardrails`."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from msgspec import json
from msgspec.structs import replace
from typing_extensions import override

from antwort.provider import (
    MUCH,
    Allow,
    CheckedCall,
    CheckSpec,
    Context,
    LargeWork,
    Mask,
    MaskedSpan,
    Provider,
    Refuse,
    Verdict,
    check,
)
from antwort.providers.guardrails.judge import Judge
from antwort.providers.guardrails.patterns import FoundSecret, Patterns
from antwort.providers.guardrails.settings import GuardrailSettings

_PATTERNS, _JUDGE = "patterns", "judge"
_LARGEST_NUMBER = 10**11
"""From here on a number may be that of a card."""


class Guardrails(Provider[GuardrailSettings]):
    """Looks for secrets and personal data in what is said and done, and has a model judge the rest."""

    def __init__(self, settings: GuardrailSettings | None = None) -> None:
        super().__init__(settings)
        patterns, judge = self.settings.patterns, self.settings.judge
        self._patterns = None if patterns is None else Patterns(patterns)
        self._judge = None if judge is None else Judge(judge)
        self._large_work = LargeWork()

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        yield
        self._large_work.close()

    @property
    @override
    def named_models(self) -> Mapping[str, str | None]:
        judge = self.settings.judge
        return {} if judge is None else {"judge.model": judge.model}

    @override
    def configures(self, check: CheckSpec) -> CheckSpec | None:
        patterns, judge = self.settings.patterns, self.settings.judge
        if check.name == _PATTERNS:
            if patterns is None or self._patterns is None or check.stage not in patterns.stages:
                return None
            return replace(check, holds=self._patterns.holds) if check.stage == "output" else check
        if judge is None or check.stage not in judge.stages:
            return None
        return replace(check, timeout=judge.timeout, on_error=judge.on_error)

    # --- patterns ----------------------------------------------------------------------------------------------------

    @check("input", "output", "result", name=_PATTERNS)
    async def search_text(self, text: str) -> Verdict:
        """Look for secrets and personal data."""
        found = await self._found(text)
        return self._refusal(found) or (Mask(spans=_spans(found)) if found else Allow())

    @check("call", name=_PATTERNS)
    async def search_call(self, call: CheckedCall) -> Verdict:
        """Look for secrets and personal data in arguments."""
        found: list[FoundSecret] = []

        async def cleaned(text: str) -> str:
            places = await self._found(text)
            found.extend(places)
            return _masked(text, places)

        arguments = {name: await _mapped(value, cleaned) for name, value in call.arguments.items()}
        return self._refusal(found) or (Mask(arguments=arguments) if found else Allow())

    async def _found(self, text: str) -> list[FoundSecret]:
        patterns = self._patterns
        if patterns is None:
            return []
        return await self._large_work.run_if(len(text) * patterns.cost > MUCH // 50, patterns.find, text)

    def _refusal(self, found: list[FoundSecret]) -> Refuse | None:
        actions = {} if self._patterns is None else self._patterns.actions
        kinds = dict.fromkeys(one.kind.replace("_", " ") for one in found if actions.get(one.kind) == "refuse")
        return Refuse(f"This is not passed on, since it holds: {', '.join(kinds)}.") if kinds else None

    # --- the judge ---------------------------------------------------------------------------------------------------

    @check("input", name=_JUDGE)
    async def judge_input(self, text: str, ctx: Context) -> Verdict:
        """Have a model judge what a client sends."""
        return await self._judged(text, "a user", ctx)

    @check("output", name=_JUDGE)
    async def judge_output(self, text: str, ctx: Context) -> Verdict:
        """Have a model judge what a model says."""
        return await self._judged(text, "an assistant", ctx)

    @check("call", name=_JUDGE)
    async def judge_call(self, call: CheckedCall, ctx: Context) -> Verdict:
        """Have a model judge what an assistant wants done."""
        said = json.encode({"function": call.name, "arguments": call.arguments}).decode()
        return await self._judged(said, "an assistant that calls a function", ctx)

    @check("result", name=_JUDGE)
    async def judge_result(self, text: str, ctx: Context) -> Verdict:
        """Have a model judge what a function returns."""
        return await self._judged(text, "a function", ctx)

    async def _judged(self, text: str, what: str, ctx: Context) -> Verdict:
        return Allow() if self._judge is None else await self._judge.verdict(text, what, ctx)


def _spans(found: list[FoundSecret]) -> list[MaskedSpan]:
    return [MaskedSpan(one.start, one.end, f"[{one.kind}]") for one in found]


def _masked(text: str, found: list[FoundSecret]) -> str:
    for one in reversed(found):
        text = f"{text[: one.start]}[{one.kind}]{text[one.end :]}"
    return text


async def _mapped(value: Any, cleaned: Callable[[str], Any]) -> Any:
    """Return a value with all its texts cleaned, and numbers that are as long as those of cards."""
    if isinstance(value, str):
        return await cleaned(value)
    if isinstance(value, dict):
        return {await cleaned(str(name)): await _mapped(inner, cleaned) for name, inner in value.items()}
    if isinstance(value, list):
        return [await _mapped(inner, cleaned) for inner in value]
    if type(value) is int and abs(value) >= _LARGEST_NUMBER:
        text = str(value)
        changed = await cleaned(text)
        return value if changed == text else changed
    return value
