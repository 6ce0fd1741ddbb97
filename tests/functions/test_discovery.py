"""Where providers come from."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from antwort import Antwort
from antwort.config import BackendConfig, Config, LoadedConfig, ProviderConfig, load_config
from antwort.errors import ConfigError
from antwort.functions import Catalogue

DEFAULT_SET = ("basics", "files", "programs", "sub_agents", "user", "variables")

FUNCTIONS = '''"""Text functions."""
from antwort.provider import function

@function(idempotent=True)
def shout(text: str) -> str:
    """Write in capitals."""
    return text.upper()

def helper() -> None: ...
'''

PROVIDER = '''
from antwort.provider import Provider, function
{imports}

class {name}(Provider):
    @function
    async def {function}(self) -> str:
        """Do."""
        return "{function}"
'''


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def configured(**providers: ProviderConfig) -> LoadedConfig:
    return LoadedConfig(Config(providers=providers))


def test_our_own_providers_are_found_by_entry_point_like_any_other() -> None:
    names = {point.name for point in entry_points(group="antwort.providers")}
    assert {"basics", "web_search", "file_search", "code_interpreter"} <= names
    assert {found.name for found in Catalogue()} >= names


_NEEDED = {name: {"url": "http://localhost:1"} for name in ("web_search", "image_generation")}
"""Settings without which a provider cannot be made."""


@pytest.mark.parametrize("name", [point.name for point in entry_points(group="antwort.providers")])
def test_our_own_providers_declare_the_paths_and_the_hosted_tools_that_they_have(name: str) -> None:
    made = Catalogue().make(name, ProviderConfig(enabled=True, settings=_NEEDED.get(name, {})))
    declared = Catalogue().declared({name})
    assert {"/".join(route.path.split("/")[:3]) for route in made.routes()} == declared.paths.keys()
    assert {kind for spec in made.tools() if spec.hosted for kind in spec.hosted.types} == declared.tools.keys()


@pytest.mark.parametrize("name", [point.name for point in entry_points(group="antwort.providers")])
def test_what_our_own_providers_declare_is_right_since_a_start_does_not_check_it(name: str) -> None:
    made = Catalogue().make(name, ProviderConfig(enabled=True, settings=_NEEDED.get(name, {})))
    assert all(spec.parameters["type"] == "object" for spec in made.tools())
    for route in made.routes():
        route.check()


def test_nothing_is_imported_unless_it_is_enabled(tmp_path: Path) -> None:
    write(tmp_path / "exploding.py", "raise SystemError('imported')")
    Antwort(Config(plugins_dir=tmp_path, providers={"exploding": ProviderConfig(enabled=False)}))
    with pytest.raises(ConfigError, match=r"providers\.exploding: .*exploding\.py cannot be loaded: SystemError"):
        Antwort(Config(plugins_dir=tmp_path))


async def test_a_plug_in_file_of_plain_functions_is_a_provider(tmp_path: Path) -> None:
    write(tmp_path / "text.py", FUNCTIONS)
    app = Antwort(Config(plugins_dir=tmp_path, providers={}))
    assert [spec.name for spec in app.registry.list()] == ["shout"]
    assert app.registry.get("shout").idempotent
    assert (await app.registry.execute("shout", {"text": "hi"})).output == "HI"


async def test_a_plug_in_can_be_a_folder_with_modules_of_its_own(tmp_path: Path) -> None:
    write(
        tmp_path / "tools" / "__init__.py",
        PROVIDER.format(name="Tools", function="work", imports="from . import names"),
    )
    write(tmp_path / "tools" / "names.py", "")
    app = Antwort(Config(plugins_dir=tmp_path, providers={}))
    assert (await app.registry.execute("work", {})).output == "work"


def test_plug_ins_are_loaded_in_the_order_of_their_names_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("b", "a", "_private"):
        write(tmp_path / f"{name}.py", PROVIDER.format(name=name.upper(), function=f"do_{name}", imports=""))
    write(tmp_path / "notes.txt", "not a plug-in")
    write(tmp_path / "data" / "file.py", "raise SystemError")
    app = Antwort(Config(plugins_dir=tmp_path, providers={}))
    assert [registration.name for registration in app.registry.registrations()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from antwort.provider import check\n@check('input')\ndef no_rival(text: str): ...",
            "has a check, no_rival, and no Provider class",
        ),
        ("x = 1", "neither a Provider class nor a function marked with @function"),
        (
            PROVIDER.format(name="One", function="one", imports="")
            + PROVIDER.format(name="Two", function="two", imports=""),
            r"has several providers \(One, Two\)",
        ),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "odd.py", text)
    with pytest.raises(ConfigError, match=message) as caught:
        Antwort(Config(plugins_dir=tmp_path))
    assert "odd" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plug_in_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        Antwort(Config(plugins_dir=tmp_path / "nowhere"))


async def test_use_names_a_class_anywhere_and_the_key_is_the_providers_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "my_module_of_tools.py", PROVIDER.format(name="Tools", function="work", imports=""))
    monkeypatch.syspath_prepend(tmp_path)
    app = Antwort(configured(mine=ProviderConfig(enabled=True, use="my_module_of_tools:Tools")))
    assert [registration.name for registration in app.registry.registrations()] == ["mine"]
    assert (await app.registry.execute("work", {})).output == "work"
    sys.modules.pop("my_module_of_tools")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("no_such_module:X", "there is no module 'no_such_module'"),
        ("antwort.provider:Providr", "has no 'Providr'; did you mean 'Provider'"),
        ("antwort.errors:did_you_mean", "cannot be loaded: TypeError"),
        ("antwort.errors:AntwortError", "gave a AntwortError, not a provider"),
    ],
)
def test_use_that_leads_nowhere_is_explained(use: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Antwort(configured(mine=ProviderConfig(enabled=True, use=use)))


def test_without_a_providers_section_the_default_set_is_on_and_offered_on_request() -> None:
    app = Antwort(Config(), backend="http://127.0.0.1:9/v1")
    registered = [(r.name, r.offer) for r in app.registry.registrations()]
    assert registered == [(name, "on_request") for name in DEFAULT_SET]
    backends = {"one": BackendConfig(url="http://127.0.0.1:9/v1")}
    offers = {r.offer for r in Antwort(Config(backends=backends)).registry.registrations()}
    assert offers == {"on_request"}


def test_to_the_demo_model_the_default_set_is_always_offered() -> None:
    registered = [(r.name, r.offer) for r in Antwort(Config()).registry.registrations()]
    assert registered == [(name, "always") for name in DEFAULT_SET]


def test_an_empty_providers_section_means_none() -> None:
    assert Antwort(Config(providers={})).registry.registrations() == []


def test_a_provider_enabled_in_the_file_is_offered_always_unless_it_says_otherwise(tmp_path: Path) -> None:
    file = write(tmp_path / "antwort.yaml", "providers:\n  basics:\n    enabled: true\n    offer: on_request\n")
    assert Antwort(load_config(file, environ={})).registry.registrations()[0].offer == "on_request"
    file.write_text("providers:\n  basics:\n    enabled: true\n")
    assert Antwort(load_config(file, environ={})).registry.registrations()[0].offer == "always"
