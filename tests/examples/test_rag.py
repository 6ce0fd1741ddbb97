"""The example of file search goes offline from a folder to answers, each with the file that it is from."""

import subprocess
import sys
from pathlib import Path

RAG = Path(__file__).parents[2] / "examples" / "rag"
ANSWERS = {
    "safety.pdf": "goes into the sand bucket outside",
    "lending.docx": "A trailer may be kept for a week",
    "opening.html": "The ferry stops two minutes away",
    "tools.md": "A chain is replaced when the gauge shows 0.75 percent of wear",
}


def test_a_folder_becomes_cited_answers() -> None:
    done = subprocess.run([sys.executable, RAG / "rag.py"], check=True, capture_output=True, text=True)
    # A machine that is slow hears how far it is.
    assert [
        line for line in done.stderr.splitlines() if not line.startswith("antwort: ") or " of 4 files" not in line
    ] == []
    ingested, *answers = done.stdout.strip().split("\n\n")
    assert ingested == "4 completed"
    for (name, told), printed in zip(ANSWERS.items(), answers, strict=True):
        _, answer, source = printed.splitlines()
        assert told in answer
        assert answer.endswith(" [1].")
        assert source == f"  from {name}, {(RAG / 'documents' / name).stat().st_size:,} bytes"
