from collections.abc import Callable

import pytest

from antwort.config import LoadedConfig, Override, ProviderConfig

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


@pytest.mark.parametrize(("text", "expected"), [("", None), ("providers:", None), ("providers: {}", {})])
def test_no_section_is_told_apart_from_an_empty_one(
    load: Load, text: str, expected: dict[str, ProviderConfig] | None
) -> None:
    assert load(text).config.providers == expected


def test_the_order_of_the_file_is_kept(load: Load) -> None:
    providers = load("providers: {zeta: {}, alpha: {}, mid: {}}").config.providers

    assert list(providers or {}) == ["zeta", "alpha", "mid"]


def test_an_entry_without_content_is_there_but_off(load: Load) -> None:
    assert load("providers:\n  web_search:\n").config.providers == {"web_search": ProviderConfig()}


def test_an_entry_without_content_can_be_filled_from_the_environment(load: Load) -> None:
    loaded = load("providers:\n  x:\n  y:\n    settings:\n", {"ANTWORT_PROVIDERS__X__ENABLED": "1"})

    assert loaded.config.providers == {"x": ProviderConfig(enabled=True), "y": ProviderConfig()}


def test_keys_beside_enabled_are_settings(load: Load) -> None:
    file = """\
        providers:
          x:
            enabled: true
            use: pkg.mod:Class
            offer: on_request
            url: http://a
            settings:
              size: 5
    """
    loaded = load(file)

    assert loaded.config.providers == {
        "x": ProviderConfig(
            enabled=True, use="pkg.mod:Class", offer="on_request", settings={"size": 5, "url": "http://a"}
        )
    }
    for key in ("providers.x.url", "providers.x.settings.url"):
        assert str(loaded.origin(key)) == "antwort.yaml:6"


def test_the_same_key_in_both_places_is_an_error_with_both_lines(problems: Problems) -> None:
    assert problems("providers:\n  x:\n    url: a\n    settings:\n      url: b\n") == [
        "antwort.yaml:3: providers.x.url: given twice, here and below 'settings' (antwort.yaml:5)"
    ]


def test_the_old_name_of_the_section_is_read_with_a_warning(load: Load) -> None:
    loaded = load("server:\nbuiltins:\n  x: {enabled: true, url: a}\n")

    assert loaded.config.providers == {"x": ProviderConfig(enabled=True, settings={"url": "a"})}
    assert loaded.warnings == ("antwort.yaml:2: the section 'builtins' is deprecated; rename it to 'providers'",)
    assert str(loaded.origin("providers.x.url")) == "antwort.yaml:3"


def test_both_names_of_the_section_are_an_error(problems: Problems) -> None:
    [line] = problems("builtins: {}\nproviders: {}\n")

    assert line.startswith("antwort.yaml:1: builtins: the same section as 'providers' (antwort.yaml:2)")


def test_the_old_name_in_the_file_can_be_overridden_under_the_new_one(load: Load) -> None:
    loaded = load("builtins: {x: {url: a}}", {}, Override("providers.x.url", "b", "--set"))

    assert loaded.config.providers == {"x": ProviderConfig(settings={"url": "b"})}


@pytest.mark.parametrize("typo", ["enable", "enabeld", "Enabled"])
def test_a_provider_that_stays_off_because_of_a_typo_is_warned_about(load: Load, typo: str) -> None:
    loaded = load(f"providers:\n  x:\n    {typo}: true\n")

    assert loaded.warnings == (f"antwort.yaml:3: providers.x.{typo}: read as a setting; did you mean 'enabled'?",)


def test_settings_that_resemble_no_key_of_the_entry_are_not_warned_about(load: Load) -> None:
    assert load("providers: {x: {enabled: true, enable: 1}, y: {enabled: false, user: a, offset: 3}}").warnings == ()


@pytest.mark.parametrize("content", ["settings: {url: a}", "url: a", "use: pkg.mod:Class", "offer: on_request"])
def test_an_entry_that_does_not_say_whether_it_is_on_is_warned_about(load: Load, content: str) -> None:
    loaded = load(f"server:\nproviders:\n  x:\n    {content}\n")

    assert loaded.warnings == ("antwort.yaml:3: providers.x has settings but is not enabled; add 'enabled: true'",)


@pytest.mark.parametrize("value", ["true", "false"])
def test_an_entry_that_says_so_is_not_warned_about_wherever_it_says_it(load: Load, value: str) -> None:
    silent = [
        load(f"providers: {{x: {{enabled: {value}, url: a}}}}"),
        load("providers: {x: {url: a}}", {"ANTWORT_PROVIDERS__X__ENABLED": value}),
        load("providers: {x: {url: a}}", {}, Override("providers.x.enabled", value, "--set")),
    ]

    assert [loaded.warnings for loaded in silent] == [(), (), ()]


def test_settings_of_the_environment_are_warned_about_too(load: Load) -> None:
    [warning] = load("", {"ANTWORT_PROVIDERS__X__SETTINGS__URL": "a"}).warnings

    assert warning.startswith("environment ANTWORT_PROVIDERS__X__SETTINGS__URL: providers.x has settings but")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("providers: [x]", "providers: input should be a mapping"),
        ("providers: {x: true}", "providers.x: input should be a mapping (got true)"),
        ("providers: {x: {settings: 5, a: 1}}", "providers.x.settings: input should be a mapping (got 5)"),
        (
            "providers: {x: {offer: never}}",
            "providers.x.offer: input should be 'always', 'deferred' or 'on_request' (got 'never')",
        ),
        ("providers: {x: {use: Class}}", "providers.x.use: must look like 'module:Class' (got 'Class')"),
        ("builtins: 5", "providers: input should be a mapping (got 5)"),
    ],
)
def test_entries_of_the_wrong_form_are_errors(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"antwort.yaml:1: {message}"]
