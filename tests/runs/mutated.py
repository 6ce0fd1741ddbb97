"""The server with one defect: `python mutated.py NAME …` is `antwort …`, broken as `MUTATIONS` says of that name.

A test that holds servers against each other is worth what it finds out.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from antwort.cli.main import main
from antwort.engine.calls import lifecycle
from antwort.runs import background, local, recovery
from antwort.runs.workers import WorkerWatch
from antwort.storage.base import ResponseRecord, StoredEvent
from antwort.storage.sql import responses
from antwort.storage.sql.store import Store


def _put(target: object, name: str, value: object) -> None:
    """Put something in the place of what is there."""
    assert hasattr(target, name)
    setattr(target, name, value)


def _entries_unfenced() -> None:
    _put(responses, "check_epoch", lambda *_: None)


def _updates_unfenced() -> None:
    _put(responses, "_UPDATE_RESPONSE", responses._UPDATE_RESPONSE.replace("AND epoch = ?", "AND ? >= 0"))
    _entries_unfenced()


def _dead_are_alive() -> None:
    _put(WorkerWatch, "is_dead", lambda *_: False)


def _living_are_dead() -> None:
    _put(WorkerWatch, "is_dead", lambda self, worker: worker != self.own)


def _calls_are_repeated() -> None:
    _put(lifecycle, "is_repeatable", lambda target: True)


def _answers_are_lost() -> None:
    async def none(*_: object) -> dict[str, Any]:
        return {}

    _put(recovery, "load_answers", none)


def _numbers_begin_anew() -> None:
    original = recovery.state_of

    def state_of(events: Iterable[StoredEvent]) -> recovery.ReaderState:
        state = original(events)
        state.sequence = 0
        return state

    _put(recovery, "state_of", state_of)


def _events_are_read_twice() -> None:
    _put(responses, "_EVENTS", responses._EVENTS.replace("sequence > ?", "sequence >= ?"))


def _cut_off_stays_open() -> None:
    _put(recovery.StoredRun, "_leave_out_cut_off", lambda _: None)


def _runs_are_dropped() -> None:
    async def take_up(*_: object) -> None:
        return

    _put(background.BackgroundRun, "take_up", take_up)


def _journal_is_forgotten() -> None:
    original = Store.journal

    async def journal(self: Store, tenant: str, response_id: str) -> list[Any]:
        return [entry for entry in await original(self, tenant, response_id) if entry.direction == "input"]

    _put(Store, "journal", journal)


def _answered_are_left() -> None:
    _put(local.LocalRuns, "go_on", lambda *_: None)
    _put(local.LocalRuns, "_is_unattended", lambda *_: False)


def _any_may_claim() -> None:
    original = Store.claim

    async def claim(self: Store, tenant: str, response_id: str, **options: Any) -> ResponseRecord | None:
        return await original(self, tenant, response_id, **{**options, "epoch": None})

    _put(Store, "claim", claim)
    _living_are_dead()


MUTATIONS: dict[str, Callable[[], None]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _living_are_dead,
        _updates_unfenced,
        _dead_are_alive,
        _calls_are_repeated,
        _answers_are_lost,
        _numbers_begin_anew,
        _events_are_read_twice,
        _cut_off_stays_open,
        _runs_are_dropped,
        _journal_is_forgotten,
        _answered_are_left,
        _any_may_claim,
    )
}
"""The defects, each found out by `test_servers` whenever it is run.

Not all are: an epoch that no claim raises, and entries that are written without a look at it, are found out now and
then only, since whoever was taken for dead is also told so and stops.
"""


if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)]()
    main()
