"""Programs that compute without end do not keep the server from answering others."""

import os
from pathlib import Path

from antwort.providers.programs.interpreter import ProgramInterpreter
from antwort.providers.programs.settings import ProgramsSettings
from antwort.sandbox.usage import descendants


def interpreters() -> list[int]:
    """Return the processes of programs that this process has started."""
    return [one for one in descendants(os.getpid()) if Path(f"/proc/{one}/comm").read_text() == "monty\n"]


async def test_processes_of_programs_stand_back_behind_the_server() -> None:
    interpreter = ProgramInterpreter(ProgramsSettings(processes=2))
    try:
        async with interpreter.session("acme") as first, interpreter.session("globex") as second:
            assert [await session.feed_run("6 * 7") for session in (first, second)] == [42, 42]
            found = interpreters()
            assert len(found) >= 2
            own = os.getpriority(os.PRIO_PROCESS, 0)
            assert all(os.getpriority(os.PRIO_PROCESS, one) == min(19, own + 10) for one in found)
    finally:
        await interpreter.close()
