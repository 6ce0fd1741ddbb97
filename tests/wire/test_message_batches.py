"""Batches of messages, as they are read."""

import sys
import threading

import msgspec
import pytest

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.messages.batches import MOST_REQUESTS, read_message_batch


def read(*requests: bytes) -> tuple[int, list[JSON]]:
    total, lines = read_message_batch(b'{"requests": [%s]}' % b", ".join(requests), lambda _params, _where: None)
    return total, [msgspec.json.decode(line) for line in lines.splitlines()]


def test_requests_become_lines_whose_bodies_are_the_params() -> None:
    params = b'{\r\n "a": "x\\ny", "b": [1.50],\n "a": 2 }'
    total, lines = read(b'{"custom_id": "a-1", "params": %s}' % params, b'{"params": {}, "custom_id": "b"}')
    assert total == 2
    assert [line["custom_id"] for line in lines] == ["a-1", "b"]
    assert (lines[0]["body"]["a"], lines[1]["body"]) == (2, {})


def test_there_may_be_a_hundred_thousand_and_not_one_more() -> None:
    one = b'{"custom_id": "a", "params": {}}'
    with pytest.raises(BadRequestError, match=r"'requests': array too long.*maximum length 100000"):
        read(*[one] * (MOST_REQUESTS + 1))
    with pytest.raises(BadRequestError, match=r"'a' names requests\[0\], too"):
        read(*[one] * MOST_REQUESTS)


def test_whatever_depth_is_taken_can_be_read_again_from_further_down() -> None:
    """A line that was taken and cannot be read any more would hold its batch up for ever."""
    problems: list[str] = []

    def try_all() -> None:
        for depth in range(500, sys.getrecursionlimit(), 7):
            request = b'{"custom_id": "a", "params": {"x": %s}}' % (b"[" * depth + b"]" * depth)
            try:
                _, lines = read_message_batch(b'{"requests": [%s]}' % request, lambda _params, _where: None)
            except BadRequestError as error:
                problems.append(error.message)
                continue
            deeper(40, lines)

    def deeper(frames: int, line: bytes) -> None:
        if frames:
            deeper(frames - 1, line)
        else:
            msgspec.json.decode(line, type=dict[str, msgspec.Raw])

    thread = threading.Thread(target=try_all)
    thread.start()
    thread.join()
    assert {problem.split(",")[0] for problem in problems} <= {
        "'requests[0].params' cannot be read as JSON",
        "The body is not valid JSON: it is nested too deeply.",
    }
