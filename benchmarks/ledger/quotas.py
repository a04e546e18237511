"""`python -m benchmarks.ledger.quotas`: measure commands per second with and without quotas, in turns, on both engines.

A key has quotas, which are counted under a lock of the key. A client of a server without keys has no quotas. Both
clients send the same commands to the same database. The command prints a line for each engine and number of clients.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from app.auth.principal import LOOPBACK, Principal
from benchmarks.ledger import in_turns, ours

KEY = Principal("key_bench", LOOPBACK.scopes)
#: Quotas that are too high to be reached.
QUOTAS = {"entries_per_day": 10**9, "entry_bytes_per_day": 10**15, "open_reservations_per_key": 10**6}


def _compare(url: str, folder: Path, engine: str) -> None:
    with ours.ledger(url, folder, **QUOTAS) as context:
        rate = partial(in_turns.rate, context, in_turns.create_budgets(context))
        in_turns.compare(engine, "quotas", partial(rate, principal=KEY), partial(rate, principal=LOOPBACK))


if __name__ == "__main__":
    in_turns.on_both_engines(_compare)
