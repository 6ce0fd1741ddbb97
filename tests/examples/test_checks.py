from pathlib import Path

from antwort.config import ProviderConfig
from antwort.functions import Allow, Ask, Catalogue, CheckedCall, FunctionProvider, Refuse
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


def test_a_folder_of_checks_is_a_plug_in(antwort_app: AppFactory) -> None:
    app = antwort_app({"providers": {}, "plugins_dir": CHECKS})
    (provider,) = app.get("/v1/providers").json()["data"]
    found = ["input: no_rival", "output: no_rival", "output: no_promises", "call: ask_about_much_money"]
    assert (provider["name"], provider["checks"]) == ("house_rules", found)
