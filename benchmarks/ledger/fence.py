"""`python -m benchmarks.ledger.fence`: commands per second with the fence and without it, in turns, on both engines.

Without it the same process commits the same commands to the same database: what is compared is the cost of the fence
itself, with its wait for the disk. It prints a line for each engine and number of clients.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from app.auth.principal import LOOPBACK, Principal
from app.context import Context
from app.db.database import Database
from benchmarks.http_servers import migrated
from benchmarks.ledger import ours, work
from benchmarks.ledger.postgresql import postgresql

ROUNDS, SECONDS, BUDGETS = 7, 2.0, 16
CLIENTS = (1, 8, 64)


async def rate(
    context: Context, budget_ids: list[str], clients: int, name: str, principal: Principal = LOOPBACK
) -> float:
    """Commands per second: each client reserves and commits, one after the other."""
    end, done = time.perf_counter() + SECONDS, 0

    async def client(number: int) -> None:
        nonlocal done
        count = 0
        while time.perf_counter() < end:
            event = work.event(1 + count % work.COUNTS)
            await ours.spend(context, budget_ids[number % BUDGETS], [event], f"{name} {number} {count}", principal)
            count, done = count + 1, done + 2

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return done / (time.perf_counter() - begun)


def _compare(url: str, folder: Path, engine: str) -> None:
    with ours.ledger(url, folder) as context:
        fence = context.database.witness
        request = work.budget_request("zcdp", 1e6)
        budget_ids = [ours.create_budget(context, request, f"budget {number}") for number in range(BUDGETS)]
        for clients in CLIENTS:
            ratios, rates = [], []
            for number in range(ROUNDS + 1):
                found = {}
                for has_fence in (True, False) if number % 2 else (False, True):
                    name = f"{engine} {clients} {number} {has_fence}"
                    with patch.object(Database, "witness", fence if has_fence else None):
                        found[has_fence] = asyncio.run(rate(context, budget_ids, clients, name))
                if number:  # the first round warms up
                    ratios.append(found[True] / found[False])
                    rates.append(found[True])
            sys.stdout.write(
                f"{engine:10} {clients:3} clients: {statistics.median(rates):7.0f} commands/s with the fence, "
                f"{statistics.median(ratios):.2f} of what it is without ({min(ratios):.2f} to {max(ratios):.2f})\n"
            )
            sys.stdout.flush()


def main() -> None:
    """Measure both engines."""
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        _compare(migrated(f"sqlite:///{folder / 'ledger.sqlite3'}"), folder / "sqlite", "sqlite")
        with postgresql() as server:
            _compare(migrated(server.create_database()), folder / "postgresql", "postgresql")


if __name__ == "__main__":
    main()
