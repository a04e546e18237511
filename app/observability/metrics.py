"""Counters and timers of this process for `GET /metrics`, in a registry of its own.

Labels are names from our own code: templates of routes, classes of status codes, evaluators. No text from a caller or a
record ever becomes a label.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.kit import spans

#: The upper ends of the histograms' buckets, in seconds. Cached answers take half a millisecond, and the longest job of
#: another process takes 20 seconds.
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
EVALUATION_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Stands for the route's template if no route was found, since the path is text that the client chose.
NO_ROUTE = "-"


class VerificationResult(StrEnum):
    """The result of a verification of the whole ledger."""

    VALID = "valid"
    INVALID = "invalid"
    """The ledger is not what it wrote, or does not begin with a checkpoint that its own key has signed."""
    OTHER_CHECKPOINT = "other_checkpoint"
    """It does not begin with the checkpoint in the request, which may have been made up."""


def method_of(text: str) -> str:
    """Return the name of a method for logs and labels. All unknown methods get the same name, since they are text that
    the client chose."""
    return text if text in METHODS else "other"


class Metrics:
    """Counters and histograms of one process's context."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Histogram(
            "epsilond_http_request_duration_seconds",
            "Time from a request's first byte to its answer's last.",
            ["method", "route", "status"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._in_progress = Gauge(
            "epsilond_http_requests_in_progress", "Requests that are not answered yet.", registry=self.registry
        )
        self._evaluations = Histogram(
            "epsilond_evaluation_duration_seconds",
            "Time of one value of the engine, by the evaluator that gave its upper bound, calibrations included.",
            ["evaluator"],
            buckets=EVALUATION_BUCKETS,
            registry=self.registry,
        )
        self._replays = Counter(
            "epsilond_idempotency_replays_total",
            "Answers that were given again to a repeated idempotency key.",
            registry=self.registry,
        )
        self._verifications = Counter(
            "epsilond_ledger_verifications_total",
            "Verifications of the whole ledger that this process made, by their result.",
            ["result"],
            registry=self.registry,
        )
        self._webhooks = Counter(
            "epsilond_webhook_attempts_total",
            "Attempts of this process to deliver a message to a webhook, by their results.",
            ["result"],
            registry=self.registry,
        )
        for outcome in ("delivered", "failed", "given_up"):
            self._webhooks.labels(outcome)
        self._witnesses = Counter(
            "epsilond_witness_requests_total",
            "Requests of this process to witnesses to cosign, by their results.",
            ["witness", "result"],
            registry=self.registry,
        )
        self._quota_refusals = Counter(
            "epsilond_quota_refusals_total",
            "Commands that a quota of their key refused, by the quota.",
            ["quota"],
            registry=self.registry,
        )
        for quota in ("entries", "bytes", "open_reservations", "extensions"):
            self._quota_refusals.labels(quota)
        self._last_valid = _LastValid()
        self.registry.register(self._last_valid)
        self._begun = self._in_progress.inc
        self._ended = self._in_progress.dec
        #: The library's histogram for each set of labels. The library's own look-up takes longer than an observation.
        self._children: dict[tuple[str, str, int], Histogram] = {}
        for result in VerificationResult:
            self._verifications.labels(result)

    def request_begun(self) -> None:
        self._begun()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: The method, as `method_of` returns it.
            route: The route's template.
            status: The status of the answer; 0 if there was none.
            seconds: The duration of the request.
        """
        self._ended()
        key = (method, route, status // 100)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._requests.labels(method, route, f"{status // 100}xx")
        child.observe(seconds)

    def replayed(self) -> None:
        """Count an answer that was replayed for its idempotency key."""
        self._replays.inc()

    def refused_by_quota(self, quota: str) -> None:
        """Count a command that a quota refused."""
        self._quota_refusals.labels(quota).inc()

    def evaluated(self, evaluator: str, seconds: float, values: int = 1) -> None:
        """Count values that the engine computed, and the time that they took together."""
        child = self._evaluations.labels(evaluator)
        for _ in range(values):
            child.observe(seconds / values)

    def ledger_verified(self, result: VerificationResult) -> None:
        """Count a verification of the whole ledger."""
        self._verifications.labels(result).inc()
        if result is VerificationResult.VALID:
            self._last_valid.moment = time.time()

    def webhook_attempted(self, result: str) -> None:
        """Count an attempt to deliver a message: ``delivered``, ``failed`` or ``given_up``."""
        self._webhooks.labels(result).inc()

    def witness_asked(self, name: str, result: str, count: int = 1) -> None:
        """Count requests to a witness that the settings name. With a count of 0 the metric appears with the value 0."""
        self._witnesses.labels(name, result).inc(count)

    @contextmanager
    def evaluation(self) -> Iterator[Evaluated]:
        """Measure the time in which the block computes values. If the block raises, nothing is counted."""
        found = Evaluated()
        began = time.perf_counter()
        with spans.part("evaluation"):
            yield found
        if found.evaluator:
            self.evaluated(found.evaluator, time.perf_counter() - began, found.values)


class _LastValid(Collector):
    """The time of the last valid verification. There is no sample before the first verification, since a time of 0
    would mean 1970."""

    moment: float | None = None

    def collect(self) -> Iterable[GaugeMetricFamily]:
        gauge = GaugeMetricFamily(
            "epsilond_ledger_last_valid_verification_timestamp_seconds",
            "When this process last found the whole ledger valid; absent: not since it started.",
        )
        if self.moment is not None:
            gauge.add_metric([], self.moment)
        yield gauge


class Evaluated:
    """The report of a timed block: the evaluator of its last value, and the number of its values."""

    evaluator: str = ""
    values: int = 1
