"""`python -m benchmarks.ledger.fence`: measure commands per second with and without the fence, in turns, on both
engines.

The fence is a record, kept outside of the database, of everything that the service has acknowledged. Without the fence,
the same process commits the same commands to the same database. So the ratio shows the cost of the fence itself,
including its wait for the disk. The command prints a line for each engine and number of clients.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from app.db.database import Database
from benchmarks.ledger import in_turns, ours


def _compare(url: str, folder: Path, engine: str) -> None:
    with ours.ledger(url, folder) as context:
        budget_ids = in_turns.create_budgets(context)

        def with_fence(clients: int, name: str) -> float:
            return in_turns.rate(context, budget_ids, clients, name)

        def without(clients: int, name: str) -> float:
            with patch.object(Database, "witness", None):
                return in_turns.rate(context, budget_ids, clients, name)

        in_turns.compare(engine, "the fence", with_fence, without)


if __name__ == "__main__":
    in_turns.on_both_engines(_compare)
