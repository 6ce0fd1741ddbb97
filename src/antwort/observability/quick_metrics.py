"""Counters and histograms for the hot path: they only add up, and become Prometheus' when somebody looks.

Prometheus' own take a lock for each number and check each time what does not change. These are added to on one event
loop; any thread may look.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence

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
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class QuickHistogram(Collector):
    """A histogram with labels; `labels` gives a series, which is worth keeping."""

    def __init__(self, name: str, documentation: str, labelnames: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._bounds = tuple(bounds)
        self._shown = [str(floatToGoString(bound)) for bound in (*self._bounds, math.inf)]  # type: ignore[no-untyped-call]
        self._series: dict[tuple[str, ...], HistogramSeries] = {}

    def labels(self, *values: str) -> HistogramSeries:
        """Return the series with these values."""
        return self._series.setdefault(values, HistogramSeries(self._bounds))

    def describe(self) -> list[Metric]:
        """Return the family without its series, for the check of names."""
        return [self._family()]

    @override
    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for values, series in list(self._series.items()):  # a thread may look while a series begins
            reached = 0
            buckets: list[tuple[str, float]] = []
            for bound, count in zip(self._shown, series.counts, strict=True):
                reached += count
                buckets.append((bound, reached))
            family.add_metric(values, buckets, series.total)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._labelnames)
