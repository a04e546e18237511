"""This module compares the rates of the same commands with and without a feature, in turns, on SQLite and
PostgreSQL."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.auth.principal import LOOPBACK, Principal
from app.context import Context
from benchmarks.http_servers import migrated
from benchmarks.ledger import ours, work
from benchmarks.ledger.postgresql import postgresql

_ROUNDS, _SECONDS, _BUDGETS = 7, 2.0, 16
_CLIENTS = (1, 8, 64)

#: A function from a number of clients and a name to the commands per second of these clients. The name begins the
#: idempotency keys of the commands.
Rate = Callable[[int, str], float]


def create_budgets(context: Context) -> list[str]:
    """Create the budgets that are charged, and return their ids."""
    request = work.budget_request("zcdp", 1e6)
    return [ours.create_budget(context, request, f"budget {number}") for number in range(_BUDGETS)]


def rate(context: Context, budget_ids: list[str], clients: int, name: str, principal: Principal = LOOPBACK) -> float:
    """Return the commands per second of several clients, each of which reserves and commits again and again."""
    return asyncio.run(_rate(context, budget_ids, clients, name, principal))


async def _rate(context: Context, budget_ids: list[str], clients: int, name: str, principal: Principal) -> float:
    end, done = time.perf_counter() + _SECONDS, 0

    async def client(number: int) -> None:
        nonlocal done
        count = 0
        while time.perf_counter() < end:
            event = work.event(1 + count % work.COUNTS)
            await ours.spend(context, budget_ids[number % _BUDGETS], [event], f"{name} {number} {count}", principal)
            count, done = count + 1, done + 2

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return done / (time.perf_counter() - begun)


def compare(engine: str, what: str, with_it: Rate, without: Rate) -> None:
    """Print a line for each number of clients: the rate with ``what``, and this rate divided by the rate without it."""
    for clients in _CLIENTS:
        ratios, rates = [], []
        for number in range(_ROUNDS + 1):
            name = f"{engine} {clients} {number}"
            found = {}
            for has_it in (True, False) if number % 2 else (False, True):
                found[has_it] = (with_it if has_it else without)(clients, f"{name} {has_it}")
            if number:  # the first round is a warm-up
                ratios.append(found[True] / found[False])
                rates.append(found[True])
        sys.stdout.write(
            f"{engine:10} {clients:3} clients: {statistics.median(rates):7.0f} commands/s with {what}, "
            f"{statistics.median(ratios):.2f} of the rate without ({min(ratios):.2f} to {max(ratios):.2f})\n"
        )
        sys.stdout.flush()


def on_both_engines(measure: Callable[[str, Path, str], None]) -> None:
    """Call ``measure`` with the URL of an empty ledger, a folder, and the engine's name, for each engine."""
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        measure(migrated(f"sqlite:///{folder / 'ledger.sqlite3'}"), folder / "sqlite", "sqlite")
        with postgresql() as server:
            measure(migrated(server.create_database()), folder / "postgresql", "postgresql")
