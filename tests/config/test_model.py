import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from antwort import FunctionRegistry
from antwort.concurrency.slots import Queues
from antwort.config import (
    AgentConfig,
    ApiKeyConfig,
    AuthConfig,
    BackendConfig,
    Config,
    EngineConfig,
    FunctionsConfig,
    JwtConfig,
    ObservabilityConfig,
    PromptConfig,
    ProviderConfig,
    RateConfig,
    S3Config,
    ServerConfig,
    StorageConfig,
    short_duration,
    written_duration,
)
from antwort.config.engine import PriceConfig
from antwort.config.settings import alternatives, models_in
from antwort.context.agents import RunLimits
from antwort.files.service import FileLimits
from antwort.storage.postgres.store import PostgresStore
from antwort.storage.sqlite import SqliteStore
from antwort.storage.streamed_values import ValueLimits


def test_the_defaults_are_those_the_documentation_promises() -> None:
    assert Config().model_dump() == {
        "data_dir": Path(".antwort"),
        "plugins_dir": None,
        "strict_names": False,
        "server": {
            "host": "127.0.0.1",
            "port": 8080,
            "workers": 1,
            "with_worker": True,
            "worker_timeout": 30.0,
            "max_body_bytes": 32 * 1024 * 1024,
            "max_bodies_bytes": 256 * 1024 * 1024,
            "max_values": 150_000,
            "cors_origins": [],
            "allowed_hosts": [],
            "allow_anonymous": False,
            "console": True,
            "protect_metrics": False,
            "shutdown_timeout": 10.0,
            "connections": {
                "max_request_line": 8 * 1024,
                "max_headers": 100,
                "max_header_bytes": 16 * 1024,
                "max_head_bytes": 64 * 1024,
                "head_timeout": 15.0,
                "body_timeout": 30.0,
                "body_rate": 1000,
                "idle_timeout": 75.0,
                "write_timeout": 60.0,
                "max_idle_per_address": 500,
                "max_open": None,
            },
            "websocket": {
                "enabled": True,
                "max_connections": 1000,
                "max_minutes": 60.0,
                "max_queue": 16,
                "ping": 30.0,
                "memory": 8 * 1024**2,
            },
            "chat_completions": {"functions": False},
            "mcp": {"enabled": True, "url": None},
        },
        "auth": {"mode": "auto", "api_keys": [], "keys_file": None, "jwt": None, "max_failures": 100},
        "limits": {
            "per_key": {"requests_per_minute": None, "burst": None},
            "per_tenant": {
                "requests_per_minute": None,
                "burst": None,
                "max_runs": None,
                "max_waiting": 1000,
                "max_stored_bytes": None,
                "max_variable_bytes": 10 * 1024**3,
                "max_value_bytes": 100 * 1024**2,
                "max_file_bytes": 512 * 1024**2,
                "max_files_bytes": 10 * 1024**3,
            },
        },
        "functions": {
            "timeout": 60.0,
            "max_output": 100_000,
            "spill": 4000,
            "max_referenced": 16 * 1024**2,
            "threads": 32,
            "grace": 1.0,
            "max_hanging": 16,
            "start_timeout": 120.0,
            "close_timeout": 15.0,
            "concurrency": None,
        },
        "backends": {},
        "agents": {},
        "prompts": {},
        "engine": {
            "max_turns": 50,
            "max_tools": 1_000,
            "tool_search": {"above": 100, "results": 5},
            "unavailable_tools": "refuse",
            "thoughts_as_summary": True,
            "reasoning_events": "openai",
            "run": {
                "max_depth": 5,
                "max_agents": 1000,
                "max_in_flight": 16,
                "max_tokens": 10_000_000,
                "max_cost": None,
                "max_time": 86_400.0,
                "max_calls": 100_000,
                "max_agent_time": None,
                "agents": [],
                "models": [],
            },
            "prices": {},
            "deadline": 3600.0,
            "parallel_batch_requests": 4,
            "parallel_calls": 16,
            "parallel_recoveries": 16,
            "parallel_runs": 100,
            "max_takeovers": 3,
            "takeover_after": 10.0,
            "outage_patience": 3600.0,
            "max_broken_answers": 5,
            "max_answer_length": 4_000_000,
            "default_model": None,
            "heartbeat": 15.0,
            "show_calls": False,
        },
        "storage": {
            "url": None,
            "synchronous": "normal",
            "busy_timeout": 5.0,
            "pool_size": 8,
            "reconnect": 10.0,
            "disk_reserve": 16777216,
            "keep": {
                **dict.fromkeys(("responses", "events", "conversations", "traces", "batches", "chat_completions")),
                "unstored": 600.0,
            },
            "sweep": 3600.0,
            "files": None,
            "s3": None,
        },
        "encryption": {"key": None, "previous_keys": []},
        "outbound": {
            "allow": [],
            "low_ports": [80, 443],
            "timeout": 20.0,
            "max_bytes": 5 * 1024 * 1024,
            "model_urls": "public",
            "max_connections": 100,
        },
        "sandbox": {"unbounded": "refuse", "visible": []},
        "observability": {
            "log_level": "info",
            "log_format": "auto",
            "access_log": None,
            "audit_file": None,
            "audit_refusals": 10,
            "loop_warning": 1.0,
            "tracing": False,
        },
        "providers": None,
    }


_OF_ENTRIES: dict[type[BaseModel], dict[str, Any]] = {
    PromptConfig: {"template": None, "file": None},
    AgentConfig: {
        "description": "",
        "instructions": None,
        "model": None,
        "functions": None,
        "agents": [],
        "models": [],
        "approval": None,
        "max_input": None,
        "max_window": None,
        "max_turns": None,
        "max_tool_calls": None,
        "max_output_tokens": None,
        "temperature": None,
    },
    ApiKeyConfig: {"key": None, "hash": None, "tenant": "default", "subject": None, "scopes": ["*"]},
    BackendConfig: {
        "replicas": [],
        "lookup_interval": 5.0,
        "api_key": None,
        "headers": {},
        "models": [],
        "aliases": {},
        "any_model": False,
        "fallback": None,
        "fallback_model": None,
        "connect_timeout": 5.0,
        "first_byte_timeout": 300.0,
        "chunk_timeout": 60.0,
        "retries": 2,
        "max_connections": 1000,
        "connection_wait": 10.0,
        "api": "chat",
        "tool_calls": "auto",
        "allowed_tools": "fewer",
        "context_window": None,
        "max_header_bytes": 64 * 1024,
        "max_event_bytes": 16 * 1024**2,
        "max_answer_bytes": 64 * 1024**2,
        "max_values": 500_000,
        "max_calls": 128,
        "max_items": 10_000,
        "max_models": 10_000,
        "images": None,
        "pdf": False,
        "extra_body": {},
        "parameters": [],
    },
    PriceConfig: {"input": 0.0, "output": 0.0},
    ProviderConfig: {"enabled": False, "use": None, "offer": "always", "approval": None, "settings": {}},
    S3Config: {"prefix": "", "endpoint": None, "region": None},
}
"""The defaults of sections of which there may be several, or none."""


@pytest.mark.parametrize("section", _OF_ENTRIES)
def test_the_defaults_of_entries_are_those_the_documentation_promises(section: type[BaseModel]) -> None:
    fields = section.model_fields.items()
    defaults = {name: field.default for name, field in fields if not field.is_required()}
    assert defaults == _OF_ENTRIES[section]


def test_no_section_is_without_a_test_of_its_defaults() -> None:
    def sections(model: type[BaseModel]) -> set[type[BaseModel]]:
        inner = [one for field in model.model_fields.values() for one in models_in(field.annotation)]
        return {model}.union(*map(sections, inner))

    def values(model: BaseModel) -> set[type[BaseModel]]:
        inner = [value for _, value in model if isinstance(value, BaseModel)]
        return {type(model)}.union(*map(values, inner))

    assert sections(Config) == values(Config()) | _OF_ENTRIES.keys() | {JwtConfig}


def test_who_uses_a_part_as_a_library_has_the_defaults_of_the_configuration() -> None:
    def has(given: Callable[..., object], **named: object) -> None:
        parameters = inspect.signature(given).parameters
        assert {name: parameters[name].default for name in named} == named

    config = Config()
    has(FunctionRegistry, **dict(config.functions))
    stored = dict(config.storage)
    has(SqliteStore.open, **{name: stored[name] for name in ("synchronous", "busy_timeout")})
    has(PostgresStore.open, **{name: stored[name] for name in ("pool_size", "reconnect")})
    tenant, run = config.limits.per_tenant, config.engine.run
    has(Queues, most_waiting=tenant.max_waiting)
    assert (ValueLimits().value, FileLimits().file) == (tenant.max_value_bytes, tenant.max_file_bytes)
    limits = RunLimits()
    assert (limits.depth, limits.agents, limits.in_flight) == (run.max_depth, run.max_agents, run.max_in_flight)


def test_the_defaults_of_tokens() -> None:
    jwt = JwtConfig(issuer="https://login.example", audience="antwort")
    assert jwt.model_dump(exclude={"issuer", "audience"}) == {
        "jwks_url": None,
        "jwks_file": None,
        "algorithms": ["RS256", "ES256"],
        "tenant_claim": "tenant",
        "subject_claim": "sub",
        "scope_claim": "scope",
        "scopes": [],
        "leeway": 30.0,
        "refresh": 300.0,
    }


def test_a_slip_in_a_scope_that_all_tokens_get_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"no scope 'responses:reed'; did you mean 'responses:read'\?"):
        JwtConfig(issuer="https://login.example", audience="antwort", scopes=["responses:reed"])


def _described(model: type[BaseModel]) -> list[tuple[str, str | None]]:
    found = []
    for name, field in model.model_fields.items():
        found.append((f"{model.__name__}.{name}", field.description))
        found.extend(pair for inner in models_in(field.annotation) for pair in _described(inner))
    return found


def test_every_key_has_a_description_of_one_short_sentence() -> None:
    described = _described(Config)
    assert len(described) > 100
    sentence = re.compile(r".{1,99}\.")
    assert [pair for pair in described if not sentence.fullmatch(pair[1] or "")] == []


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (ServerConfig, {"port": -1}),
        (ServerConfig, {"port": 65536}),
        (ServerConfig, {"max_body_bytes": 0}),
        (ServerConfig, {"shutdown_timeout": -0.1}),
        (ServerConfig, {"host": ""}),
        (ServerConfig, {"allowed_hosts": ["http://a.example"]}),
        (ServerConfig, {"allowed_hosts": ["a.example:8080"]}),
        (ServerConfig, {"allowed_hosts": ["a.*.example"]}),
        (ServerConfig, {"allowed_hosts": [""]}),
        (AuthConfig, {"mode": "sometimes"}),
        (RateConfig, {"requests_per_minute": 0}),
        (RateConfig, {"requests_per_minute": 5, "burst": 0}),
        (RateConfig, {"burst": 5}),
        (FunctionsConfig, {"timeout": 0}),
        (FunctionsConfig, {"max_output": 0}),
        (FunctionsConfig, {"threads": 0}),
        (FunctionsConfig, {"concurrency": 0}),
        (ObservabilityConfig, {"log_level": "loud"}),
        (ObservabilityConfig, {"log_format": "xml"}),
        (JwtConfig, {"issuer": "i"}),
        (JwtConfig, {"issuer": "i", "audience": []}),
        (JwtConfig, {"issuer": "i", "audience": "a", "algorithms": []}),
        (JwtConfig, {"issuer": "i", "audience": "a", "jwks_url": "https://x", "jwks_file": "y"}),
        (ApiKeyConfig, {"id": "", "hash": "h"}),
        (ApiKeyConfig, {"id": "a", "key": ""}),
        (Config, {"data_dir": "~nobody-of-that-name/x"}),
        (Config, {"encryption": {"key": "x" * 31}}),
        (Config, {"encryption": {"previous_keys": ["x" * 32, ""]}}),  # with which anybody could make a sealed item
    ],
)
def test_values_out_of_range_are_refused(model: type[BaseModel], values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_port_zero_no_timeout_and_sizes_with_units_are_taken() -> None:
    assert ServerConfig(port=0).port == 0
    assert FunctionsConfig(timeout=None).timeout is None
    assert ServerConfig.model_validate({"max_body_bytes": "2MiB"}).max_body_bytes == 2 * 1024 * 1024


def test_a_path_may_start_at_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")

    assert Config(data_dir=Path("~/antwort")).data_dir == Path("/home/someone/antwort")


def test_the_log_level_is_read_in_any_case() -> None:
    assert ObservabilityConfig.model_validate({"log_level": "WARNING"}).log_level == "warning"


@pytest.mark.parametrize("secrets", [{}, {"key": "k", "hash": "h"}])
def test_an_api_key_has_exactly_one_secret(secrets: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="exactly one of 'key', 'key_file' and 'hash'"):
        ApiKeyConfig.model_validate({"id": "a", **secrets})


def test_an_api_key_may_come_from_a_file_but_not_beside_a_hash(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("ak-1\n")

    key = ApiKeyConfig.model_validate({"id": "a", "key_file": str(tmp_path / "key")})
    assert key.key == SecretStr("ak-1")
    with pytest.raises(ValidationError, match="exactly one"):
        ApiKeyConfig.model_validate({"id": "a", "key_file": str(tmp_path / "key"), "hash": "h"})


def test_two_api_keys_cannot_share_an_id() -> None:
    with pytest.raises(ValidationError, match="two keys have the id 'ci'"):
        AuthConfig(api_keys=[ApiKeyConfig(id="ci", hash="1"), ApiKeyConfig(id="ci", hash="2")])


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ("none", "unsigned"),
        ("None", "unsigned"),
        ("HS256", "symmetric"),
        ("hs512", "symmetric"),
        ("RS265", "did you mean 'RS256'"),
    ],
)
def test_algorithms_that_anyone_could_forge_are_refused(algorithm: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        JwtConfig(issuer="i", audience="a", algorithms=["RS256", algorithm])


@pytest.mark.parametrize("audience", ["one", ["one", "two"]])
def test_tokens_may_be_for_one_audience_or_several(audience: str | list[str]) -> None:
    assert JwtConfig(issuer="i", audience=audience).audience == audience


@pytest.mark.parametrize("use", ["module", "module:", ":Class", "a b:C", "pkg.mod:Class:x", "pkg/mod:Class"])
def test_use_must_name_a_module_and_a_class(use: str) -> None:
    with pytest.raises(ValidationError, match="module:Class"):
        ProviderConfig(use=use)


def test_use_takes_a_nested_name() -> None:
    assert ProviderConfig(use="pkg.mod:Outer.Inner").use == "pkg.mod:Outer.Inner"


def test_a_provider_entry_folds_its_settings_without_a_file() -> None:
    config = Config.model_validate({"providers": {"search": {"enabled": True, "url": "x"}, "other": None}})

    assert config.providers == {
        "search": ProviderConfig(enabled=True, settings={"url": "x"}),
        "other": ProviderConfig(),
    }
    with pytest.raises(ValidationError, match="'url' is given twice"):
        ProviderConfig.model_validate({"url": "x", "settings": {"url": "y"}})


def test_reprs_hold_no_secret() -> None:
    config = Config.model_validate(
        {
            "auth": {"api_keys": [{"id": "a", "key": "s3cret"}]},
            "providers": {"search": {"api_key": "s3cret"}},
        }
    )

    assert "s3cret" not in repr(config)


@pytest.mark.parametrize(
    ("written", "seconds", "words"),
    [
        ("30d", 2_592_000, "30 days"),
        ("1h", 3600, "1 hour"),
        ("15 m", 900, "15 minutes"),
        ("90s", 90, "90 seconds"),
        ("2w", 1_209_600, "14 days"),
        ("1.5d", 129_600, "36 hours"),
        ("0.5s", 0.5, "0.5 seconds"),
        ("500ms", 0.5, "0.5 seconds"),
        ("35ms", 0.035, "0.035 seconds"),
    ],
)
def test_a_duration_is_written_with_its_unit(written: str, seconds: float, words: str) -> None:
    settings = StorageConfig.model_validate({"keep": {"responses": written}, "sweep": written})
    assert (settings.keep.responses, settings.sweep) == (seconds, seconds)
    assert written_duration(seconds) == words


def test_only_where_nothing_is_lost_a_duration_may_be_a_number_of_seconds() -> None:
    assert [StorageConfig.model_validate({"sweep": given}).sweep for given in (60, "60")] == [60, 60]
    for given in (60, "60", 60.0):
        with pytest.raises(ValidationError, match="write 30d, 12h, 15m, 90s or 2w"):
            StorageConfig.model_validate({"keep": {"responses": given}})


def _numbers(model: type[BaseModel]) -> dict[str, tuple[Any, ...]]:
    """Return the fields of a model and those below it that are numbers, with their types."""
    found = {}
    for name, field in model.model_fields.items():
        kinds = alternatives(field.annotation)
        if any(isinstance(kind, type) and issubclass(kind, float) for kind in kinds):
            found[f"{model.__name__}.{name}"] = kinds
        for inner in models_in(field.annotation):
            found |= _numbers(inner)
    return found


def test_every_number_with_a_fraction_is_a_duration_unless_it_is_known_to_be_none() -> None:
    found = _numbers(Config)
    assert len(found) > 25
    assert {name for name, kinds in found.items() if float in kinds} == {
        "AgentConfig.temperature",
        "PriceConfig.input",
        "PriceConfig.output",
        "RunConfig.max_cost",
        "WebSocketConfig.max_minutes",
    }


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"),
        (0.035, "35ms"),
        (0.0005, "0.0005s"),
        (1e-7, "0.0000001s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (10, "10s"),
        (60, "1m"),
        (90, "90s"),
        (5400, "90m"),
        (3600, "1h"),
        (129_600, "36h"),
        (2_592_000, "30d"),
        (86_400 * 10**9, "1000000000d"),
        (1e15, "1000000000000000.0"),
        (1e300, f"{1e300:.1f}"),
    ],
)
def test_a_duration_is_shown_as_it_can_be_written(seconds: float, written: str) -> None:
    assert short_duration(seconds) == written
    [loaded] = yaml.safe_load(f"[{written}]")
    assert ServerConfig.model_validate({"shutdown_timeout": loaded}).shutdown_timeout == seconds


@pytest.mark.parametrize("written", ["soon", "5 minutes", "1H"])
def test_what_is_no_duration_is_told_the_units(written: str) -> None:
    with pytest.raises(ValidationError, match="write 500ms, 90s, 15m, 12h, 30d, 2w, or a number of seconds"):
        EngineConfig.model_validate({"deadline": written})


@pytest.mark.parametrize("written", ["soon", "30 days", "-1d", "0d", 0, "", "1e3", float("inf"), "1M", "2W"])
def test_what_is_no_duration_is_refused(written: object) -> None:
    for fields in ({"keep": {"conversations": written}}, {"sweep": written}):
        with pytest.raises(ValidationError):
            StorageConfig.model_validate(fields)


def test_the_limits_of_a_backend_are_written_with_their_unit() -> None:
    fields = {"max_header_bytes": "128KiB", "max_event_bytes": "16MiB", "max_answer_bytes": 1000}
    backend = BackendConfig.model_validate({"url": "http://localhost", **fields})
    assert (backend.max_header_bytes, backend.max_event_bytes, backend.max_answer_bytes) == (131_072, 16_777_216, 1000)
    for name in fields:
        with pytest.raises(ValidationError):
            BackendConfig.model_validate({"url": "http://localhost", name: "0B"})
