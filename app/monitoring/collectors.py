"""Metrics read at each scrape: the gates, pools and cache of this process, and the tables of the database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.fence.marks import Reason
from app.fence.watching import fence_of
from app.kit.answer_cache import AnswerCache
from app.ledger.amounts import share_used
from app.ledger.cosigning import Standing, standings
from app.ledger.states import plus
from app.ledger.witnesses import witnesses_of
from app.monitoring import repository
from app.runs import liveness

log = structlog.get_logger("epsilond.metrics")

#: The database is queried again after this many seconds, however often metrics are fetched.
BELIEVED_S = 5.0
#: The shares of a limit above which a budget counts as nearly exhausted.
SHARES = (0.8, 0.95)
#: Up to this many nearly exhausted budgets are named one by one.
MOST_NAMED = 20


class ProcessState(Collector):
    """Metrics of gates, pools and the cache, read from memory."""

    def __init__(self, context: Context, answers: AnswerCache) -> None:
        self._context = context
        self._answers = answers

    def collect(self) -> Iterable[Metric]:
        gates = {
            "numerics": self._context.numerics,
            "verifications": self._context.verifications,
            "processes": self._context.processes.gate,
            "audits": self._context.audit_processes.gate,
        }
        for name, words in (("running", "that work"), ("waiting", "that wait for a place")):
            gauge = GaugeMetricFamily(f"epsilond_numerics_{name}", f"Requests {words}, by gate.", labels=["gate"])
            for gate, found in gates.items():
                gauge.add_metric([gate], getattr(found, name))
            yield gauge
        refused = CounterMetricFamily(
            "epsilond_numerics_refused", "Requests that were refused a place, by gate.", labels=["gate"]
        )
        for gate, found in gates.items():
            refused.add_metric([gate], found.refused)
        yield refused
        failed = CounterMetricFamily(
            "epsilond_process_jobs_failed", "Jobs that were ended, by the limit they met.", labels=["pool", "limit"]
        )
        pools = {"processes": self._context.processes, "audits": self._context.audit_processes}
        for name, pool in pools.items():
            for limit, count in pool.failures.items():
                failed.add_metric([name, limit], count)
        yield failed
        loss = fence_of(self._context).loss
        yield GaugeMetricFamily(
            "epsilond_fence_behind",
            "Whether the database lacks what was acknowledged, so that nothing is served.",
            value=float(loss is not None and loss.reason is not Reason.OTHER_SCHEMA),
        )
        yield from self._cache()

    def _cache(self) -> Iterator[Metric]:
        cache = self._answers
        yield CounterMetricFamily("epsilond_cache_hits", "Requests whose answer was remembered.", value=cache.hits)
        yield CounterMetricFamily(
            "epsilond_cache_misses", "Requests whose answer was not remembered.", value=cache.misses
        )
        yield CounterMetricFamily(
            "epsilond_cache_evictions", "Remembered answers that were dropped to make room.", value=cache.evictions
        )
        yield GaugeMetricFamily("epsilond_cache_entries", "Answers that are remembered now.", value=len(cache))
        yield GaugeMetricFamily("epsilond_cache_bytes", "Memory that remembered answers take.", value=cache.held_bytes)


def state_registry(context: Context, answers: AnswerCache) -> CollectorRegistry:
    """Return the registry of values that are read at each scrape. Counters of events are in `Metrics`."""
    registry = CollectorRegistry()
    registry.register(ProcessState(context, answers))
    registry.register(DatabaseState(context))
    return registry


@dataclass(frozen=True)
class Snapshot:
    """The numbers read from the tables, and the time of reading, by the process's own clock."""

    taken: float
    runs: dict[str, int]
    oldest_queued: datetime | None
    overdue: int
    contradicted: int
    shares: list[tuple[str, float]]
    overdrawn: int
    more_budgets: bool
    witnesses: list[Standing]


class DatabaseState(Collector):
    """Metrics of the tables, which are read at most once in `BELIEVED_S` seconds."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._snapshot: Snapshot | None = None

    def collect(self) -> Iterable[Metric]:
        snapshot = self._current()
        yield GaugeMetricFamily(
            "epsilond_database_up", "Whether the database answered.", value=float(snapshot is not None)
        )
        alive = liveness.living_workers(self._context.settings.data_dir)
        yield GaugeMetricFamily("epsilond_workers", "Worker processes of this data folder that live.", value=alive)
        if snapshot is not None:
            yield from _runs(snapshot, self._context.clock())
            yield from _budgets(snapshot)
            yield GaugeMetricFamily(
                "epsilond_reservations_overdue",
                "Reservations that were started and not committed in their time.",
                value=snapshot.overdue,
            )
            yield GaugeMetricFamily(
                "epsilond_audits_contradicting_claim",
                "Audits whose attack showed more privacy loss than was claimed.",
                value=snapshot.contradicted,
            )
            yield from _witnesses(snapshot, self._context)

    def _current(self) -> Snapshot | None:
        known = self._snapshot
        if known is None or time.monotonic() - known.taken > BELIEVED_S:
            try:
                known = _take(self._context)
            except DATABASE_FAILURES as error:
                log.warning("metrics_without_database", error_type=type(error).__name__)
                known = None
            self._snapshot = known
        return known


def _take(context: Context) -> Snapshot:
    with context.database.read() as session:
        budgets = list(repository.budgets(session))
        return Snapshot(
            taken=time.monotonic(),
            runs=repository.runs_by_state(session),
            oldest_queued=repository.oldest_queued(session),
            overdue=repository.overdue_reservations(session, context.clock()),
            contradicted=repository.contradicted_audits(session),
            shares=[
                (budget.id, share_used(budget.filter, plus(budget.spent, plus(budget.started, budget.pending))))
                for budget in budgets[: repository.MOST_BUDGETS]
            ],
            overdrawn=sum(budget.overdrawn for budget in budgets[: repository.MOST_BUDGETS]),
            more_budgets=len(budgets) > repository.MOST_BUDGETS,
            witnesses=standings(session, context),
        )


def _runs(snapshot: Snapshot, now: datetime) -> Iterator[Metric]:
    runs = GaugeMetricFamily(
        "epsilond_runs", "Runs that may be seen, by state; 10000 stands for as many or more.", labels=["state"]
    )
    for state, count in snapshot.runs.items():
        runs.add_metric([state], count)
    yield runs
    age = 0.0 if snapshot.oldest_queued is None else (now - snapshot.oldest_queued).total_seconds()
    yield GaugeMetricFamily(
        "epsilond_oldest_queued_run_age_seconds",
        "How long the run that waits longest has waited; 0: none waits.",
        value=max(0.0, age),
    )


def _witnesses(snapshot: Snapshot, context: Context) -> Iterator[Metric]:
    last = GaugeMetricFamily(
        "epsilond_witness_last_cosigned_timestamp_seconds",
        "When a witness has last cosigned the ledger, by its clock; absent: never.",
        labels=["witness"],
    )
    for each in snapshot.witnesses:
        if each.cosigned_at is not None:
            last.add_metric([each.witness.key.name], each.cosigned_at.timestamp())
    yield last
    yield GaugeMetricFamily(
        "epsilond_witnesses_fresh",
        "Witnesses that have cosigned within three intervals.",
        value=sum(each.is_fresh for each in snapshot.witnesses),
    )
    quorum = witnesses_of(context.settings).quorum
    yield GaugeMetricFamily(
        "epsilond_witness_quorum", "Witnesses that must have cosigned; 0: none are named.", value=quorum
    )


def _budgets(snapshot: Snapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("epsilond_budgets", "Budgets that these metrics cover.", value=len(snapshot.shares))
    yield GaugeMetricFamily(
        "epsilond_budgets_truncated",
        "Whether there are older budgets that these metrics leave out.",
        value=float(snapshot.more_budgets),
    )
    near = GaugeMetricFamily(
        "epsilond_budgets_near_exhaustion",
        "Budgets that have used at least this share of their limit.",
        labels=["share"],
    )
    for share in SHARES:
        near.add_metric([f"{share:g}"], sum(used >= share for _, used in snapshot.shares))
    yield near
    yield GaugeMetricFamily(
        "epsilond_budgets_overdrawn",
        "Budgets whose charges exceed their limit after a correction.",
        value=snapshot.overdrawn,
    )
    named = [(budget_id, used) for budget_id, used in snapshot.shares if used >= SHARES[0]]
    shares = GaugeMetricFamily(
        "epsilond_budget_used_ratio", "Used share of each budget near exhaustion, if there are few.", labels=["budget"]
    )
    for budget_id, used in named if len(named) <= MOST_NAMED else ():
        shares.add_metric([budget_id], used)
    yield shares
