"""Ordinary code of models runs."""

from pathlib import Path

from tests.providers.code_interpreter.snippets import SNIPPETS

from antwort import Antwort, Context
from antwort.config import Config
from antwort.providers.code_interpreter import CodeInterpreter
from antwort.testing import ScriptedBackend


async def test_the_snippets_of_models_run(tmp_path: Path) -> None:
    assert len(SNIPPETS) == 48
    provider = CodeInterpreter.from_settings({})
    wrong = {}
    with ScriptedBackend([]) as model:
        config = Config(data_dir=tmp_path / "data", providers={})
        async with Antwort(config, backend=model, providers=[provider]) as app:
            for number, snippet in enumerate(SNIPPETS):
                ctx = Context("t", conversation_id=f"c{number}")
                told = [await app.registry.execute("code_interpreter", {"code": code}, ctx) for code in snippet.calls]
                shown = told[-1].output.partition("Files written (")[0].rstrip("\n")
                if any(one.is_error for one in told) or shown != snippet.shows:
                    wrong[snippet.name] = shown
    assert wrong == {}
