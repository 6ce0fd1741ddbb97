import sys
from pathlib import Path

import pytest
from tests.support.memory import made_in_memory

__all__ = ["made_in_memory"]

# The script is part of no package; the tests check what it does, with what it does it.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
def _in_memory(made_in_memory: None) -> None:
    """Servers of sessions keep their data in temporary folders."""
