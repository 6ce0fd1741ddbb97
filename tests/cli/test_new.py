import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import antwort
from antwort.cli.main import root

ROOT = Path(__file__).parents[2]


def new_provider(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["new", "provider", *arguments])


def test_a_package_is_written_and_the_next_steps_are_told(tmp_path: Path) -> None:
    done = new_provider("demo", "--path", str(tmp_path))
    assert done.exit_code == 0, done.output
    package = tmp_path / "antwort-demo"
    assert {str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()} == {
        ".gitignore",
        "README.md",
        "pyproject.toml",
        "src/antwort_demo/__init__.py",
        "src/antwort_demo/py.typed",
        "tests/test_demo.py",
    }
    for line in (
        f"cd {package}",
        "python -m pip install --editable . pytest",
        "python -m pytest",
        'antwort functions call demo_greet \'{"person": "Ada"}\'',
    ):
        assert f"\n  {line}\n" in f"{done.stdout}\n"


def test_the_package_goes_into_the_working_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = new_provider("unit_prices")
    assert "cd antwort-unit-prices\n" in done.stdout
    assert (tmp_path / "antwort-unit-prices" / "src" / "antwort_unit_prices").is_dir()


def test_the_project_file_declares_the_provider_and_needs_this_version(tmp_path: Path) -> None:
    new_provider("unit_prices", "--path", str(tmp_path))
    project = tomllib.loads((tmp_path / "antwort-unit-prices" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "antwort-unit-prices"
    assert project["entry-points"] == {"antwort.providers": {"unit_prices": "antwort_unit_prices:UnitPricesProvider"}}
    assert f"antwort>={antwort.__version__}" in project["dependencies"]


def test_nothing_of_the_templates_is_left_over(tmp_path: Path) -> None:
    new_provider("demo", "--path", str(tmp_path))
    for file in (tmp_path / "antwort-demo").rglob("*"):
        if file.is_file() and file.name != "README.md":
            assert "$" not in file.read_text()
    readme = (tmp_path / "antwort-demo" / "README.md").read_text()
    assert all(line.startswith("$ ") for line in readme.splitlines() if "$" in line)


@pytest.mark.parametrize("name", ["x", "counter", "x_1_abcdefghijklmnopqrstuvwxyz"])
def test_the_written_code_is_tidy_whatever_the_name(name: str, tmp_path: Path) -> None:
    new_provider(name, "--path", str(tmp_path))
    (package,) = tmp_path.iterdir()
    for command in (["check"], ["format", "--check"]):
        run_tool(package, "ruff", *command, "--no-cache", "--config", str(ROOT / "pyproject.toml"), ".")


def test_the_written_code_is_typed(tmp_path: Path) -> None:
    new_provider("counter", "--path", str(tmp_path))
    files = [str(path) for path in tmp_path.rglob("*.py")]
    checked, cache = ROOT / ".mypy_cache", tmp_path / "cache"
    if checked.is_dir():  # `make types` has looked at all that the package imports
        shutil.copytree(checked, cache)
    run_tool(ROOT, "mypy", "--cache-dir", str(cache), *files)


def run_tool(folder: Path, *tool: str) -> None:
    """Run a tool in a folder to a good end."""
    done = subprocess.run([sys.executable, "-m", *tool], check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["Demo", "my-tool", "1st", "_private", "two__bars", "end_", "naïve", "a b", "../up", "", "x" * 31]
)
def test_a_name_that_cannot_be_one_is_refused_with_the_rule(name: str, tmp_path: Path) -> None:
    done = new_provider("--path", str(tmp_path), "--", name)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"antwort: '{name}' is not a name for a provider; use up to 30 lower-case letters")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "owner"), [("basics", f"antwort {antwort.__version__}"), ("custom", "the registry itself")]
)
def test_a_name_that_is_taken_is_refused(name: str, owner: str, tmp_path: Path) -> None:
    done = new_provider(name, "--path", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr == f"antwort: there is a provider '{name}' already, of {owner}; choose another name\n"


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path) -> None:
    package = tmp_path / "antwort-demo"
    package.mkdir()
    done = new_provider("demo", "--path", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"antwort: {package}: there is something of that name already; move it away")
    assert list(package.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = new_provider("demo", "--path", str(tmp_path / "nowhere"))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"antwort: {tmp_path / 'nowhere'}: there is no such folder; create it")


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = new_provider("demo", "--path", str(tmp_path / "file"))
    assert done.exit_code == 2
    assert "cannot write the package: Not a directory" in done.stderr
