"""Ordinary Python, as models write it: all of it with the sandbox, and honest errors without."""

from pathlib import Path

import pytest
from tests.providers.programs.snippets import FUNCTIONS, SNIPPETS
from tests.providers.programs.stage import TOOL, program, result, served_programs

ADVICE = ("(Not understood here: ", "(Here are only the modules ", "(Not there: ")
"""How the advice in an error begins."""


def results(folder: Path, interpreter: str) -> dict[str, str]:
    """Run all of them, each in a run of its own; return what the model reads."""
    steps = [step for code, _ in SNIPPETS.values() for step in (program(code), "Done.")]
    found = {}
    with served_programs(folder, steps, more=FUNCTIONS, settings={"interpreter": interpreter}) as stage:
        client = stage.client()
        for name in SNIPPETS:
            client.responses.create(model="scripted", input="Go!", tools=[TOOL])
            found[name] = result(stage)
    return found


@pytest.mark.parametrize("interpreter", ["sandbox", "auto"])
def test_ordinary_programs_run_as_in_python_itself(tmp_path: Path, interpreter: str) -> None:
    assert len(SNIPPETS) == 48
    assert results(tmp_path, interpreter) == {name: expected for name, (_, expected) in SNIPPETS.items()}


def test_what_the_small_interpreter_does_not_run_it_refuses_with_what_to_do_instead(tmp_path: Path) -> None:
    found = results(tmp_path, "monty")
    failed = {name: read for name, read in found.items() if read != SNIPPETS[name][1]}
    assert len(failed) <= 28
    assert [name for name, read in failed.items() if not any(advice in read for advice in ADVICE)] == []
