"""What `antwort serve` says about its model servers."""

import asyncio
from collections.abc import Callable

import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.cli import banner
from antwort.cli.model import choose_model
from antwort.config import Config, Override, load_config
from antwort.testing import ScriptServer

Cli = Callable[..., Result]


def told(settings: dict[str, object] | None = None, **backends: dict[str, object]) -> list[str]:
    """Return what is said once the backends were asked."""

    async def tell() -> list[str]:
        app = Antwort(Config.model_validate({"backends": backends, "providers": {}, **(settings or {})}))
        lines: list[str] = []
        await banner.tell_backends(app, lines.append)
        await app.close()
        return lines

    return asyncio.run(tell())


def test_it_says_what_was_found_and_what_would_help() -> None:
    with ScriptServer([], models=["small", "large"]) as model, ScriptServer([], models=[]) as empty:
        wrong = model.url.removesuffix("/v1")
        good, away, astray, bare = told(
            good={"url": model.url.replace("://", "://me:word@")},
            away={"url": "http://127.0.0.1:1/v1"},
            astray={"url": wrong},
            bare={"url": empty.url},
        )
    shown = model.url.replace("://", "://me:********@")
    assert good == f"  backend        good ({shown}): 2 models: small, large"
    assert away == "  backend        away (http://127.0.0.1:1/v1) cannot be reached: connection refused."
    assert astray.startswith(f"  backend        astray ({wrong}) has no such endpoint (404")
    assert astray.endswith(f"It answers at {model.url}: use that.")
    assert bare == f"  backend        bare ({empty.url}) answers, but has no models; load one there."


def test_models_that_the_server_does_not_have_are_told() -> None:
    settings: dict[str, object] = {
        "engine": {"default_model": "smal"},
        "agents": {"one": {"model": "large"}, "two": {"model": "small"}, "three": {"model": "huge"}},
    }
    with ScriptServer([], models=["small:latest", "large"]) as model:
        _, default, third = told(settings, main={"url": model.url})
        (_,) = told(settings, main={"url": model.url, "any_model": True})
    assert default.startswith(
        "  engine.default_model: The backend 'main' does not list the model 'smal'. It has 'small"
    )
    assert third.startswith("  agents.three.model: The backend 'main' does not list the model 'huge'.")
    assert third.endswith("If it takes the name all the same, say `any_model: true` there.")


def test_a_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banner, "PATIENCE", 0.0)
    (line,) = told(slow={"url": "http://127.0.0.1:1/v1"})
    assert line == "  backend        slow (http://127.0.0.1:1/v1): it has not answered yet"


def test_of_the_demo_model_nothing_more_is_said() -> None:
    assert told() == []


def test_a_key_of_a_public_service_is_named_and_used_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-word")
    bare = choose_model(load_config(), probe=True, own_port=None)
    assert bare.note == "OPENAI_API_KEY is set, and not used: --backend openai asks api.openai.com"
    assert all("openai" not in entry.url for entry in bare.loaded.config.backends.values())
    given = Override("backends.default.url", "http://127.0.0.1:1/v1", "--backend")
    assert choose_model(load_config(overrides=[given]), probe=True).note is None


def test_the_service_of_the_environment_is_asked_by_its_name(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptServer(["Hello."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-word")
        result = cli("run", "hi", "--backend", "openai")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello.\n", "")
        assert model.headers[0]["authorization"] == "Bearer sk-word"
    monkeypatch.delenv("OPENAI_BASE_URL")
    result = cli("run", "What is 12*7?", "--quiet")
    assert result.stderr == "antwort: OPENAI_API_KEY is set, and not used: --backend openai asks api.openai.com\n"
    monkeypatch.delenv("OPENAI_API_KEY")
    result = cli("run", "hi", "--backend", "openai")
    assert (result.exit_code, result.stderr) == (
        2,
        "antwort: --backend openai needs a key in OPENAI_API_KEY, or a URL in OPENAI_BASE_URL\n",
    )
