"""Build the wheel and the source archive into dist/, and try the wheel as users get it.

It is installed into an empty environment of each Python that is named, or else of each that antwort supports and that
is found here; there it must show its version, check its configuration, serve, answer, and stop. Needs PyPI.

python scripts/dist.py [PYTHON ...]
"""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
_PATIENCE = 60


def main(given: Sequence[str]) -> int:
    """Build, and try it; 1 if it does not work somewhere."""
    wheel = built()
    print(f"built {wheel.relative_to(ROOT)} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
    pythons = list(given) or list(found_pythons())
    for python in pythons:
        with tempfile.TemporaryDirectory(prefix="antwort-dist-") as folder:
            print(f"{python}: {tried(wheel, python, Path(folder))}", flush=True)
    missing = sorted(set(SUPPORTED) - {version_of(python) for python in pythons})
    if missing:
        print(f"not tried, as they are not here: Python {', '.join(missing)}", flush=True)
    return 0


def built() -> Path:
    """Build the archives, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=ROOT, check=True)
    [wheel] = DIST.glob("*.whl")
    return wheel


def found_pythons() -> Iterator[str]:
    """Give a Python of each supported version that is found; one that only says that it is not there is none."""
    for version in SUPPORTED:
        for name in (sys.executable, *filter(None, [shutil.which(f"python{version}")])):
            if version_of(name) == version:
                yield name
                break


def version_of(python: str) -> str:
    """Return the version of a Python, such as `3.11`; an empty text if it does not start."""
    done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def tried(wheel: Path, python: str, folder: Path) -> str:
    """Install a wheel into an empty environment, use it from elsewhere, and return what it has said of itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANTWORT"))}
    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True, env=environment)
    programs = folder / "env" / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, env=environment, cwd=folder)
    antwort = str(programs / "antwort")
    version = subprocess.run([antwort, "--version"], check=True, env=environment, capture_output=True, text=True).stdout
    subprocess.run([antwort, "check"], check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    made = [antwort, "new", "provider", "tea"]
    subprocess.run(made, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    said = served(antwort, folder, environment)
    return f"{version.strip()} on Python {version_of(python)} serves: {said}"


def served(antwort: str, folder: Path, environment: dict[str, str]) -> str:
    """Start the server, ask it, stop it, and return what it has answered."""
    command = [antwort, "serve", "--port", "0", "--data-dir", str(folder / "data")]
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdout is not None
        address = next((found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line))), None)
        try:
            answer = None if address is None else asked(address)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(_PATIENCE)
    if code != 0 or answer is None:
        raise SystemExit(f"the server has ended with code {code}: {log.read_text()}")
    return answer


def asked(address: str) -> str:
    """Ask for a response that is stored, and return its text."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=_PATIENCE)
    try:
        body = json.dumps({"input": "What is 6 times 7?"})
        connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        given = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != 200 or given["status"] != "completed":
        raise SystemExit(f"the server has answered {answer.status}: {json.dumps(given)[:500]}")
    texts = [part["text"] for item in given["output"] if item["type"] == "message" for part in item["content"]]
    return repr(" ".join(texts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
