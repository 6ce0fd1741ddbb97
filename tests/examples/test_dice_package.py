import importlib.metadata
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from tests.support.plain_pytest import PLAIN

if TYPE_CHECKING:
    from tests.examples.conftest import Environment

DICE = Path(__file__).parents[2] / "examples" / "antwort-dice"

CONFIG = """\
backends: {default: {url: demo}}
auth:
  api_keys:
    - {id: player, key: let-me-roll}
providers:
  dice:
    enabled: true
    settings: {sides: 2}
"""


def test_the_provider_is_under_thirty_lines() -> None:
    assert len((DICE / "antwort_dice.py").read_text().splitlines()) < 30


def test_the_package_is_not_installed_here() -> None:
    names = {found.name for found in importlib.metadata.entry_points(group="antwort.providers")}
    assert "dice" not in names


def test_an_installed_package_is_found_called_served_and_measured(environment: "Environment") -> None:
    package = environment.work / "antwort-dice"
    shutil.copytree(DICE, package)  # a build leaves files behind
    environment.install(package)
    (environment.work / "antwort.yaml").write_text(CONFIG)

    functions = json.loads(environment.antwort("functions", "list", "--json"))
    assert [(found["name"], found["provider"], found["state"]) for found in functions] == [
        ("roll_dice", "dice", "offered")
    ]
    shown = json.loads(environment.antwort("functions", "call", "roll_dice", '{"count": 50}'))
    assert len(shown) == 50
    assert set(shown) == {1, 2}

    with environment.serving() as url:
        assert httpx.get(f"{url}/v1/dice/roll").status_code == 401
        assert _metric(url, "antwort_dice_rolled_total") == 0
        for _ in range(3):
            answer = httpx.get(f"{url}/v1/dice/roll", headers={"authorization": "Bearer let-me-roll"})
            assert answer.status_code == 200
            assert answer.json()["shows"] in {1, 2}
        assert _metric(url, "antwort_dice_rolled_total") == 3
        requests = 'antwort_builtin_api_requests_total{method="GET",path="/v1/dice/roll",provider="dice",status="200"}'
        assert _metric(url, requests) == 3

    report = environment.run("-m", "pytest", "-q", *PLAIN, str(package / "test_dice.py"))
    assert "passed" in report


def _metric(url: str, series: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.removeprefix(series)) for line in lines if line.startswith(f"{series} "))
