"""How far a call has come, and how many are executed at the same time."""

import asyncio

import msgspec
import pytest

from antwort.context.calls import Suspension
from antwort.engine.calls.lifecycle import CallSlots
from antwort.storage.call_record import CallRecord, CallState


def test_a_call_goes_from_state_to_state() -> None:
    call = CallRecord("call_1", "add", "{}")
    assert (call.state, call.asks) == (CallState.BEGUN, False)
    call.wait(Suspension("approval", {}))
    assert (call.state, call.asks) == (CallState.WAITING, True)
    call.approve()
    assert (call.state, call.asks) == (CallState.APPROVED, False)
    call.begin()
    assert call.state is CallState.BEGUN
    call.wait(Suspension("calls"))
    assert (call.state, call.asks) == (CallState.WAITING, False)
    call.end("3", "success", json=True)
    assert (call.state, call.is_over, call.json) == (CallState.ENDED, True, True)


def test_a_call_that_is_interrupted_is_over_however_far_it_had_come() -> None:
    call = CallRecord("call_1", "add", "{}")
    call.wait(Suspension("approval", {}))
    call.interrupt("Nobody knows.")
    assert (call.state, call.output, call.status) == (CallState.INTERRUPTED, "Nobody knows.", "error")
    assert (call.waiting, call.asks) == (None, False)


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (b'{"call_id":"c","name":"f","arguments":"{}"}', CallState.BEGUN),
        (b'{"call_id":"c","name":"f","arguments":"{}","waiting":{"kind":"agents"}}', CallState.WAITING),
        (b'{"call_id":"c","name":"f","arguments":"{}","approved":true}', CallState.APPROVED),
        (b'{"call_id":"c","name":"f","arguments":"{}","output":"","status":"success"}', CallState.ENDED),
        (b'{"call_id":"c","name":"f","arguments":"{}","output":"x","interrupted":true}', CallState.INTERRUPTED),
    ],
)
def test_what_is_stored_has_its_state(stored: bytes, state: CallState) -> None:
    assert msgspec.json.decode(stored, type=CallRecord).state is state


async def test_slots_are_handed_over_in_the_order_of_asking() -> None:
    slots, order = CallSlots(1), list[int]()

    async def work(number: int) -> None:
        if not slots.take():
            await slots.wait()
        order.append(number)
        await asyncio.sleep(0)
        slots.give_back()

    await asyncio.gather(*map(work, range(4)))
    assert order == [0, 1, 2, 3]
    assert slots.take()


async def test_a_slot_handed_to_somebody_who_has_left_goes_to_the_next() -> None:
    slots = CallSlots(1)
    assert slots.take()
    left, stays = (asyncio.ensure_future(slots.wait()) for _ in range(2))
    await asyncio.sleep(0)
    slots.give_back()  # to the first, who does not know yet
    left.cancel()
    await stays
    assert left.cancelled()
    assert not slots.take()
