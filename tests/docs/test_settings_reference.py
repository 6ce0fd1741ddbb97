from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ByteSize, Field, SecretStr, TypeAdapter
from scripts.settings_reference import markdown_table, markdown_tables, type_name

from antwort.config import Config, Settings
from antwort.config.template import default_text


class Colour(StrEnum):
    RED = "red"


class Inner(Settings):
    depth: int = Field(default=1, description="How deep.")


class Outer(Settings):
    url: str = Field(description="Where | what.")
    token: SecretStr | None = Field(default=None, description="The token.")
    inner: Inner = Field(default_factory=Inner, description="More.")
    items: list[Inner] = Field(default_factory=list, description="Several.")


def test_a_table_has_a_row_for_every_key() -> None:
    assert markdown_table(Outer, "x").splitlines() == [
        "| Key | Type | Default | Description |",
        "| --- | --- | --- | --- |",
        "| `x.url` | text | required | Where \\| what. |",
        "| `x.token` | secret | `null` | The token. Or `token_file`: a file that holds it. |",
        "| `x.inner.depth` | integer | `1` | How deep. |",
        "| `x.items` | list of sections | `[]` | Several. |",
        "| `x.items[].depth` | integer | `1` | How deep. |",
    ]


def test_the_reference_has_every_section_of_the_configuration() -> None:
    text = markdown_tables()

    for name in Config.model_fields:
        assert f"`{name}`" in text
    assert "| `server.max_body_bytes` | size | `32MiB` | Largest request body taken, such as 32MiB. |" in text
    assert "| `auth.api_keys[].key` | secret | `null` |" in text
    assert "| `auth.jwt.issuer` | text | required |" in text
    assert "| `limits.per_tenant.burst` | integer | `null` |" in text
    assert "| `providers.<name>.enabled` | boolean | `false` |" in text


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (str | None, "text"),
        (int | list[str], "integer or list of text"),
        (list[int], "list of integers"),
        (dict[str, Any], "mapping"),
        (Literal["a", "b"], "`a`, `b`"),
        (Path, "path"),
        (float, "number"),
        (Colour, "Colour"),
        (Any, "Any"),
    ],
)
def test_types_are_named_as_an_operator_would(annotation: Any, name: str) -> None:
    assert type_name(annotation) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("", "''"),
        ("yes", "'yes'"),
        (["*"], "['*']"),
        ({"a": 1}, "{a: 1}"),
        (Path("x/y"), "x/y"),
        (Colour.RED, "red"),
        ((1, 2), "[1, 2]"),
        (SecretStr("s3cret"), "'**********'"),
        ("word " * 60, "'" + "word " * 60 + "'"),
    ],
)
def test_defaults_are_yaml_in_one_line(value: object, text: str) -> None:
    assert default_text(value) == text


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 1536, 10 * 1024**2 + 1, 5 * 1024**3])
def test_sizes_are_exact(size: int) -> None:
    assert TypeAdapter(ByteSize).validate_python(default_text(ByteSize(size))) == size
