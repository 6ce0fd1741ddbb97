"""How many wait in each queue, and how long they have waited."""

from antwort.concurrency.queues import Queue, Queues
from antwort.observability.metrics import Metrics


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
