import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from antwort.config import LoadedConfig, load_config
from antwort.config.document import interpolate, read_document
from antwort.errors import ConfigError

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


def _settings(loaded: LoadedConfig) -> dict[str, Any]:
    assert loaded.config.providers is not None
    return loaded.config.providers["x"].settings


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n", "server:\nauth:\nlimits:\n  per_key:\n"])
def test_a_file_without_content_loads_the_defaults(load: Load, text: str) -> None:
    assert load(text).config == load_config(environ={}).config


@pytest.mark.parametrize("text", ["- a\n- b\n", "text\n", "5\n"])
def test_a_file_must_be_a_mapping(problems: Problems, text: str) -> None:
    assert problems(text) == ["antwort.yaml:1: the configuration must be a mapping of keys to values"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server:\n  port: 1\n host: x\n", 3),
        ("a: 1\nb: [1, 2\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 'unclosed\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: *nothing\n", 1),
        ("a: 1\nb: \x01\n", 2),
    ],
)
def test_a_syntax_error_is_one_line_with_its_place(problems: Problems, text: str, line: int) -> None:
    [message] = problems(text)

    assert message.startswith(f"antwort.yaml:{line}: not valid YAML: ")


def test_a_file_that_is_not_utf8_says_where(load: Load) -> None:
    Path("antwort.yaml").write_bytes(b"server:\n  host: caf\xe9\n")

    with pytest.raises(ConfigError, match=r"^antwort.yaml:2: .* not UTF-8 text$"):
        load()


def test_a_byte_order_mark_is_no_part_of_the_first_key(load: Load) -> None:
    Path("antwort.yaml").write_bytes(b"\xef\xbb\xbfserver: {port: 1}\n")

    assert load().config.server.port == 1


def test_a_key_given_twice_is_an_error_with_both_lines(problems: Problems) -> None:
    assert problems("server:\n  port: 1\n  host: a\n  port: 2\n") == [
        "antwort.yaml:4: server.port: given twice, on lines 2 and 4"
    ]


def test_keys_are_the_text_that_was_written(load: Load) -> None:
    settings = _settings(load("providers: {x: {settings: {on: 1, 8080: 2, null: 3, 2026-01-01: 4}}}"))

    assert settings == {"on": 1, "8080": 2, "null": 3, "2026-01-01": 4}


def test_dates_stay_text(load: Load) -> None:
    assert _settings(load("providers: {x: {api_version: 2024-02-01, t: 2001-12-14t21:59:43.10-05:00, eq: =}}")) == {
        "api_version": "2024-02-01",
        "t": "2001-12-14t21:59:43.10-05:00",
        "eq": "=",
    }


def test_anchors_and_merge_keys_work(load: Load) -> None:
    file = """
        providers:
          x: &base
            enabled: true
            url: http://a
            size: 1
          y:
            <<: *base
            url: http://b
          z:
            <<: [{size: 3}, *base]
    """
    loaded = load(file)

    assert loaded.config.providers is not None
    assert {name: entry.settings for name, entry in loaded.config.providers.items()} == {
        "x": {"url": "http://a", "size": 1},
        "y": {"url": "http://b", "size": 1},
        "z": {"url": "http://a", "size": 3},
    }
    assert loaded.config.providers["y"].enabled
    assert str(loaded.origin("providers.y.size")) == "antwort.yaml:6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a, *a]\n", "nested too deeply"),
        ("a: &a\n  <<: *a\n", "nested too deeply"),
        ("a: {<<: 5}\n", "'<<' must refer to a mapping"),
        ("a: {[1, 2]: 3}\n", "a key must be plain text"),
        ("a: !!python/object/apply:os.system ['true']\n", "tag '!!python/object/apply:os.system' is not supported"),
        ("a: !secret x\n", "the YAML tag '!secret' is not supported"),
        ("a: !!set {x, y}\n", "the YAML tag '!!set' is not supported"),
        ("a: !!int five\n", "not a valid int"),
        ("a: !!int ''\n", "not a valid int"),
        ("a: !!bool five\n", "not a valid bool"),
        (f"a: {'1' * 5000}\n", "not a valid int"),
        (f"a: 0x{'f' * 5000}\n", "too large a number"),
        ('a: "\\ud800"\n', "not valid Unicode text"),
        ("a: " + "[" * 200 + "]" * 200 + "\n", "nested too deeply"),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", "nested too deeply"),
    ],
)
def test_what_yaml_can_say_but_a_configuration_cannot_is_an_error(problems: Problems, text: str, message: str) -> None:
    assert any(message in line for line in problems(text))


@pytest.mark.parametrize("form", ["{{x: [{0}]}}", "{{<<: [{0}]}}"])
def test_aliases_that_multiply_are_stopped(problems: Problems, form: str) -> None:
    text = "l0: &l0 {x: 1}\n"
    for level in range(1, 10):
        text += f"l{level}: &l{level} {form.format(', '.join([f'*l{level - 1}'] * 10))}\n"

    assert any("too many values" in line for line in problems(text))


# --- ${VAR} ----------------------------------------------------------------------------------------------------------

ENVIRON = {"HOST": "example", "PORT": "9000", "EMPTY": "", "TRICK": "${HOST}", "FLAG": "true"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$HOST costs $5 {x}", "$HOST costs $5 {x}"),
        ("${HOST}", "example"),
        ("http://${HOST}:${PORT}/", "http://example:9000/"),
        ("${MISSING:-other}", "other"),
        ("${HOST:-other}", "example"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b $x}", "a:-b $x"),
        ("$${HOST}", "${HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("${TRICK}", "${HOST}"),
    ],
)
def test_interpolation(text: str, expected: str) -> None:
    assert interpolate(text, ENVIRON)[0] == expected


@pytest.mark.parametrize("text", ["${", "${}", "${HOST", "${1A}", "${HOST-x}", "${ HOST }", "${A:-${HOST}}"])
def test_a_malformed_reference_is_an_error_that_says_how_to_escape(text: str) -> None:
    with pytest.raises(ValueError, match=r"write '\$\$\{' for a literal"):
        interpolate(text, ENVIRON)


def test_interpolation_names_the_variables_it_used() -> None:
    assert interpolate("${HOST}:${PORT}:${MISSING:-x}", ENVIRON)[1] == ("HOST", "PORT", "MISSING")


def test_an_unset_variable_is_an_error_with_key_and_line(problems: Problems) -> None:
    [line] = problems("server:\n  cors_origins:\n    - a\n    - ${ORIGIN}\n")

    assert line.startswith("antwort.yaml:4: server.cors_origins.1: the environment variable in ${ORIGIN} is not set")


def test_a_value_that_is_one_reference_becomes_a_number_or_a_boolean(load: Load) -> None:
    file = """
        server:
          port: ${PORT}
          protect_metrics: ${FLAG}
          shutdown_timeout: ${WAIT:-2.5}
        functions: {timeout: "${PORT}"}
    """
    config = load(file, ENVIRON).config

    assert (config.server.port, config.server.protect_metrics, config.server.shutdown_timeout) == (9000, True, 2.5)
    assert config.functions.timeout == 9000.0


def test_only_values_of_the_file_are_interpolated(load: Load) -> None:
    environ = {**ENVIRON, "ANTWORT_SERVER__HOST": "${HOST}", "ANTWORT_SERVER__CORS_ORIGINS": "['${HOST}']"}
    loaded = load("providers: {x: {'${HOST}': 1}}", environ)

    assert loaded.config.server.host == "${HOST}"
    assert loaded.config.server.cors_origins == ["${HOST}"]
    assert _settings(loaded) == {"${HOST}": 1}


def test_a_long_file_is_read_by_the_parser_in_c_and_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with thousands of keys is the longest there is, and each took half a millisecond at the start."""
    keys = "".join(f"    - id: k{n}\n      key: '${{SECRET}}-{n}'\n      scopes: [a, \"b\"]\n" for n in range(200))
    short = f"auth:\n  api_keys:\n{keys}server: &s\n  port: 0x1F\n  public: yes\nother: {{<<: *s, date: 2026-01-01}}\n"
    long = short + "# and more\n" * 1000
    scanned = []
    scan = yaml.scanner.Scanner.fetch_more_tokens

    def counted(self: Any) -> Any:
        scanned.append(1)
        return scan(self)

    monkeypatch.setattr(yaml.scanner.Scanner, "fetch_more_tokens", counted)
    quick = read_document(long, name="x", environ={"SECRET": "s"})
    assert scanned == []
    monkeypatch.setattr("antwort.config.document._LONG", len(long) + 1)
    slow = read_document(long, name="x", environ={"SECRET": "s"})
    assert scanned
    assert (quick.values, quick.origins, quick.problems) == (slow.values, slow.origins, slow.problems)
    assert quick.values["auth"]["api_keys"][199]["key"] == "s-199"


@pytest.mark.parametrize("text", ["a: " + "[" * 30_000, "".join(" " * n + "a:\n" for n in range(2000))])
def test_nesting_without_end_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_document(text, name="x", environ={})


def test_a_long_file_is_read_where_there_is_no_parser_in_c() -> None:
    """PyYAML is built without it where libyaml is missing."""
    program = """
import sys
sys.modules["yaml._yaml"] = None
from antwort.config.document import read_document
print(read_document("a: 1\\n" + "# and more\\n" * 1000, name="x", environ={}).values)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("{'a': 1}\n", "")
