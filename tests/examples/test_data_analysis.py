"""The example with the code interpreter runs offline, and prints what the documentation shows."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_csv_becomes_a_plot() -> None:
    program = ROOT / "examples" / "data_analysis.py"
    done = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    answer, logs, file = done.stdout.splitlines()
    assert answer == "model: The best month was June, with 160; see [1]."
    assert logs == "logs:  6 months, 732 sold; the best month was Jun"
    assert file.startswith("file:  sales.svg, ")
    assert f"{answer}\n{logs}\nfile:  sales.svg, " in (ROOT / "docs" / "code.md").read_text()
