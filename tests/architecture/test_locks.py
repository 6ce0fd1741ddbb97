"""The lock files hold what the commands of the README promise."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def names(requirements: list[str]) -> set[str]:
    """Return the packages that requirements name."""
    return {re.split(r"[^A-Za-z0-9._-]", line)[0].lower().replace("_", "-") for line in requirements}


def locked(kind: str) -> set[str]:
    """Return the packages of a lock file."""
    lines = (ROOT / "requirements" / f"{kind}.txt").read_text().splitlines()
    return names([line for line in lines if re.match(r"[a-z0-9]", line)])


def test_serving_installs_what_the_embedded_defaults_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = names([*project["dependencies"], *project["optional-dependencies"]["files"]])
    assert wanted <= locked("serve")


def test_development_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    assert names(extras) <= locked("dev")
