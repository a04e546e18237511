"""`python -m benchmarks.ledger.quotas`: commands per second with quotas and without them, in turns, on both engines.

A key has quotas, which are counted under a lock of its own; who asks on a server without keys has none. Both send the
same commands to the same database. It prints a line for each engine and number of clients.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from app.auth.principal import LOOPBACK, Principal
from benchmarks.http_servers import migrated
from benchmarks.ledger import ours, work
from benchmarks.ledger.fence import BUDGETS, CLIENTS, ROUNDS, rate
from benchmarks.ledger.postgresql import postgresql

KEY = Principal("key_bench", LOOPBACK.scopes)
#: So high that none is met.
QUOTAS = {"entries_per_day": 10**9, "entry_bytes_per_day": 10**15, "open_reservations_per_key": 10**6}


def _compare(url: str, folder: Path, engine: str) -> None:
    with ours.ledger(url, folder, **QUOTAS) as context:
        request = work.budget_request("zcdp", 1e6)
        budget_ids = [ours.create_budget(context, request, f"budget {number}") for number in range(BUDGETS)]
        for clients in CLIENTS:
            ratios, rates = [], []
            for number in range(ROUNDS + 1):
                found = {}
                for principal in (KEY, LOOPBACK) if number % 2 else (LOOPBACK, KEY):
                    name = f"{engine} {clients} {number}"
                    found[principal.id] = asyncio.run(rate(context, budget_ids, clients, name, principal))
                if number:  # the first round warms up
                    ratios.append(found[KEY.id] / found[LOOPBACK.id])
                    rates.append(found[KEY.id])
            sys.stdout.write(
                f"{engine:10} {clients:3} clients: {statistics.median(rates):7.0f} commands/s with quotas, "
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
