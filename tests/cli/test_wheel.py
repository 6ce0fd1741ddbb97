"""The wheel has all that an installation needs. `make dist` installs it, too, which needs PyPI."""

import configparser
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import antwort

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "antwort"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(built)


def test_it_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        packed = {Path(name) for name in content.namelist() if name.startswith("antwort/")}
    files = {
        path.relative_to(PACKAGE.parent)
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == files


def test_it_names_what_is_found_by_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        [name] = (name for name in content.namelist() if name.endswith(".dist-info/entry_points.txt"))
        packed = configparser.ConfigParser(delimiters="=")
        packed.optionxform = str  # type: ignore[assignment,method-assign]
        packed.read_string(content.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = {"console_scripts": project["scripts"], **project["entry-points"]}
    assert {section: dict(packed[section]) for section in packed.sections()} == expected


@pytest.mark.usefixtures("cold")
def test_what_is_in_it_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "antwort", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [sys.executable, "-c", "import antwort; print(antwort.__file__)"]
    used = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(used.strip()).is_relative_to(tmp_path)
    assert said("--version") == f"antwort {antwort.__version__}\n"
    assert "now has the revision" in said("db", "upgrade")
    assert "tea" in said("new", "provider", "tea")
