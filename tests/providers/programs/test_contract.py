"""The provider holds to what all providers do."""

import sys
from pathlib import Path
from typing import Any, ClassVar

from tests.runs.embedded import embedded

from antwort.providers.programs import Programs
from antwort.testing import ProviderContract


class TestPrograms(ProviderContract):
    provider = Programs
    calls: ClassVar[dict[str, Any]] = {"run_program": {"code": "print('{canary}')"}}


async def test_a_server_that_runs_no_program_starts_no_interpreter(tmp_path: Path) -> None:
    loaded = "pydantic_monty" in sys.modules
    async with embedded(tmp_path, ["Hello."], (), providers={"programs": {"enabled": True}}) as app:
        await app.app.run("Hi")
        assert ("pydantic_monty" in sys.modules) == loaded


async def test_outside_of_a_response_a_program_only_computes(tmp_path: Path) -> None:
    async with embedded(tmp_path, [], (), providers={"programs": {"enabled": True}}) as app:
        result = await app.app.registry.execute("run_program", {"code": "sum(range(10))"})
        assert (result.output, result.is_error) == ("45", False)
        result = await app.app.registry.execute("run_program", {"code": "await run_program(code='1')"})
        assert "NameError" in result.output
