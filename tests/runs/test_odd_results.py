"""Whatever a function gives back or raises, its response ends, in the foreground and in the background."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.runs.embedded import embedded
from typing_extensions import override

from antwort.app import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.engine.turns.loop import Loop
from antwort.errors import FunctionError
from antwort.functions import FunctionSpec, ToolResult
from antwort.testing import ScriptedBackend, call, turn

FAILED = "The server had an error while making the response."


class Text(str):
    """A text of somebody's own, as parsers and template engines have them."""

    __slots__ = ()

    @override
    def __str__(self) -> str:
        return self


class Hostile(str):
    """A text that cannot be asked for anything."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise SystemExit(3)

    __str__ = __len__ = __getitem__ = isascii = encode = _refuse


class ExitingError(Exception):
    """Its text wants to end the process."""

    @override
    def __str__(self) -> str:
        raise SystemExit(3)


class ExitingRefusalError(FunctionError):
    """The same, for what the model is to know."""

    @override
    def __str__(self) -> str:
        raise SystemExit(3)


def nested(depth: int) -> BaseException:
    error: Exception = ValueError("inside")
    for _ in range(depth):
        error = ExceptionGroup("outside", [error])
    return error


def raising(error: BaseException) -> Callable[..., Any]:
    def f(*_: Any) -> Any:
        raise error

    return f


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a text of its own": (lambda: Text("fine"), "fine"),
    "a text of its own, not in ASCII": (lambda: Text("schön"), "schön"),
    "a hostile text": (lambda: Hostile("fine"), "fine"),
    "a result with a text of its own": (lambda: ToolResult(Text("fine")), "fine"),
    "a result with a hostile text": (lambda: ToolResult(Hostile("fine")), "fine"),
    "a list with a hostile text": (lambda: [Hostile("fine")], '["fine"]'),
    "an error with a text of its own": (raising(FunctionError(Text("no"))), "no"),
    "an error whose text ends the process": (raising(ExitingError()), "odd failed: ExitingError"),
    "a refusal whose text ends the process": (raising(ExitingRefusalError()), "odd failed: ExitingRefusalError"),
    "groups in groups": (raising(nested(3000)), "odd failed: ExceptionGroup: outside (1 sub-exception)"),
    "a group in a group": (raising(nested(2)), "odd failed: ValueError: inside"),
}


def spec_of(handler: Callable[[], Any], *, threaded: bool) -> FunctionSpec:
    def on_a_thread(_: Mapping[str, Any]) -> Any:
        return handler()

    async def on_the_loop(_: Mapping[str, Any]) -> Any:
        return handler()

    return FunctionSpec("odd", "Be odd.", {}, on_a_thread if threaded else on_the_loop)


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize(("handler", "output"), ODD.values(), ids=ODD)
async def test_whatever_a_function_gives_back_the_model_reads_plain_text_and_the_response_is_completed(
    tmp_path: Path, handler: Callable[[], Any], output: str, threaded: bool
) -> None:
    steps = [turn(calls=[call("odd")]), turn("Fine.")]
    async with embedded(tmp_path, steps * 2, [spec_of(handler, threaded=threaded)]) as app:
        waited_for = await app.app.run("Go on.")
        read = [app.asked()[-1]["output"]]
        response, _ = await app.result(await app.accept())
        read.append(app.asked()[-1]["output"])
    assert (waited_for.status, response["status"]) == ("completed", "completed")
    assert [(type(text), text) for text in read] == [(str, output)] * 2


async def test_a_run_whose_progress_cannot_be_stored_at_all_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded(tmp_path, []) as app:
        working = app.store.update
        epochs: set[int] = set()

        async def update(record: Any, **options: Any) -> None:
            if record.status != "queued":
                epochs.add(record.epoch)
                if record.epoch == min(epochs):  # whoever claims the run after that can write
                    raise TypeError("of nobody's concern")
            await working(record, **options)

        monkeypatch.setattr(app.store, "update", update)
        response, stream = await app.result(await app.accept())
    assert response["status"] == "failed"
    assert response["error"]["message"] == FAILED
    assert stream.types[-2:] == ["error", "response.failed"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_run_in_which_somebody_wants_to_end_the_process_has_failed_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async with embedded(tmp_path, ["Fine."]) as app:
        with monkeypatch.context() as patch:
            patch.setattr(Loop, "_turns", raising(error))
            response, _ = await app.result(await app.accept())
        assert (response["status"], response["error"]["message"]) == ("failed", FAILED)
        response, _ = await app.result(await app.accept())
        assert response["status"] == "completed"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("no")])
async def test_nothing_that_is_raised_in_the_task_of_a_run_leaves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async with embedded(tmp_path, []) as app:

        async def work() -> None:
            raise error

        app.runs._start("resp_x", work)
        await app.at_rest()
        await asyncio.sleep(0)
        assert app.runs.idle
    assert "the work on background response resp_x has ended" in caplog.text


class Failing:
    """An executor of somebody else."""

    def __init__(self, give: Callable[[], Any]) -> None:
        self._give = give

    def discovered_tools(self, ctx: Context | None = None) -> Sequence[FunctionSpec]:
        return [FunctionSpec("there", "Do it there.", {}, lambda _: "never")]

    def can_execute(self, name: str) -> bool:
        return name == "there"

    async def execute(
        self,
        name: str,
        params: str | bytes | Mapping[str, Any],
        ctx: Context | None = None,
    ) -> ToolResult:
        result: ToolResult = self._give()
        return result

    async def close(self) -> None:
        """Give nothing back."""


@pytest.mark.parametrize(
    ("give", "output"),
    [(raising(ValueError("secret")), "there failed."), (raising(SystemExit(3)), "there failed."), (lambda: 3, "3")],
)
async def test_an_executor_that_breaks_its_promise_gives_an_error_and_the_response_goes_on(
    tmp_path: Path, give: Callable[[], Any], output: str
) -> None:
    model = ScriptedBackend([turn(calls=[call("there")]), "Fine."])
    config = Config(data_dir=tmp_path, providers={})
    async with Antwort(config, executors=[Failing(give)], backend=model) as app:
        response = await app.run("Go on.")
    assert response.status == "completed"
    assert model.requests[-1].items[-1]["output"] == output
