"""This module measures one budget from which all clients reserve. It checks that exactly as much is admitted as fits,
and measures the speed and how often commands have to be repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from accounting.filters import PrivacyFilter
from accounting.units import Amounts
from benchmarks.ledger import ours, work
from benchmarks.ledger.postgresql import RETRY_STATES, PostgreSql, query
from benchmarks.ledger.processes import Gate, at_once
from benchmarks.ledger.throughput import new_key, open_budgets

PROCESSES = 2
THREADS = 8
LARGEST_COUNT = 6
COUNTERS = ("xact_commit", "xact_rollback", "deadlocks")


@dataclass(frozen=True, slots=True)
class Spent:
    """The results of one process: the counts of queries that were admitted, the number of reservations that were
    denied, and the times at which the process began and was last admitted, by the machine's monotonic clock.
    """

    admitted: list[int]
    denied: int
    began: float
    last_admitted: float


def fill_one(server: PostgreSql, url: str, data_dir: Path, kind: str, limit: float) -> dict[str, Any]:
    """Fill one budget from `PROCESSES` processes, each with `THREADS` threads, until a single query is denied."""
    (budget_id,) = open_budgets(url, data_dir, kind, limit, 1)
    errors, counters = server.errors(url), _counters(server, url)
    arguments = [(url, data_dir, budget_id, random.randrange(2**32)) for _ in range(PROCESSES)]
    spent = at_once(spend_until_full, arguments)
    errors = server.errors(url) - errors
    admitted = [count for one in spent for count in one.admitted]
    seconds = max(one.last_admitted for one in spent) - min(one.began for one in spent)
    with ours.ledger(url, data_dir) as context:
        used = ours.used(context, budget_id)
    return {
        "filter": kind,
        "limit": limit,
        "processes": PROCESSES,
        "threads": PROCESSES * THREADS,
        "admitted": len(admitted),
        "denied": sum(one.denied for one in spent),
        "seconds": seconds,
        "admitted_per_second": len(admitted) / seconds,
        "exact": fills_exactly(work.privacy_filter(kind, limit), admitted, used),
        "retries": sum(errors[state] for state in RETRY_STATES),
        "errors_by_sqlstate": dict(errors),
        "server_counters": {
            name: after - before for name, before, after in zip(COUNTERS, counters, _counters(server, url), strict=True)
        },
    }


def fills_exactly(privacy_filter: PrivacyFilter, admitted: Sequence[int], used: Amounts) -> bool:
    """Return whether the admitted counts cost what the ledger says, stay within the limit, and leave no room for one
    more query.
    """
    costs = {count: _cost(privacy_filter, count) for count in {1, *admitted}}
    total = privacy_filter.zero
    for count in admitted:
        total = privacy_filter.add(total, costs[count])
    room_is_left = privacy_filter.admits(privacy_filter.add(total, costs[1]))
    # An amount without a known bound is added up without limit in the books, but saturates in the filter.
    spent = privacy_filter.add(privacy_filter.zero, used)
    return total == spent and privacy_filter.admits(total) and not room_is_left


def spend_until_full(gate: Gate, url: str, data_dir: Path, budget_id: str, seed: int) -> Spent:
    """Reserve and commit random counts in each thread. After a denial, reserve single queries until one is denied."""
    with ours.ledger(url, data_dir) as context, ThreadPoolExecutor(THREADS) as pool:

        def spend(number: int) -> tuple[list[int], int, float]:
            draw, largest = random.Random(seed + number), LARGEST_COUNT
            admitted: list[int] = []
            denied, last_admitted = 0, began
            while True:
                count = draw.randint(1, largest)
                reservation_id = ours.reserve(context, budget_id, [work.event(count)], new_key("reserve"))
                if reservation_id is not None:
                    ours.commit(context, reservation_id, new_key("commit"))
                    admitted.append(count)
                    last_admitted = time.monotonic()
                    continue
                denied += 1
                if count == 1:
                    return admitted, denied, last_admitted
                largest = 1

        list(pool.map(lambda _: ours.used(context, budget_id), range(THREADS)))
        gate()
        began = time.monotonic()
        outcomes = list(pool.map(spend, range(THREADS)))
    return Spent(
        admitted=[count for counts, _, _ in outcomes for count in counts],
        denied=sum(denied for _, denied, _ in outcomes),
        began=began,
        last_admitted=max(moment for _, _, moment in outcomes),
    )


def _cost(privacy_filter: PrivacyFilter, count: int) -> Amounts:
    return privacy_filter.cost([work.event(count)], work.RELATION).amounts


def _counters(server: PostgreSql, url: str) -> list[int]:
    """Return PostgreSQL's own statistics of a database, which count all connections that have ended."""
    statement = f"SELECT {', '.join(COUNTERS)} FROM pg_stat_database WHERE datname = '{make_url(url).database}'"
    return list(query(server.url, statement)[0])
