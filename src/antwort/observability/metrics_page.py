"""The page of metrics of a server, whichever of its workers is asked for it."""

from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client.metrics_core import Metric

from antwort.observability.metrics import Families, Metrics, rendered
from antwort.workers.peers import Peers

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
