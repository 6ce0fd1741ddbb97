"""The typed API, as mypy sees it: one run over `typed_api.py`, which has what must fit and what must not."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_types_of_functions_registries_and_providers_are_as_promised() -> None:
    # With the project's own settings, so that the cache of `make types` serves this run too.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "tests/typing/typed_api.py"]
    found = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (found.stdout, found.stderr, found.returncode) == ("", "", 0)
