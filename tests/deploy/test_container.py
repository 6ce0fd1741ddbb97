"""The container file is of what is there, and what it does works outside of a container, too."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from antwort.testing import served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILE = (DEPLOY / "Dockerfile").read_text()
STEPS = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", FILE, flags=re.MULTILINE)).splitlines()
HEALTH = [sys.executable, "-I", "-S", str(DEPLOY / "health.py")]


def steps(name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in STEPS if line.startswith(f"{name} ")]


def copied() -> list[str]:
    """Return what the image takes from the repository."""
    return [source for step in steps("COPY") if not step.startswith("--from") for source in step.split()[:-1]]


def healthy(port: int) -> tuple[int, str]:
    done = subprocess.run([*HEALTH, str(port)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert sorted(copied()) == sorted(line[1:] for line in ignored if line.startswith("!"))
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_what_is_copied_is_enough_for_the_wheel(tmp_path: Path) -> None:
    for source in copied():
        target = tmp_path / "source" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    [build] = re.findall(r"-m (hatchling build --target wheel --directory) /dist", FILE)
    command = [sys.executable, "-m", *build.split(), str(tmp_path / "dist")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=tmp_path / "source", env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "dist").glob("antwort-*.whl"))) == 1


def test_it_is_built_with_what_development_is_locked_to() -> None:
    [version] = re.findall(r"hatchling==(\S+)", FILE)
    assert f"\nhatchling=={version} " in (ROOT / "requirements/dev.txt").read_text()


def test_it_runs_as_a_number_that_is_not_root_and_starts_the_server() -> None:
    assert steps("USER") == ["10001:10001"]
    assert steps("ENTRYPOINT") == ['["antwort"]']
    assert steps("CMD") == ['["serve", "--config", "/etc/antwort/antwort.yaml"]']
    [check] = steps("HEALTHCHECK")
    assert check.endswith('CMD ["python", "-I", "-S", "/opt/antwort/health.py"]')


def test_a_server_that_is_ready_is_healthy_and_one_that_is_gone_is_not(tmp_path: Path) -> None:
    # Who checks names no host, so a list of them shuts nobody out.
    with served({"data_dir": tmp_path, "server": {"allowed_hosts": ["antwort.example"]}}) as app:
        port = int(app.url.rpartition(":")[2])
        assert healthy(port) == (0, "")
    code, said = healthy(port)
    assert code == 1
    assert said.startswith("/readyz: ")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b""])
def test_a_server_that_is_not_ready_is_not_healthy(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        code, said = healthy(listening.getsockname()[1])
        thread.join()
    assert code == 1
    assert "503" in said if answer else "no answer" in said
