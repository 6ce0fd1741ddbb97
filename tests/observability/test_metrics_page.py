"""The metrics of all workers on one page."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from antwort.concurrency.peers import Mailbox, Peers
from antwort.observability import Metrics, MetricsPage


@pytest.fixture
def peers() -> Iterator[list[Peers]]:
    """Two workers."""
    mailboxes = [Mailbox(), Mailbox()]
    yield [Peers(number, mailboxes) for number in range(2)]
    for mailbox in mailboxes:
        mailbox.close()


async def test_of_several_workers_each_series_has_its_worker(peers: list[Peers]) -> None:
    pages = []
    for number, each in enumerate(peers):
        metrics = Metrics("1.0")
        metrics.counter("orders_total", "Orders.", ["kind"]).labels("new").inc(number + 1)
        metrics.histogram("seconds", "Seconds.", buckets=(1.0,)).observe(number)
        metrics.gauge("places", "Places.", ["worker"]).labels("of a provider").set(7)
        pages.append(MetricsPage(metrics, each))
        each.open()
    body, content_type = await pages[1].render(None)
    again, open_metrics = await pages[0].render("application/openmetrics-text")
    for each in peers:
        each.close()
    assert content_type.startswith("text/plain")
    assert open_metrics.startswith("application/openmetrics-text")
    assert again.endswith(b"# EOF\n")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert [(sample.labels, sample.value) for sample in families["orders"].samples] == [
        ({"kind": "new", "worker": "0"}, 1.0),
        ({"kind": "new", "worker": "1"}, 2.0),
    ]
    counts = [sample for sample in families["seconds"].samples if sample.name == "seconds_count"]
    assert [(sample.labels, sample.value) for sample in counts] == [({"worker": "0"}, 1.0), ({"worker": "1"}, 1.0)]
    assert families["places"].samples[0].labels == {"exported_worker": "of a provider", "worker": "0"}
    assert body.decode().count("# TYPE places gauge") == 1


async def test_a_worker_that_does_not_answer_is_missing(peers: list[Peers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antwort.concurrency.peers._PATIENCE", 0.01)
    body, _ = await MetricsPage(Metrics("1.0"), peers[0]).render(None)
    assert b'worker="0"' in body
    assert b'worker="1"' not in body


async def test_of_one_worker_nothing_is_said() -> None:
    body, _ = await MetricsPage(Metrics("1.0"), Peers()).render(None)
    assert b"worker" not in body
