"""Where a program runs: in the interpreter of its own, or in the sandbox; never in both once it has made a call."""

from antwort.provider import Context, FunctionError
from antwort.providers.programs.calls import ProgramCalls
from antwort.providers.programs.carrying import carried
from antwort.providers.programs.interpreter import ProgramInterpreter
from antwort.providers.programs.language import needs_python
from antwort.providers.programs.outcome import ProgramOutcome
from antwort.providers.programs.program import NotUnderstoodError, Program
from antwort.providers.programs.pythons import Pythons
from antwort.providers.programs.sandboxed import SandboxedProgram
from antwort.providers.programs.states import SANDBOX, State, States

_OFF = (
    "The program was begun in the sandbox, which is switched off now (`providers.programs.settings.interpreter`). Some "
    "of its calls may have been made."
)
_OTHER_NAMES = "(What earlier programs have defined is not there: they ran in the sandbox, which is switched off now.)"


class Running:
    """Runs one program where it belongs; it is used once."""

    def __init__(
        self,
        ctx: Context,
        interpreter: ProgramInterpreter,
        pythons: Pythons | None,
        states: States,
        calls: ProgramCalls,
    ) -> None:
        self._ctx = ctx
        self._interpreter = interpreter
        self._pythons = pythons
        self._states = states
        self._calls = calls

    async def run(self, code: str) -> ProgramOutcome:
        """Run the program to its end. If it waits for somebody, SuspendedError is raised, and it goes on later."""
        call_id, before = self._ctx.call_id or "", await self._states.session()
        if self._ctx.attached and before is not None and before.call_id == call_id and before.output is not None:
            return ProgramOutcome(before.output, before.failed)  # it was over, and nobody has read it
        snapshot = await self._states.snapshot(call_id) if self._ctx.attached else None
        if self._is_for_sandbox(code, before, snapshot):
            return await self._in_sandbox(code, before)
        known = before if before is None or before.interpreter != SANDBOX else None
        program = Program(self._ctx, self._interpreter, self._states, self._calls)
        try:
            outcome = await program.run(code, known, snapshot, leaves=self._pythons is not None)
        except NotUnderstoodError:
            return await self._in_sandbox(code, before)
        return outcome if known is before else ProgramOutcome(f"{outcome.output}\n{_OTHER_NAMES}", outcome.failed)

    def _is_for_sandbox(self, code: str, before: State | None, snapshot: State | None) -> bool:
        """Tell where the program runs. One that goes on does so where it has begun: elsewhere its calls are others."""
        if snapshot is not None:
            return snapshot.interpreter == SANDBOX
        if self._pythons is None:
            return False
        if self._ctx.attached:  # it has made no call in the sandbox, but perhaps some in the other one
            return False
        if self._pythons.settings.interpreter == SANDBOX or (before is not None and before.interpreter == SANDBOX):
            return True
        return needs_python(code)

    async def _in_sandbox(self, code: str, before: State | None) -> ProgramOutcome:
        if self._pythons is None:
            raise FunctionError(_OFF)
        names = b"" if before is None else before.session
        if before is not None and before.interpreter != SANDBOX:
            names = await carried(self._interpreter, self._pythons.work, self._ctx.tenant, before)
        return await SandboxedProgram(self._ctx, self._pythons, self._states, self._calls).run(code, names)
