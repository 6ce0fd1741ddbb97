"""Where the kernel does not hold every limit, the start says so, and strangers are not let in beside each other."""

import logging
from pathlib import Path

import pytest
from pydantic import SecretStr

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ProviderConfig, SandboxConfig
from antwort.errors import ConfigError
from antwort.sandbox import Sandbox, SandboxRules
from antwort.sandbox.control_groups import ControlGroups


@pytest.fixture
def without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlGroups, "find", lambda: ControlGroups({}))


@pytest.mark.usefixtures("without_groups")
async def test_several_tenants_are_refused_without_control_groups() -> None:
    sandbox = Sandbox(SandboxRules(several_tenants=True))
    for _ in range(2):  # whoever asks again is refused again
        with pytest.raises(ConfigError) as refused:
            await sandbox.prepare()
        assert refused.value.where == "sandbox.unbounded"
        assert "memory of all processes" in refused.value.message
        assert "Delegate=yes" in refused.value.message
        assert "sandbox.unbounded: allow" in refused.value.message
    assert not sandbox.is_prepared


@pytest.mark.usefixtures("without_groups")
@pytest.mark.parametrize("rules", [SandboxRules(), SandboxRules(several_tenants=True, allows_unbounded=True)])
async def test_others_start_and_the_log_says_once_what_is_not_held(
    rules: SandboxRules, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = Sandbox(rules)
    with caplog.at_level(logging.WARNING, "antwort.sandbox"):
        await sandbox.prepare()
        await sandbox.prepare()
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "sandbox: the kernel does not hold every limit of code here: memory of all processes of a command together"
    ]


def test_where_there_are_control_groups_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    sandbox = Sandbox(SandboxRules(several_tenants=True))
    sandbox._groups = ControlGroups({"memory": Path("/sys/fs/cgroup")})  # nothing is made there
    sandbox.rules.tolerate(sandbox.unheld())
    assert caplog.records == []


def keys(*tenants: str) -> AuthConfig:
    return AuthConfig(
        api_keys=[
            ApiKeyConfig(id=tenant, key=SecretStr(f"sk-{tenant}-0123456789"), tenant=tenant) for tenant in tenants
        ]
    )


@pytest.mark.usefixtures("without_groups")
@pytest.mark.parametrize("provider", ["workspace", "code_interpreter"])
async def test_a_server_with_several_tenants_starts_only_if_its_operator_says_so(provider: str) -> None:
    outcomes = {}
    for name, auth, sandbox in [
        ("one", keys("acme"), SandboxConfig()),
        ("several", keys("acme", "emca"), SandboxConfig()),
        ("allowed", keys("acme", "emca"), SandboxConfig(unbounded="allow")),
    ]:
        app = Antwort(Config(auth=auth, sandbox=sandbox, providers={provider: ProviderConfig(enabled=True)}))
        try:
            async with app.providers_only(rehearsal=True):
                outcomes[name] = "starts"
        except ConfigError as error:
            outcomes[name] = error.message
        finally:
            await app.close()
    assert "this server has several tenants, and the kernel does not hold" in outcomes.pop("several")
    assert outcomes == {"one": "starts", "allowed": "starts"}
