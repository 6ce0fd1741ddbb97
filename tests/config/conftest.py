from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from antwort.config import LoadedConfig, Override, load_config
from antwort.errors import ConfigError

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write `antwort.yaml` into an otherwise empty working folder and load it."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | None = None, environ: Mapping[str, str] | None = None, *overrides: Override) -> LoadedConfig:
        if text is not None:
            Path("antwort.yaml").write_text(dedent(text), encoding="utf-8")
        return load_config(environ=environ or {}, overrides=overrides)

    return load


@pytest.fixture
def problems(load: Load) -> Problems:
    """Load what must not load, and return each problem as its one line."""

    def problems(text: str | None = None, environ: Mapping[str, str] | None = None, *overrides: Override) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, environ, *overrides)
        lines = [str(problem) for problem in caught.value.problems]
        assert str(caught.value) == lines[0]
        assert all("\n" not in line for line in lines)
        return lines

    return problems
