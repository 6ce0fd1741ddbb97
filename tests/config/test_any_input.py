"""Whatever is given: a configuration, or a ConfigError whose lines are lines."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from antwort.config import Config, LoadedConfig, Override, load_config
from antwort.errors import ConfigError

SECTIONS = [*Config.model_fields, "builtins", "unknown"]
KEYS = [
    "enabled", "settings", "use", "offer", "url", "api_key", "port", "host", "max_body_bytes", "api_keys", "jwt", "id",
    "key", "key_file", "issuer", "audience", "algorithms", "per_key", "burst", "timeout", "log_level", "data_dir",
]  # fmt: skip

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["${A}", "~/x"])
)
keys = st.sampled_from(KEYS) | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(SECTIONS) | keys, values, max_size=5)
variables = st.dictionaries(
    st.lists(st.sampled_from([*SECTIONS, *KEYS, "", "0"]), min_size=1, max_size=4).map(
        lambda parts: "ANTWORT_" + "__".join(parts).upper()
    ),
    st.text(max_size=8) | values.map(lambda value: yaml.safe_dump(value, default_flow_style=True)),
    max_size=4,
)


def _load(content: bytes, environ: Mapping[str, str], flags: list[tuple[str, Any]]) -> LoadedConfig | ConfigError:
    with TemporaryDirectory() as folder:
        path = Path(folder, "antwort.yaml")
        path.write_bytes(content)
        try:
            return load_config(path, environ=environ, overrides=[Override(*flag, "--flag") for flag in flags])
        except ConfigError as error:
            return error


def _check(outcome: LoadedConfig | ConfigError) -> None:
    if isinstance(outcome, ConfigError):
        lines = [str(problem) for problem in outcome.problems]
        assert lines[0] == str(outcome)
        assert all(len(line.splitlines()) == 1 for line in lines)
        return
    for entry in outcome.entries():
        assert json.dumps(entry.value)
        assert str(outcome.origin(entry.key))


@settings(deadline=None)
@given(documents, variables, st.lists(st.tuples(st.sampled_from(KEYS + SECTIONS), values), max_size=2))
def test_any_mapping_loads_or_is_a_config_error(
    document: dict[str, Any], environ: dict[str, str], flags: list[tuple[str, Any]]
) -> None:
    content = yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass")
    environ.pop("ANTWORT_CONFIG", None)

    _check(_load(content, environ, flags))


@settings(deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet="ab:-[]{}&*!<>|'\"%@`\\ \n\t#?,0x", max_size=40).map(str.encode))
def test_any_bytes_load_or_are_a_config_error(content: bytes) -> None:
    _check(_load(content, {}, []))


@settings(deadline=None)
@given(documents)
def test_any_mapping_loads_as_a_model_or_is_a_validation_error(document: dict[str, Any]) -> None:
    with suppress(ValidationError):
        Config.model_validate(document)
