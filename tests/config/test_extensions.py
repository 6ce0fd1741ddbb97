"""Choosing an extension: what a configuration may say, and what it is told if that is wrong."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from pydantic import TypeAdapter

from antwort.config import Choice, ExtensionKind, Settings, installed, load_config, validate_settings
from antwort.config.extensions import settings_type
from antwort.errors import ConfigError

KIND: ExtensionKind[Any] = ExtensionKind(
    "antwort.search_engines", "search engine", default="searxng", members=("search",), has_around=True
)
MODULE = """
from pydantic import SecretStr
from antwort.config import Settings

class OwnSettings(Settings):
    index: str
    depth: int = 1
    token: SecretStr | None = None

class Own:
    def __init__(self, settings: OwnSettings, *parts):
        self.settings, self.parts = settings, parts
    def search(self): ...

class Lacking:
    def __init__(self, settings: OwnSettings): ...

class Untyped:
    def __init__(self, settings): ...
    def search(self): ...

class Broken:
    def __init__(self, settings: OwnSettings, *parts):
        raise RuntimeError(f"no {settings.token.get_secret_value()}")
    def search(self): ...

value = 3
"""


class Around(Settings):
    engine: Annotated[Choice, KIND] = "searxng"
    index: str | None = None


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "own_engine.py"
    path.write_text(MODULE)
    return str(path)


def chosen(value: Any, **around: Any) -> Any:
    settings = validate_settings(Around, {"engine": value, **around}, key="search")
    return KIND.make(settings.engine, "a part", key="search.engine", around=dict(settings))


def refused(value: Any, **around: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        chosen(value, **around)
    return str(caught.value)


def test_a_file_with_settings_beside_it(file: str) -> None:
    made = chosen({"use": f"{file}:Own", "index": "a", "depth": 2})
    assert (made.settings.index, made.settings.depth, made.parts) == ("a", 2, ("a part",))


def test_settings_may_stand_around_it(file: str) -> None:
    assert chosen(f"{file}:Own", index="b").settings.index == "b"
    assert chosen({"use": f"{file}:Own", "depth": 3}, index="b").settings.index == "b"
    assert chosen({"use": f"{file}:Own", "index": "own"}, index="b").settings.index == "own"


def test_a_module(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(file).parent))
    assert chosen("own_engine:Own", index="c").settings.index == "c"


def test_a_name_that_is_none_is_told_with_those_there_are() -> None:
    told = refused("searx")
    assert told == (
        "search.engine: unknown search engine 'searx'; did you mean 'searxng'? (known: brave, searxng); "
        "install the package that brings it, or name it with use: 'module:Class'"
    )


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ({"use": "{file}:Own", "index": "a", "dept": 2}, "search.engine.dept", "unknown key; did you mean 'depth'?"),
        ({"use": "{file}:Own", "depth": "many"}, "search.engine.depth", "valid integer"),
        ({"use": "{file}:Own"}, "search.engine", "index: required, but not given"),
        ({"use": "{file}:Owl"}, "search.engine.use", "has no 'Owl'; did you mean 'Own'?"),
        ({"use": "{file}:value"}, "search.engine.use", "is no class, but 3"),
        ({"use": "{file}:Lacking"}, "search.engine.use", "is no search engine: Lacking lacks search"),
        ({"use": "{file}:Untyped"}, "search.engine.use", "first parameter must have a subclass of Settings as hint"),
        ({"use": "nowhere.py:Own"}, "search.engine.use", "there is no file"),
        ({"use": "no_such_module:Own"}, "search.engine.use", "there is no module 'no_such_module'"),
        ({"use": "brave"}, "search.engine.use", "must be 'module:Class'"),
        ({"name": "brave", "use": "a:B"}, "search.engine", "needs exactly one of 'name' and 'use'"),
        (7, "search.engine", "must be the name of a search engine, or a mapping"),
    ],
)
def test_what_is_wrong_is_told_at_its_key(value: Any, key: str, message: str, file: str) -> None:
    if isinstance(value, dict):
        value = {name: one.replace("{file}", file) if isinstance(one, str) else one for name, one in value.items()}
    told = refused(value)
    assert told.startswith(f"{key}: ")
    assert message in told


def test_what_it_raises_is_told_without_its_secrets(file: str) -> None:
    told = refused({"use": f"{file}:Broken", "index": "a", "token": "geheim"})
    assert told.startswith("search.engine: the search engine ")
    assert "RuntimeError: no ********; repair or update it, or choose another" in told
    assert "geheim" not in told


def test_a_package_that_is_broken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "no_such_module:Theirs", "antwort.search_engines")
    brought = installed.Package("antwort-theirs", "1.2", (point,))
    there = [*installed.packages(), brought]
    monkeypatch.setattr(installed, "packages", lambda: there)
    assert KIND.names() == ["brave", "searxng", "theirs"]
    assert refused("theirs") == (
        "search.engine: the search engine 'theirs' of antwort-theirs 1.2 cannot be used: "
        "ModuleNotFoundError: No module named 'no_such_module'; repair or update it, or choose another"
    )


def test_a_configuration_shows_what_is_chosen_without_secrets(file: str, tmp_path: Path) -> None:
    dialect = tmp_path / "dialect.py"
    dialect.write_text(MODULE.replace("def search(self): ...", "def run(self): ...\n    def models(self): ..."))
    config = tmp_path / "antwort.yaml"
    config.write_text(
        "backends:\n  main:\n    url: http://localhost:1\n    api:\n"
        f"      use: {dialect}:Own\n      index: here\n      token: geheim\n"
    )
    loaded = load_config(config, environ={})
    shown = {entry.key: (entry.value, str(entry.origin)) for entry in loaded.entries() if ".api." in entry.key}
    assert shown == {
        "backends.main.api.use": (f"{dialect}:Own", f"{config}:5"),
        "backends.main.api.index": ("here", f"{config}:6"),
        "backends.main.api.token": ("********", f"{config}:7"),
    }
    config.write_text(config.read_text().replace("index: here", "index: here\n      indx: there"))
    with pytest.raises(ConfigError, match=r"antwort.yaml:7: backends.main.api.indx: unknown key; did you mean 'index'"):
        load_config(config, environ={})


def test_its_schema_names_ours() -> None:
    adapter: TypeAdapter[Choice] = TypeAdapter(cast("Any", Annotated[Choice, KIND]))
    text, mapping = adapter.json_schema()["anyOf"]
    assert (text, mapping) == ({"type": "string", "examples": ["brave", "searxng"]}, {"type": "object"})


def test_nothing_is_imported_by_a_name() -> None:
    sys.modules.pop("antwort.providers.web_search.brave", None)
    validate_settings(Around, {"engine": "brave"}, key="search")
    assert "antwort.providers.web_search.brave" not in sys.modules


def test_a_function_or_a_class_method_makes_one_too() -> None:
    class Own(Settings): ...

    def make(settings: Own) -> object:
        return settings

    assert settings_type(make) is Own
