"""Code of several tenants: whoever holds the interpreters does not hold up others."""

from pathlib import Path

from tests.support.attacked_queues import check_other_tenant, config_of_two

from antwort import Antwort


async def test_code_does_not_wait_for_that_of_another_tenant(tmp_path: Path) -> None:
    providers = {"code_interpreter": {"enabled": True, "settings": {"concurrency": 4, "max_time": "10m"}}}
    async with Antwort(config_of_two(tmp_path, providers=providers)) as app:
        holding, quick = {"code": "import time; time.sleep(600)"}, {"code": "print('hello')"}
        output = await check_other_tenant(app, "code_interpreter", "code_interpreter", holding, quick, waiting=2)
        assert "hello" in output
