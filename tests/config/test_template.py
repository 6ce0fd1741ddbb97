import re
from collections.abc import Callable

from pydantic import BaseModel

from antwort.config import Config, LoadedConfig, ProviderConfig, commented_config
from antwort.config.settings import models_in

Load = Callable[..., LoadedConfig]

PROVIDERS = {"weather": "Forecasts\nfor a city.", "notes": "Keep notes."}


def _uncommented(text: str) -> str:
    return re.sub(r"(?m)^( *)#(?=\w)", r"\1", text)


def test_the_file_loads_unchanged_to_the_defaults(load: Load) -> None:
    loaded = load(commented_config(PROVIDERS), {})

    assert loaded.config == Config()
    assert loaded.warnings == ()


def test_every_line_uncommented_loads_to_the_defaults_and_the_examples(load: Load) -> None:
    loaded = load(_uncommented(commented_config(PROVIDERS)), {})

    off = {"weather": ProviderConfig(), "notes": ProviderConfig()}
    assert loaded.config == Config(providers=off)
    defaults = [entry.key for entry in loaded.entries() if entry.origin.kind == "default"]
    assert all(key.startswith("providers.") for key in defaults)


def test_every_key_and_description_is_in_it() -> None:
    lines = [line.strip() for line in commented_config(PROVIDERS).splitlines()]

    def check(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            assert any(field.description in line for line in lines if field.description)
            assert any(re.match(rf"#? *{name}( \(|:)", line) for line in lines), name
            for inner in models_in(field.annotation):
                check(inner)

    check(Config)


def test_examples_of_providers_are_those_given() -> None:
    assert "  # Forecasts for a city.\n  #weather:\n    #enabled: false\n" in commented_config(PROVIDERS)
    assert commented_config({}).endswith("\n#providers:\n")


def test_an_uncommented_value_takes_effect(load: Load) -> None:
    text = commented_config(PROVIDERS).replace("  #port: 8080", "  port: 9000")

    assert load(text).config.server.port == 9000
