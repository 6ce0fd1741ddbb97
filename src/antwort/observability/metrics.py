"""Prometheus metrics, one registry per app, so that two apps can live in one process."""

import logging
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from antwort.concurrency.peers import Peers
from antwort.concurrency.slots import Queue, Queues
from antwort.errors import DefinitionError
from antwort.observability.quick_metrics import QuickCounter, QuickHistogram

DURATION_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
"""Seconds, from a cached lookup to a slow model."""

_MANY = 1000
"""Values that a histogram of the hot path keeps before it is worth while to add them up."""
Q = TypeVar("Q", bound=Collector)
_CURE = "rename one of the two, or create it once and share the object"

logger = logging.getLogger(__name__)


class Metrics:
    """The metrics of one app.

    Own metrics come from `counter`, `gauge` and `histogram`, those of the hot path from `quick_counter` and
    `quick_histogram`. Collectors written by others go through `register`: one that fails while being scraped is logged
    and left out, the rest of the page stands.
    """

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self._guards: dict[int, _Guard] = {}
        self._quick: list[QuickHistogram] = []
        ProcessCollector(registry=self.registry)
        build = self.gauge("antwort_build_info", "The running version; the value is always 1.", ("version", "python"))
        build.labels(version, platform.python_version()).set(1)

    def counter(self, name: str, documentation: str, labelnames: Iterable[str] = ()) -> Counter:
        """Create a counter. The name may end in `_total`; the exposed one always does."""
        try:
            return Counter(name, documentation, labelnames, registry=self.registry)
        except ValueError as error:
            raise self._definition_error(name, error) from error

    def gauge(self, name: str, documentation: str, labelnames: Iterable[str] = ()) -> Gauge:
        """Create a gauge."""
        try:
            return Gauge(name, documentation, labelnames, registry=self.registry)
        except ValueError as error:
            raise self._definition_error(name, error) from error

    def histogram(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        *,
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> Histogram:
        """Create a histogram; the default buckets fit durations in seconds."""
        try:
            return Histogram(name, documentation, labelnames, registry=self.registry, buckets=buckets)
        except ValueError as error:
            raise self._definition_error(name, error) from error

    def quick_counter(self, name: str, documentation: str, labelnames: Sequence[str]) -> QuickCounter:
        """Create a counter for the hot path, to be used on one event loop."""
        return self._added(name, QuickCounter(name, documentation, labelnames))

    def quick_histogram(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str],
        *,
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> QuickHistogram:
        """Create a histogram for the hot path, to be used on one event loop."""
        histogram = self._added(name, QuickHistogram(name, documentation, labelnames, buckets))
        self._quick.append(histogram)
        return histogram

    def add_up(self) -> None:
        """Let the histograms of the hot path count what they have taken, if that is much: they keep it until then."""
        for histogram in self._quick:
            histogram.add_up(_MANY)

    def _added(self, name: str, collector: Q) -> Q:
        try:
            self.registry.register(collector)
        except ValueError as error:
            raise self._definition_error(name, error) from error
        return collector

    def register(self, collector: Collector, owner: str | None = None) -> None:
        """Add a collector written elsewhere, by the provider that owns it if one does.

        Its metric names are read from `describe()` or, without one, from a first `collect()`.
        """
        if id(collector) in self._guards:
            raise DefinitionError(f"the collector {_name_of(collector)} is registered already; register it once")
        guard = _Guard(collector, owner)
        try:
            self.registry.register(guard)
        except ValueError as error:
            raise self._definition_error(None, error) from error
        self._guards[id(collector)] = guard

    def unregister(self, collector: Collector) -> None:
        """Remove a collector or a metric; its names become free. Raise LookupError if it is not registered."""
        guard = self._guards.pop(id(collector), None)
        try:
            self.registry.unregister(guard or collector)
        except KeyError:
            raise LookupError(f"the collector {_name_of(collector)} is not registered") from None

    def _definition_error(self, name: str | None, error: ValueError) -> DefinitionError:
        """Name the metric and the cure. `name` is None for a collector, whose names only the error knows."""
        duplicates: Collection[str] = getattr(error, "duplicates", ())
        if duplicates or "Duplicated timeseries" in str(error):
            # Before 0.26 only the text of the error has the names.
            taken = name or min(duplicates or re.findall(r"'([^']+)'", str(error)), key=len, default=str(error))
            owner = None if name is None else self._owner(name.removesuffix("_total"))
            if owner is not None:
                return DefinitionError(f"providers.{owner}: its metric '{taken}' is one of the server's own; rename it")
            return DefinitionError(f"the metric '{taken}' exists already; {_CURE}")
        return DefinitionError(f"the metric '{name}' cannot be created: {error}")

    def _owner(self, name: str) -> str | None:
        """Return who has registered a metric that clashes with a name."""
        for guard in self._guards.values():
            if guard.owner and any(one.name.startswith(name) or name.startswith(one.name) for one in guard.describe()):
                return guard.owner
        return None

    def families(self) -> list[Metric]:
        """Return all metrics as they are now."""
        return list(_WithoutCreated(self.registry).collect())

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return the page and its content type, as `rendered` does."""
        return rendered(_WithoutCreated(self.registry), accept)


def rendered(collector: Collector, accept: str | None) -> tuple[bytes, str]:
    """Return a page and its content type: OpenMetrics if the Accept header asks for it, else the text format."""
    try:
        encode, content_type = choose_encoder(accept or "")
    except TypeError:  # a version that is not a number, which prometheus_client compares with one
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return encode(collector), content_type


class _WithoutCreated(Collector):
    """A view of a registry without the `_created` series, which double the page and which few dashboards read.

    prometheus_client only has a process-wide switch for them.
    """

    def __init__(self, inner: Collector) -> None:
        self._inner = inner

    @override
    def collect(self) -> Iterator[Metric]:
        for family in self._inner.collect():
            if family.type in {"counter", "histogram", "summary"}:
                created = f"{family.name}_created"
                visible = copy(family)  # a foreign collector may keep and reuse its families
                visible.samples = [sample for sample in family.samples if sample.name != created]
                yield visible
            else:
                yield family


class Families(Collector):
    """Families already collected."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterable[Metric]:
        return self._families


class _Guard(Collector):
    """A foreign collector that yields nothing when it fails, and says so once until that changes."""

    def __init__(self, inner: Collector, owner: str | None) -> None:
        self._inner = inner
        self.owner = owner
        self._failure: type[BaseException] | None = None

    def describe(self) -> Iterable[Metric]:
        """Return the families it will produce, for the check of names."""
        describe = getattr(self._inner, "describe", None)
        return self.collect() if describe is None else describe()

    @override
    def collect(self) -> Iterable[Metric]:
        try:
            families = list(self._inner.collect())
            # A malformed sample only shows when it is written, and would then take the whole page with it.
            for accept in ("text/plain", "application/openmetrics-text"):
                encode, _ = choose_encoder(accept)
                encode(Families(families))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it may want to end the process, which is not its business
            if type(error) is not self._failure:
                self._failure = type(error)
                logger.warning("collector %s failed and is left out of /metrics", _name_of(self._inner), exc_info=True)
            return []
        if self._failure is not None:
            self._failure = None
            logger.info("collector %s is back in /metrics", _name_of(self._inner))
        return families


def _name_of(collector: Collector) -> str:
    kind = type(collector)
    return f"{kind.__module__}.{kind.__qualname__}"


def measure_queues(metrics: Metrics, queues: Queues) -> None:
    """Show all queues of an app, those to come included. Tenants are no label: there may be any number."""
    waiting = metrics.gauge(
        "antwort_queue_waiting", "Requests, calls and files that wait in a queue for their turn.", ["queue"]
    )
    waited = metrics.quick_histogram(
        "antwort_queue_wait_seconds", "Seconds that those had waited in a queue who had to wait at all.", ["queue"]
    )

    def measure(queue: Queue) -> None:
        waiting.labels(queue.name).set_function(lambda: queue.waiting)
        queue.observe = waited.labels(queue.name).observe

    queues.on_new = measure
    for queue in queues.by_name.values():
        measure(queue)


def measure_runs(
    metrics: Metrics, active: Callable[[], int], waiting: Callable[[], int], workers: Callable[[], int]
) -> Callable[[], None]:
    """Show how many background runs there are, and who is there for them; return what counts one that was taken up."""
    states = metrics.gauge(
        "antwort_background_responses",
        "Background responses that this worker works on, and those of the database that wait for a worker.",
        ["state"],
    )
    states.labels("active").set_function(active)
    states.labels("waiting").set_function(waiting)
    alive = "Workers on the database that are alive, this one included."
    metrics.gauge("antwort_live_workers", alive).set_function(workers)
    taken = "Background responses that were taken up because nobody worked on them any more."
    return metrics.counter("antwort_takeovers_total", taken).inc


# --- the page of metrics of a server, whichever of its workers is asked for it ---------------------------------------


_QUESTION = "metrics"
_LABEL = "worker"
_THEIRS = "exported_worker"
"""What a label is renamed to that has our name; it is what Prometheus calls those, too."""


class _Sample(msgspec.Struct, array_like=True):
    """A number of a metric."""

    name: str
    labels: dict[str, str]
    value: float


class _Family(msgspec.Struct, array_like=True):
    """A metric, on its way from one worker to another."""

    name: str
    documentation: str
    type: str
    unit: str
    samples: list[_Sample]


class MetricsPage:
    """The metrics of all workers: of several, each series has its worker as a label.

    They are not summed up: the counters of a worker that was started again begin anew, and only who sees them apart can
    tell that from a counter that runs backwards. `sum without (worker)` is the sum.
    """

    def __init__(self, metrics: Metrics, peers: Peers) -> None:
        self._metrics = metrics
        self._peers = peers
        self._decoder = msgspec.msgpack.Decoder(list[_Family])
        peers.answer(_QUESTION, self._own)

    async def render(self, accept: str | None) -> tuple[bytes, str]:
        """Return the page and its content type; a worker that does not answer is missing."""
        if self._peers.count == 1:
            return self._metrics.render(accept)
        pages = {self._peers.number: self._own(), **await self._peers.ask(_QUESTION)}
        decoded = {number: self._decoder.decode(page) for number, page in sorted(pages.items())}
        return rendered(Families(_together(decoded)), accept)

    def _own(self) -> bytes:
        families = [
            _Family(
                family.name,
                family.documentation,
                family.type,
                family.unit,
                [_Sample(sample.name, dict(sample.labels), float(sample.value)) for sample in family.samples],
            )
            for family in self._metrics.families()
        ]
        return msgspec.msgpack.encode(families)


def _together(pages: Mapping[int, Iterable[_Family]]) -> list[Metric]:
    """Return the metrics of all workers, each metric once."""
    together: dict[str, Metric] = {}
    for number, families in pages.items():
        for family in families:
            known = together.get(family.name)
            if known is None:
                known = Metric(family.name, family.documentation, family.type, family.unit)
                together[family.name] = known
            for sample in family.samples:
                labels = {_THEIRS if name == _LABEL else name: value for name, value in sample.labels.items()}
                known.add_sample(sample.name, {**labels, _LABEL: str(number)}, sample.value)
    return list(together.values())
