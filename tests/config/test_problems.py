from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr, field_validator

from antwort.config import (
    BackendConfig,
    EngineConfig,
    LoadedConfig,
    Override,
    Settings,
    StorageConfig,
    validate_settings,
)
from antwort.config.secrets import MASK
from antwort.errors import ConfigError

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


class Qdrant(Settings):
    url: str
    api_key: SecretStr | None = None


class Search(Settings):
    url: str = Field(default="http://localhost", validation_alias=AliasChoices("url", "search_engine_url"))
    max_results: Annotated[int, Field(ge=1)] = 5
    token: Annotated[SecretStr, Field(min_length=8)] | None = None
    pin: SecretStr | None = None
    qdrant: Qdrant | None = None
    targets: list[Qdrant] = Field(default_factory=list)
    named: dict[str, Qdrant] = Field(default_factory=dict)
    engines: str | list[str] = "all"
    scheme: str = "http"

    @field_validator("pin", mode="before")
    @classmethod
    def _starts_with_a_digit(cls, pin: object) -> object:
        if pin is not None and not str(pin)[:1].isdigit():
            raise ValueError(f"the pin {pin} does not start with a digit")
        return pin

    @field_validator("scheme")
    @classmethod
    def _is_known(cls, scheme: str) -> str:
        if scheme not in ("http", "https"):
            raise ValueError(f"unknown scheme {scheme}")
        return scheme


def _problems(raw: dict[str, Any], loaded: LoadedConfig | None = None, model: type[BaseModel] = Search) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate_settings(model, raw, key="providers.web_search.settings", loaded=loaded)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return [str(problem).removeprefix("providers.web_search.settings.") for problem in caught.value.problems]


def test_valid_settings_become_their_model() -> None:
    settings = validate_settings(Search, {"search_engine_url": "u", "max_results": "3"}, key="providers.x.settings")

    assert (settings.url, settings.max_results) == ("u", 3)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"max_result": 1}, "max_result: unknown key; did you mean 'max_results'?"),
        ({"search_engin_url": "u"}, "search_engin_url: unknown key; did you mean 'search_engine_url'?"),
        ({"token_fil": "u"}, "token_fil: unknown key; did you mean 'token_file'?"),
        ({"enabld": True}, "enabld: unknown key; did you mean 'enabled'?"),
        ({"zzz": 1}, "zzz: unknown key"),
        ({"qdrant": {"url": "u", "api_kye": 1}}, "qdrant.api_kye: unknown key; did you mean 'api_key'?"),
        ({"targets": [{"url": "u", "urll": 1}]}, "targets.0.urll: unknown key; did you mean 'url'?"),
        ({"named": {"a": {"urll": 1, "url": "u"}}}, "named.a.urll: unknown key; did you mean 'url'?"),
        ({"qdrant": {}}, "qdrant.url: required, but not given"),
        ({"qdrant": 5}, "qdrant: input should be a mapping (got 5)"),
        ({"max_results": 0}, "max_results: input should be greater than or equal to 1 (got 0)"),
        ({"max_results": None}, "max_results: input should be a valid integer (got null)"),
        ({"max_results": [1]}, "max_results: input should be a valid integer"),
        ({"url": 5}, "url: input should be a valid string (got 5); put it in quotes to make it text"),
        ({"url": True}, "url: input should be a valid string (got true); put it in quotes to make it text"),
        ({"engines": {}}, "engines: input should be a valid string, or input should be a valid list"),
        (
            {"engines": ["a", 5]},
            "engines.1: input should be a valid string (got 5); put it in quotes to make it text",
        ),
    ],
)
def test_each_error_is_one_line_with_key_reason_and_value(raw: dict[str, Any], message: str) -> None:
    assert _problems(raw) == [message]


@pytest.mark.parametrize("url", ["host:6333", "ftp://host"])
def test_an_address_without_a_scheme_is_told_which_ones_there_are(url: str) -> None:
    assert _problems({"url": url}, model=BackendConfig) == [f"url: must begin with http:// or https:// (got '{url}')"]


@pytest.mark.parametrize(
    ("url", "replicas", "told"),
    [
        ("demo", ["http://a/v1"], "the demo model has none; give the `url` of a model server, or leave them out"),
        ("http://a/v1", ["http://b/v1", "http://a/v1/"], "'http://a/v1' is named twice; each server counts once"),
        ("demo", "dns", "the demo model has none"),
        ("http://10.0.0.1:8000/v1", "dns", "`dns` is for a `url` with the name of a host; this one has an address"),
        ("http://[::1]:8000/v1", "dns", "`dns` is for a `url` with the name of a host; this one has an address"),
        ("http://u:secret@a/v1", ["http://u:secret@a/v1"], f"'http://u:{MASK}@a/v1' is named twice; each server"),
    ],
)
def test_replicas_are_other_servers(url: str, replicas: list[str] | str, told: str) -> None:
    [line] = _problems({"url": url, "replicas": replicas}, model=BackendConfig)

    assert f"replicas: {told}" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"url": "http://a/v1/chat/completions"}, "'/chat/completions': give 'http://a/v1'"),
        ({"url": "http://a/v1/responses/"}, "'/responses': give 'http://a/v1' with `api: responses`"),
        ({"url": "http://a/v1/messages", "api": "anthropic"}, "'/messages': give 'http://a/v1'"),
        ({"url": "http://a/messages"}, "'/messages': give 'http://a' with `api: anthropic`"),
        (
            {"url": "http://a", "replicas": ["http://u:secret@b/responses?v=1"], "api": {"name": "responses"}},
            f"'/responses': give 'http://u:{MASK}@b?v=1'",
        ),
    ],
)
def test_the_url_of_requests_is_told_from_that_of_the_server(fields: dict[str, Any], cure: str) -> None:
    [line] = _problems(fields, model=BackendConfig)

    assert line.endswith(f" url: the base URL is wanted, without {cure}")


def test_a_dialect_of_somebody_else_may_be_at_any_url(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("class Own:\n    def run(self): ...\n    def models(self): ...\n")

    assert BackendConfig.model_validate({"url": "http://a/messages", "api": f"{own}:Own"}).url == "http://a/messages"


def test_nobody_is_taken_for_dead_at_once() -> None:
    line = "takeover_after: input should be greater than or equal to 0.5 (got 0)"
    assert _problems({"takeover_after": 0}, model=EngineConfig) == [line]


@pytest.mark.parametrize(("key", "model"), [("max_results", Search), ("sweep", StorageConfig)])
def test_a_long_value_is_cut(key: str, model: type[BaseModel]) -> None:
    [line] = _problems({key: "x" * 500}, model=model)

    assert line.endswith("x…)")
    assert len(line) < 200


def test_the_length_of_a_secret_is_told_in_characters() -> None:
    assert _problems({"token": "short"}) == ["token: must have at least 8 characters"]


def test_a_value_with_newlines_stays_on_one_line() -> None:
    [line] = _problems({"max_results": "a\nb"})

    assert line.endswith(r"(got 'a\nb')")


@pytest.mark.parametrize(
    "raw",
    [
        {"token": "s3cret"},
        {"token": 53035},
        {"pin": "s3cret"},
        {"scheme": "http://user:s3cret@host"},
        {"max_results": "http://user:s3cret@host"},
        {"max_results": "http://host/?api_key=s3cret"},
        {"qdrant": {"url": "u", "api_key": ["s3cret"]}},
        {"qdrant": {"url": ["s3cret"]}},
        {"tokn": "s3cret"},
        {"qdrant": "http://user:s3cret@host"},
        {"max_results": "user:s3cret@host"},
    ],
)
def test_secrets_are_never_printed(raw: dict[str, Any]) -> None:
    [line] = _problems(raw)

    assert "s3cret" not in line
    assert "53035" not in line


def test_a_plain_field_with_the_name_of_a_secret_is_not_printed_either() -> None:
    class Careless(BaseModel):
        api_key: int

    assert "s3cret" not in _problems({"api_key": "s3cret"}, model=Careless)[0]


def test_values_from_secret_variables_are_never_printed(load: Load, problems: Problems) -> None:
    [line] = problems("server:\n  port: ${DB_PASSWORD}\n", {"DB_PASSWORD": "s3cret"})

    assert "s3cret" not in line
    assert line.startswith("antwort.yaml:2: server.port: input should be a valid integer")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("providers:\n  web_search:\n    settings:\n      max_result: 1\n", "antwort.yaml:4"),
        ("providers:\n  web_search:\n    enabled: true\n    max_result: 1\n", "antwort.yaml:4"),
        ("builtins:\n  web_search: {max_result: 1}\n", "antwort.yaml:2"),
    ],
)
def test_an_error_names_the_line_however_the_setting_was_written(load: Load, text: str, where: str) -> None:
    loaded = load(text)
    assert loaded.config.providers is not None
    raw = loaded.config.providers["web_search"].settings

    for key in ("providers.web_search.settings", "providers.web_search"):
        with pytest.raises(ConfigError) as caught:
            validate_settings(Search, raw, key=key, loaded=loaded)
        assert caught.value.where == where
        assert caught.value.message == f"{key}.max_result: unknown key; did you mean 'max_results'?"


def test_an_error_names_the_variable(load: Load) -> None:
    name = "ANTWORT_PROVIDERS__WEB_SEARCH__SETTINGS__MAX_RESULTS"

    [line] = _problems({"max_results": "many"}, load(None, {name: "many"}))

    assert line.startswith(
        f"environment {name}: providers.web_search.settings.max_results: input should be a valid int"
    )


def test_a_missing_setting_is_reported_where_something_beside_it_was_given(problems: Problems) -> None:
    flag = Override("backends.default.api", "chat", "--backend-api")

    [line] = problems("backends: {fast: {url: demo}}", {}, flag)

    assert line == "flag --backend-api: backends.default.url: required, but not given"


def test_a_missing_setting_is_reported_at_its_provider(load: Load) -> None:
    loaded = load("providers:\n\n  web_search:\n    enabled: true\n")

    [line] = _problems({}, loaded, model=Qdrant)

    assert line == "antwort.yaml:3: providers.web_search.settings.url: required, but not given"


def test_a_default_that_does_not_fit_is_reported_at_its_key() -> None:
    class Wrong(Settings):
        port: int = Field(default=-1, ge=0)

    assert _problems({}, model=Wrong) == ["port: input should be greater than or equal to 0 (got -1)"]


def test_settings_given_by_a_program_have_no_place() -> None:
    with pytest.raises(ConfigError) as caught:
        validate_settings(Qdrant, {}, key="providers.x.settings")

    assert caught.value.where is None


def test_several_problems_of_settings_are_found_at_once(load: Load) -> None:
    text = "providers:\n  web_search:\n    max_results: 0\n    nope: 1\n    token: short\n"
    loaded = load(text)
    assert loaded.config.providers is not None

    lines = _problems(loaded.config.providers["web_search"].settings, loaded)

    assert [line.partition(": ")[0] for line in lines] == ["antwort.yaml:3", "antwort.yaml:4", "antwort.yaml:5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server: {port: 70000}", "server.port: input should be less than or equal to 65535 (got 70000)"),
        ("server: 5", "server: input should be a mapping (got 5)"),
        ("sever: {}", "sever: unknown key; did you mean 'server'?"),
        ("web_search: {}", "web_search: unknown key"),
        ("auth: {api_keys: [{id: a}]}", "auth.api_keys.0: needs exactly one of 'key', 'key_file' and 'hash'"),
        ("auth: {api_keys: [{hash: a}]}", "auth.api_keys.0.id: required, but not given"),
        (
            "auth: {api_keys: [{id: a, key: 53035}]}",
            "auth.api_keys.0.key: input should be a valid string; put it in quotes to make it text",
        ),
        ("limits: {per_key: {burst: -1}}", "limits.per_key.burst: input should be greater than 0 (got -1)"),
    ],
)
def test_problems_of_the_sections_read_well(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"antwort.yaml:1: {message}"]


def test_a_value_that_could_not_be_read_is_one_problem(problems: Problems) -> None:
    [line] = problems("auth:\n  api_keys:\n    - id: a\n      key: ${MISSING}\n")

    assert line.startswith("antwort.yaml:4: auth.api_keys.0.key: the environment variable in ${MISSING} is not set")


def test_a_secret_file_that_cannot_be_read_is_named_with_key_path_and_line(problems: Problems) -> None:
    text = "auth:\n  api_keys:\n    - id: a\n      key_file: missing\n    - id: b\n      key: x\n      key_file: both\n"
    Path("both").write_text("s3cret")

    assert problems(text) == [
        "antwort.yaml:4: auth.api_keys.0.key_file: cannot read missing: No such file or directory",
        "antwort.yaml:7: auth.api_keys.1.key_file: give either 'key' or 'key_file' (both), not both",
    ]


def test_a_list_of_models_of_litellm_is_told_what_it_is_here(problems: Problems) -> None:
    (line,) = problems("model_list:\n  - model_name: gpt\n    litellm_params: {model: openai/gpt}\n")
    assert line.endswith(
        ":1: model_list: unknown key: it is a list of LiteLLM; here model servers stand below 'backends', with "
        "`models` and `aliases`"
    )
