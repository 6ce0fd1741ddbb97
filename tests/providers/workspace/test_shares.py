"""Commands of several tenants: whoever holds the sandbox does not hold up others."""

from pathlib import Path

from tests.support.attacked_queues import attacked, call_of, check_other_tenant, config_of_two

from antwort import Antwort

HOLDING = {"command": "sleep 600"}


def app_of(tmp_path: Path, **limits: int) -> Antwort:
    providers = {"workspace": {"enabled": True, "settings": {"concurrency": 4, "max_time": "10m"}}}
    return Antwort(config_of_two(tmp_path, providers=providers, limits={"per_tenant": limits}), backend=None)


async def test_a_command_does_not_wait_for_those_of_another_tenant(tmp_path: Path) -> None:
    async with app_of(tmp_path) as app:
        quick = {"command": "echo hello"}
        assert await check_other_tenant(app, "workspace", "shell", HOLDING, quick, waiting=3) == "hello"


async def test_a_tenant_with_too_many_commands_that_wait_is_told_so(tmp_path: Path) -> None:
    app = app_of(tmp_path, max_waiting=2)
    async with app, attacked(app, "workspace", "shell", HOLDING, number=5, waiting=2):
        refused = await app.registry.execute("shell", HOLDING, call_of("attacker", 9))
        assert (refused.status, refused.is_error) == ("unavailable", True)
        assert "wait in the queue 'workspace' already" in refused.output
        assert "limits.per_tenant.max_waiting" in refused.output
