"""The examples with agents run offline, and print what the documentation shows."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs" / "agents.md"


def printed(name: str) -> list[str]:
    done = subprocess.run([sys.executable, EXAMPLES / name], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_long_document_is_read_in_parts() -> None:
    answer, root, *children, sizes = printed("long_document.py")
    assert answer == "A ship without lights passed in night 4711. It came back in night 17000."
    assert root == "recursive: completed, 15 tokens"
    assert children == ["  recursive: completed, 30 tokens"] * 4
    assert sizes.startswith("The document has 608,933 bytes; the largest window had ")
    assert "\n".join([answer, root, *children]) in DOCS.read_text()


def test_research_is_divided_among_agents() -> None:
    report, root, *children, together = printed("deep_research.py")
    assert "133 metres" in report
    assert root == "planner: completed, 45 tokens"
    assert children == ["  researcher: completed, 30 tokens"] * 3
    assert together == "together: 135 tokens"
