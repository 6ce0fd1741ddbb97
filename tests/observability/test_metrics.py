import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from typing_extensions import override

from antwort.errors import DefinitionError
from antwort.observability import DURATION_BUCKETS, LoopWatchdog, Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.2.3")


def page(metrics: Metrics, accept: str | None = None) -> str:
    return metrics.render(accept)[0].decode()


class Temperature(Collector):
    """A collector as a stranger writes it: no `describe`, and it may fail."""

    def __init__(self, name: str = "weather_temperature") -> None:
        self.name = name
        self.failure: BaseException | None = None
        self.value: object = 21.5

    @override
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self.name, "Degrees.", labels=["city"])
        family.add_metric(["Bonn"], self.value)  # type: ignore[arg-type]
        yield family
        if self.failure is not None:
            raise self.failure


def test_two_apps_have_metrics_of_the_same_name_and_different_values() -> None:
    first, second = Metrics("1"), Metrics("2")
    first.counter("antwort_calls_total", "Calls.").inc(3)
    second.counter("antwort_calls_total", "Calls.").inc(5)
    assert "antwort_calls_total 3.0" in page(first)
    assert "antwort_calls_total 5.0" in page(second)


def test_nothing_reaches_the_global_registry(metrics: Metrics) -> None:
    metrics.counter("antwort_only_here_total", "Calls.")
    metrics.register(Temperature("antwort_only_here_too"))
    assert "antwort_only_here" not in prometheus_client.generate_latest(prometheus_client.REGISTRY).decode()


def test_the_page_tells_the_version_and_the_process(metrics: Metrics) -> None:
    text = page(metrics)
    assert 'version="1.2.3"' in text
    assert "antwort_build_info{" in text
    assert "process_resident_memory_bytes " in text
    assert "process_open_fds " in text


def test_the_page_can_be_parsed_and_has_the_right_values(metrics: Metrics) -> None:
    metrics.gauge("antwort_busy", "Busy.", ("kind",)).labels("a").set(2)
    metrics.histogram("antwort_duration_seconds", "Time.", ("kind",)).labels("a").observe(0.3)
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(page(metrics))
        for sample in family.samples
    }
    assert samples["antwort_busy", None] == 2
    assert samples["antwort_duration_seconds_bucket", "0.25"] == 0
    assert samples["antwort_duration_seconds_bucket", "0.5"] == 1
    assert samples["antwort_duration_seconds_sum", None] == 0.3


def test_buckets_reach_from_a_millisecond_to_two_minutes_and_can_be_chosen(metrics: Metrics) -> None:
    assert (DURATION_BUCKETS[0], DURATION_BUCKETS[-1]) == (0.001, 120.0)
    assert list(DURATION_BUCKETS) == sorted(set(DURATION_BUCKETS))
    metrics.histogram("antwort_sizes", "Sizes.", buckets=(10, 20))
    assert [line for line in page(metrics).splitlines() if line.startswith("antwort_sizes_bucket")] == [
        'antwort_sizes_bucket{le="10.0"} 0.0',
        'antwort_sizes_bucket{le="20.0"} 0.0',
        'antwort_sizes_bucket{le="+Inf"} 0.0',
    ]


@pytest.mark.parametrize("accept", [None, OPENMETRICS])
def test_there_are_no_created_series(metrics: Metrics, accept: str | None) -> None:
    metrics.counter("antwort_calls_total", "Calls.").inc()
    metrics.histogram("antwort_duration_seconds", "Time.").observe(1)
    text = page(metrics, accept)
    assert "antwort_calls_total 1.0" in text
    assert "_created" not in text


@pytest.mark.parametrize(
    ("accept", "content_type", "ends"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8", False),
        ("", "text/plain; version=0.0.4; charset=utf-8", False),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", False),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=nonsense", "text/plain; version=0.0.4; charset=utf-8", False),
        ("text/plain;version=x.y", "text/plain; version=0.0.4; charset=utf-8", False),
    ],
)
def test_the_accept_header_chooses_the_format(
    metrics: Metrics, accept: str | None, content_type: str, ends: bool
) -> None:
    body, actual = metrics.render(accept)
    assert actual == content_type
    assert body.endswith(b"# EOF\n") is ends


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_a_name_that_is_taken_is_refused_with_its_cure(metrics: Metrics, kind: str) -> None:
    create = {"counter": metrics.counter, "gauge": metrics.gauge, "histogram": metrics.histogram}[kind]
    create("antwort_things", "Things.")
    with pytest.raises(DefinitionError, match=r"metric 'antwort_things' exists already; rename"):
        create("antwort_things", "Other things.")


@pytest.mark.parametrize(("name", "labels"), [("", ()), ("antwort_x", ("__reserved",)), ("antwort_x", ("le",))])
def test_a_metric_that_prometheus_cannot_take_is_refused(metrics: Metrics, name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError, match=f"the metric '{name}' cannot be created: "):
        metrics.histogram(name, "X.", labels)


def test_a_collector_whose_metric_exists_is_refused_and_the_page_stands(metrics: Metrics) -> None:
    metrics.gauge("weather_temperature", "Ours.").set(1)
    with pytest.raises(DefinitionError, match="metric 'weather_temperature' exists already; rename"):
        metrics.register(Temperature())
    assert page(metrics).count("# TYPE weather_temperature gauge") == 1


def test_a_collector_that_describes_itself_is_checked_by_its_description(metrics: Metrics) -> None:
    metrics.counter("weather_calls_total", "Ours.")
    with pytest.raises(DefinitionError, match="metric 'weather_calls' exists already"):
        metrics.register(prometheus_client.Counter("weather_calls", "Theirs.", registry=None))


def test_a_collector_is_registered_once(metrics: Metrics) -> None:
    collector = Temperature()
    metrics.register(collector)
    with pytest.raises(DefinitionError, match=r"Temperature is registered already"):
        metrics.register(collector)


def test_an_unregistered_collector_is_gone_and_its_name_is_free(metrics: Metrics) -> None:
    collector = Temperature()
    metrics.register(collector)
    assert 'weather_temperature{city="Bonn"} 21.5' in page(metrics)
    metrics.unregister(collector)
    assert "weather_temperature" not in page(metrics)
    metrics.register(Temperature())
    with pytest.raises(LookupError, match="Temperature is not registered"):
        metrics.unregister(collector)


def test_own_metrics_can_be_unregistered_too(metrics: Metrics) -> None:
    counter = metrics.counter("antwort_calls_total", "Calls.")
    metrics.unregister(counter)
    assert "antwort_calls" not in page(metrics)
    metrics.counter("antwort_calls_total", "Calls.")


class Odd(BaseException):
    """No error, to Python."""


@pytest.mark.parametrize("accept", [None, OPENMETRICS])
@pytest.mark.parametrize("failure", [RuntimeError("sensor gone"), SystemExit(3), asyncio.CancelledError(), Odd()])
def test_a_failing_collector_is_left_out_and_the_rest_stands(
    metrics: Metrics, accept: str | None, failure: BaseException
) -> None:
    collector = Temperature()
    metrics.register(collector)
    metrics.gauge("antwort_later", "Registered after it.").set(7)
    collector.failure = failure
    text = page(metrics, accept)
    assert "weather_temperature" not in text
    assert "antwort_later 7.0" in text


@pytest.mark.parametrize("accept", [None, OPENMETRICS])
def test_a_sample_that_cannot_be_written_counts_as_a_failure(metrics: Metrics, accept: str | None) -> None:
    collector = Temperature()
    metrics.register(collector)
    collector.value = object()
    text = page(metrics, accept)
    assert "weather_temperature" not in text
    assert "antwort_build_info" in text


def test_a_failing_collector_is_logged_once_per_change(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="antwort.observability.metrics")
    collector = Temperature()
    metrics.register(collector)

    collector.failure = RuntimeError("sensor gone")
    page(metrics)
    page(metrics)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Temperature failed" in caplog.text
    assert "sensor gone" in caplog.text

    collector.failure = OSError("cable gone")
    page(metrics)
    page(metrics)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]

    collector.failure = None
    assert "weather_temperature" in page(metrics)
    page(metrics)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_a_collector_that_fails_already_when_registered_may_recover(metrics: Metrics) -> None:
    collector = Temperature()
    collector.failure = RuntimeError("not started")
    metrics.register(collector)
    assert "weather_temperature" not in page(metrics)
    collector.failure = None
    assert 'weather_temperature{city="Bonn"} 21.5' in page(metrics)
    metrics.unregister(collector)


def test_the_families_of_a_collector_are_not_changed_by_rendering(metrics: Metrics) -> None:
    class Cached(Collector):
        def __init__(self) -> None:
            self.families = [*prometheus_client.Counter("cached", "Cached.", registry=None).collect()]

        @override
        def collect(self) -> list[Metric]:
            return self.families

    cached = Cached()
    metrics.register(cached)
    page(metrics)
    assert [sample.name for sample in cached.families[0].samples] == ["cached_total", "cached_created"]


def test_quick_metrics_are_on_the_page_as_prometheus_own_would_be() -> None:
    pages = []
    for quick in (False, True):
        metrics = Metrics("1")
        if quick:
            counts: Any = metrics.quick_counter("asked_total", "Asked.", ["who"])
            times: Any = metrics.quick_histogram("took_seconds", "Took.", ["who"], buckets=(0.5, 1, 1_000_000))
        else:
            counts = metrics.counter("asked_total", "Asked.", ["who"])
            times = metrics.histogram("took_seconds", "Took.", ["who"], buckets=(0.5, 1, 1_000_000))
        counts.labels("me").inc()
        counts.labels("me").inc()
        counts.labels("nobody")
        for value in (0.1, 0.5, 0.7, 2, 5_000_000):
            times.labels("me").observe(value)
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            page, _ = metrics.render(accept)
            pages.append([line for line in page.decode().splitlines() if "asked" in line or "took" in line])
    assert pages[:2] == pages[2:]
    assert pages[0]


async def test_a_quick_histogram_is_added_up_although_nobody_looks() -> None:
    metrics = Metrics("1")
    series = metrics.quick_histogram("took_seconds", "Took.", ["who"], buckets=(0.5, 1)).labels("me")
    for number in range(4000):
        series.observe(number / 2000)
    watchdog = LoopWatchdog(metrics, 10)
    watchdog.start()
    try:
        async with asyncio.timeout(60):
            while not series.total:  # noqa: ASYNC110 - it is told to nobody
                await asyncio.sleep(0.05)
    finally:
        watchdog.close()
    assert series.counts == [1001, 1000, 1999]
    page, _ = metrics.render("text/plain")
    assert f'took_seconds_sum{{who="me"}} {series.total}' in page.decode()


def test_a_quick_metric_whose_name_is_taken_is_a_definition_error() -> None:
    metrics = Metrics("1")
    metrics.counter("asked_total", "Asked.")
    with pytest.raises(DefinitionError, match="asked"):
        metrics.quick_counter("asked_total", "Asked.", ["who"])
    with pytest.raises(DefinitionError, match="asked"):
        metrics.quick_histogram("asked", "Asked.", ["who"])
