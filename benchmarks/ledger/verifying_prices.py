"""`python -m benchmarks.ledger.verifying_prices`: time the verification of a million entries, with and without prices.

The entries have a thousand different prices of Poisson-sampled Gaussian steps, each with sixteen Renyi orders. Both
times are measured in one run, on one SQLite file. ``--quick`` takes ten thousand entries with a hundred prices.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from accounting.events import Event, Gaussian, Poisson
from app.context import Context
from app.ledger import transparency
from app.ledger.price_search import on_all_cores
from app.ledger.price_verification import PriceClass, PriceVerification
from app.ledger.verdicts import Verdict
from benchmarks.http_servers import migrated
from benchmarks.ledger import ours, work
from benchmarks.ledger.filling import filled_budget

GOAL_S = 300.0
FULL, QUICK = (1_000_000, 1000), (10_000, 100)
ORDERS = [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0]


def _timed(what: str, verify: Callable[[], Verdict]) -> tuple[float, Verdict]:
    started, load, before = time.perf_counter(), os.getloadavg()[0], os.times()
    verdict = verify()
    seconds, after = time.perf_counter() - started, os.times()
    # This is the CPU time of this process and of the processes that found prices: other load on the machine hardly
    # changes it.
    processor = sum(after[:4]) - sum(before[:4])
    assert verdict.valid, verdict.in_words()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    sys.stdout.write(
        f"{what}: {seconds:.1f} s, {processor:.1f} s of processor time (load {load:.1f} before; {memory:.0f} MiB at "
        "most so far)\n"
    )
    sys.stdout.flush()
    return seconds, verdict


def _with_prices(context: Context) -> Verdict:
    with on_all_cores() as search:
        charges = PriceVerification(search)
        return transparency.verified(context, charges=charges).with_prices(charges)


def main() -> None:
    """Fill the ledger, measure, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten thousand entries, with a hundred prices")
    parser.add_argument("--entries", type=int, default=None)
    parser.add_argument("--prices", type=int, default=None)
    arguments = parser.parse_args()
    entries, prices = QUICK if arguments.quick else FULL
    entries, prices = arguments.entries or entries, arguments.prices or prices
    request = work.budget_request("renyi_dp", 1e6)
    request = {**request, "filter": {**request["filter"], "orders": ORDERS}}
    events = [Event(Gaussian(1.0 + number / 1000), Poisson(0.01), 100) for number in range(prices)]
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as name:
        url = migrated(f"sqlite:///{Path(name) / 'priced.sqlite3'}")
        with ours.ledger(url, Path(name)) as context:
            filled_budget(context, entries, request, events)
            transparency.verified(context)  # this call gives the entries their places in the tree
            alone, _ = _timed("verify", lambda: transparency.verified(context))
            both, verdict = _timed("verify --prices", lambda: _with_prices(context))
    assert verdict.prices is not None
    assert verdict.prices.prices == prices
    assert verdict.prices.entries[PriceClass.RIGHT] == sum(verdict.prices.entries.values())
    sys.stdout.write(
        f"{verdict.entries} entries, {prices} different prices, {os.cpu_count()} cores: {both / alone:.2f} times as "
        f"long with prices; under {GOAL_S:g} s: {'met' if both < GOAL_S else 'missed'}\n"
    )


if __name__ == "__main__":
    main()
