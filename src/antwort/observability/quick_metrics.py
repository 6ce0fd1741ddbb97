"""Counters and histograms for the hot path: they only take numbers, and become Prometheus' when somebody looks.

Prometheus' own take a lock for each number and check each time what does not change. These are added to on one event
loop; any thread may look.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override


class CounterSeries:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """Count one more."""
        self.value += 1


class QuickCounter(Collector):
    """A counter with labels; `labels` gives a series, which is worth keeping."""

    def __init__(self, name: str, documentation: str, labelnames: Sequence[str]) -> None:
        self._name = name.removesuffix("_total")
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._series: dict[tuple[str, ...], CounterSeries] = {}

    def labels(self, *values: str) -> CounterSeries:
        """Return the series with these values."""
        return self._series.setdefault(values, CounterSeries())

    def describe(self) -> list[Metric]:
        """Return the family without its series, for the check of names."""
        return [self._family()]

    @override
    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for values, series in list(self._series.items()):  # a thread may look while a series begins
            family.add_metric(values, series.value)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._labelnames)


class HistogramSeries:
    """One series of a histogram. What it takes is only kept: many values are added up at once for what one costs."""

    __slots__ = ("_bounds", "_taken", "counts", "observe", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._taken: list[float] = []
        self.observe: Callable[[float], None] = self._taken.append
        """Count a value."""
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add_up(self, least: int) -> None:
        """Count what was taken, if there is so much of it; one thread at a time."""
        number = len(self._taken)
        if number < least:
            return
        values = sorted(self._taken[:number])
        del self._taken[:number]
        before = 0
        for place, bound in enumerate(self._bounds):
            reached = bisect_right(values, bound)
            self.counts[place] += reached - before
            before = reached
        self.counts[-1] += number - before
        self.total += sum(values)


class QuickHistogram(Collector):
    """A histogram with labels; `labels` gives a series, which is worth keeping. It has to be added up regularly."""

    def __init__(self, name: str, documentation: str, labelnames: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._bounds = tuple(bounds)
        self._shown = [str(floatToGoString(bound)) for bound in (*self._bounds, math.inf)]  # type: ignore[no-untyped-call]
        self._series: dict[tuple[str, ...], HistogramSeries] = {}
        self._adding = threading.Lock()

    def labels(self, *values: str) -> HistogramSeries:
        """Return the series with these values."""
        return self._series.setdefault(values, HistogramSeries(self._bounds))

    def add_up(self, least: int = 1) -> None:
        """Count what each series has taken, if there is so much of it."""
        with self._adding:
            for series in list(self._series.values()):  # a thread may look while a series begins
                series.add_up(least)

    def describe(self) -> list[Metric]:
        """Return the family without its series, for the check of names."""
        return [self._family()]

    @override
    def collect(self) -> Iterator[Metric]:
        self.add_up()
        family = self._family()
        for values, series in list(self._series.items()):
            reached = 0
            buckets: list[tuple[str, float]] = []
            for bound, count in zip(self._shown, series.counts, strict=True):
                reached += count
                buckets.append((bound, reached))
            family.add_metric(values, buckets, series.total)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._labelnames)
