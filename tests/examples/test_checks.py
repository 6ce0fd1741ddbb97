from pathlib import Path
from typing import Any

import pytest

from antwort.config import ProviderConfig
from antwort.errors import DefinitionError
from antwort.functions import Allow, Ask, Catalogue, CheckedCall, FunctionProvider, Refuse
from antwort.provider import check
from antwort.testing import AppFactory, PassedAnswer, passed_answer, verdict_of

CHECKS = Path(__file__).parents[2] / "examples" / "checks"


def rules() -> FunctionProvider:
    return Catalogue(plugins_dir=CHECKS).make("house_rules", ProviderConfig())


async def test_an_answer_keeps_to_the_rules_of_the_house() -> None:
    assert await passed_answer(rules(), ["Ac", "me has ", "one, too."]) == PassedAnswer("another maker has one, too.")
    refused = PassedAnswer("", "Prices are told by people only.")
    assert await passed_answer(rules(), ["We guaran", "tee it."]) == refused


async def test_calls_about_much_money_are_asked_about() -> None:
    assert await verdict_of(rules(), "call", CheckedCall("pay", {"amount": 10})) == Allow()
    assert await verdict_of(rules(), "call", CheckedCall("pay", {"amount": 500})) == Ask("It is about 500.")
    assert await verdict_of(rules(), "output", "Guaranteed!") == Refuse("Prices are told by people only.")


@pytest.mark.parametrize(
    ("stage", "subject", "message"),
    [
        ("inputs", "Hi", "there is no stage 'inputs' of checks"),
        ("call", "Hi", "the stage 'call' looks at a CheckedCall"),
        ("input", CheckedCall("pay", {}), "the stage 'input' looks at a text"),
        ("result", "Hi", "has no check at the stage 'result'"),
    ],
)
async def test_what_no_check_can_look_at_is_told(stage: Any, subject: str | CheckedCall, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        await verdict_of(rules(), stage, subject)


def test_a_check_without_a_stage_is_told_how_to_name_one() -> None:
    with pytest.raises(DefinitionError, match=r'needs a stage, as in @check\("input"\)'):
        check(lambda text: Allow())  # type: ignore[arg-type]


def test_a_folder_of_checks_is_a_plug_in(antwort_app: AppFactory) -> None:
    app = antwort_app({"providers": {}, "plugins_dir": CHECKS})
    (provider,) = app.get("/v1/providers").json()["data"]
    found = ["input: no_rival", "output: no_rival", "output: no_promises", "call: ask_about_much_money"]
    assert (provider["name"], provider["checks"]) == ("house_rules", found)
