"""Programs of several tenants: whoever holds the interpreters does not hold up others."""

from pathlib import Path

import pytest
from tests.support.attacked_queues import check_other_tenant, config_of_two

from antwort import Antwort


@pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
async def test_a_program_does_not_wait_for_those_of_another_tenant(tmp_path: Path, interpreter: str) -> None:
    settings = {"interpreter": interpreter, "processes": 4, "seconds": "10m"}
    providers = {"programs": {"enabled": True, "settings": settings}}
    async with Antwort(config_of_two(tmp_path, providers=providers)) as app:
        holding, quick = {"code": "while True:\n    pass"}, {"code": "6 * 7"}
        assert await check_other_tenant(app, "programs", "run_program", holding, quick, waiting=2) == "42"
