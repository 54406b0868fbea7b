"""Counts and times of a server, in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Metrics of one server."""

    def __init__(self, waiting: Callable[[], int], connections: Callable[[], int]) -> None:
        """Asks for the number of requests ``waiting`` for their batch, and of ``connections`` in progress."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "vtkit_requests", "Requests answered, by route and status.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "vtkit_request_seconds", "From the head of a request to the end of its answer.", ["route"],
            buckets=SECONDS, registry=self._registry,
        )  # fmt: skip
        self._batches = Histogram(
            "vtkit_batch_requests", "Requests that were computed together.", ["kind"], buckets=REQUESTS,
            registry=self._registry,
        )  # fmt: skip
        self._batch_seconds = Histogram(
            "vtkit_batch_seconds", "Computing one batch.", ["kind"], buckets=SECONDS, registry=self._registry
        )
        Gauge("vtkit_requests_waiting", "Requests that wait for their batch.", registry=self._registry).set_function(
            waiting
        )
        Gauge("vtkit_requests_under_way", "Requests not answered yet.", registry=self._registry).set_function(
            connections
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def computed(self, kind: str, requests: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.labels(kind).observe(requests)
        self._batch_seconds.labels(kind).observe(seconds)

    def text(self) -> bytes:
        """All of them, for Prometheus."""
        return generate_latest(self._registry)
