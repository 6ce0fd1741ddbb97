"""Between two calls nothing goes on in a sandbox, whoever runs it and whatever code does to go on."""

import os
from collections.abc import Iterator

import pytest
from tests.sandbox.evasions import EVASIONS
from tests.sandbox.stage import Machine, machine

KINDS = ("root", "plain", "ordinary") if os.geteuid() == 0 else ("ordinary",)
"""With a freezer where there is one, and by signals."""
ROUNDS = 20 if os.environ.get("ANTWORT_TEST_FULL") else 2


@pytest.fixture(scope="module", params=KINDS)
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


@pytest.mark.parametrize("evasion", EVASIONS)
def test_nothing_goes_on_in_a_sandbox_that_is_paused(outside: Machine, evasion: str) -> None:
    for _ in range(ROUNDS):
        told = outside.pause(EVASIONS[evasion], disk_bytes=1 << 30)
        assert told["went_on"] == {}
        assert told["ending"] in {None, "killed"}, "it is stopped, or it is ended"
        assert told["left"] == []
