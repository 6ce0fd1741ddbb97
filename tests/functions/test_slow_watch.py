"""What takes long is said in the log, from one thread."""

import threading
import time

import pytest

from antwort.functions import slow_watch
from antwort.functions.slow_watch import SlowWatch


class Threads:
    """Those that were started since; other tests may have left some behind."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def count(self) -> int:
        return len(set(threading.enumerate()) - self._before)

    def wait_until_over(self) -> None:
        until = time.monotonic() + 30
        while self.count() and time.monotonic() < until:
            time.sleep(0.01)
        assert self.count() == 0


def test_what_takes_long_is_said_once_and_what_does_not_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_watch, "_SILENCE", 0.1)
    watch, threads = SlowWatch(), Threads()
    with watch.warn_if_slow("provider 'a'", 120.0):
        for name in "bcd":
            with watch.warn_if_slow(f"provider '{name}'"):
                assert threads.count() == 1
        threads.wait_until_over()
    assert caplog.messages == ["provider 'a' takes longer than 0.1 seconds; it has 120 seconds"]


def test_it_watches_again_after_a_while(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(slow_watch, "_SILENCE", 0.1)
    watch, threads = SlowWatch(), Threads()
    with watch.warn_if_slow("the first"):
        pass
    threads.wait_until_over()
    assert caplog.messages == []
    with watch.warn_if_slow("the second", 0.05):
        threads.wait_until_over()
    assert caplog.messages == [
        "the second takes longer than 0.1 seconds, and has blocked the event loop beyond its limit of 0.05 seconds"
    ]
