"""The unit of systemd is one, and gives the server the time that it needs to stop."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.configurations import seconds_to_stop

from antwort.config import Config

FOLDER = Path(__file__).parents[2] / "deploy/systemd"
UNIT = FOLDER / "antwort.service"
SANDBOX = FOLDER / "antwort.service.d/sandbox.conf"
SECTIONS = {"Unit", "Service", "Install"}


def read(path: Path) -> dict[str, dict[str, str]]:
    """Read a unit strictly: sections that there are, each key once."""
    sections: dict[str, dict[str, str]] = {}
    name = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            assert name in SECTIONS - sections.keys(), line
            sections[name] = {}
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            assert key == key.strip(), line
            assert key not in sections[name], line
            sections[name][key] = value
    return sections


def test_the_unit_is_one(tmp_path: Path) -> None:
    unit = read(UNIT)
    assert unit.keys() == SECTIONS
    assert read(SANDBOX).keys() == {"Service"}
    if shutil.which("systemd-analyze") is None:  # what is read above is all that can be known without it
        return
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/antwort/.venv/bin/antwort", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_a_reload_is_a_hangup() -> None:
    assert read(UNIT)["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_it_waits_longer_than_a_server_takes_to_stop() -> None:
    assert int(read(UNIT)["Service"]["TimeoutStopSec"]) > seconds_to_stop(Config())


def test_the_drop_in_changes_what_the_unit_says() -> None:
    service, changes = read(UNIT)["Service"], read(SANDBOX)["Service"]
    assert changes.keys() - service.keys() == {"Delegate", "DelegateSubgroup"}
    assert [key for key in changes if service.get(key) == changes[key]] == []
