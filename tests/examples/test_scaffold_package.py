import json
import re
from typing import TYPE_CHECKING

from tests.support.plain_pytest import PLAIN

if TYPE_CHECKING:
    from tests.examples.conftest import Environment


def test_a_new_provider_can_be_installed_tested_and_called(environment: "Environment") -> None:
    environment.antwort("new", "provider", "unit_prices")
    package = environment.work / "antwort-unit-prices"
    environment.install(package)

    report = environment.run("-m", "pytest", "-q", "-rA", *PLAIN, str(package))
    assert re.search(r"^\d{2} passed in ", report, re.MULTILINE), report
    assert "PASSED antwort-unit-prices/tests/test_unit_prices.py::test_a_greeting_is_said_and_counted" in report

    (environment.work / "antwort.yaml").write_text("providers: {unit_prices: {enabled: true, greeting: Welcome}}")
    functions = json.loads(environment.antwort("functions", "list", "--json"))
    assert [found["name"] for found in functions] == ["unit_prices_greet"]
    assert environment.antwort("functions", "call", "unit_prices_greet", '{"person": "Ada"}') == "Welcome, Ada!\n"
