"""Every race of `tests/concurrency` again and again, with other costs, orders and histories each time.

A report is written only when every limit held, nothing was denied that fitted, every history had a serial order, every
command one effect and one answer, every reservation one end, and no database reported a conflict.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings
from tests.concurrency.spending import Attempt, spend_alone, spend_either_way, spend_in_groups
from tests.concurrency.test_budget_race import race_for_a_renyi_budget, race_for_a_zcdp_budget
from tests.concurrency.test_linearization import check_histories
from tests.concurrency.test_resolution_race import resolve_everywhere
from tests.concurrency.test_retry_race import send_often_and_everywhere
from tests.concurrency.test_tree_race import LOOSE, TIGHT, race_in_a_tree, send_batches_everywhere
from tests.databases import DatabaseFactory
from tests.soak.report import write_report

ROUNDS = 15
HISTORIES_PER_ROUND = 60
#: Further apart than the seeds of one race's processes.
NEXT_SEED = 100

FILL: list[Callable[..., list[Attempt]]] = [
    *(partial(race_for_a_zcdp_budget, spend=way) for way in (spend_alone, spend_in_groups, spend_either_way)),
    race_for_a_renyi_budget,
    *(partial(race_in_a_tree, given=limits) for limits in (LOOSE, TIGHT)),
]


@contextmanager
def new_context(databases: DatabaseFactory, folder: Path) -> Iterator[Context]:
    """A context with a database and a data folder of its own: the fence there is of that database."""
    url = databases.migrated()
    database = Database(url)
    try:
        data_dir = Path(tempfile.mkdtemp(dir=folder))
        yield fenced_context(Settings(data_dir=data_dir, database_url=url, workers=0), database)
    finally:
        database.dispose()
        databases.drop(url)


def run_round(databases: DatabaseFactory, folder: Path, loop: BlockingPortal, number: int) -> Counter[str]:
    """Every race once; what was counted. Whatever is not as promised raises."""
    seed, first = NEXT_SEED * (1 + number), number * HISTORIES_PER_ROUND
    counted: Counter[str] = Counter()
    for race in FILL:
        with new_context(databases, folder) as context:
            attempts = race(context, seed=seed)
        counted["attempts"] += len(attempts)
        counted["admitted"] += sum(attempt.was_admitted for attempt in attempts)
    with new_context(databases, folder) as context:
        counted["commands_in_batches"] += send_batches_everywhere(context, seed)
    with new_context(databases, folder) as context:
        answers = send_often_and_everywhere(context, seed)
        counted["repeated_commands"] += len(answers)
        counted["answers_to_them"] += sum(map(len, answers.values()))
    with new_context(databases, folder) as context:
        for state, count in resolve_everywhere(context, loop).items():
            counted[f"reservations_{state}"] += count
    with new_context(databases, folder) as context:
        check_histories(context, loop, range(first, first + HISTORIES_PER_ROUND))
        counted["histories"] += HISTORIES_PER_ROUND
    return counted


@pytest.mark.soak
def test_races_of_many_seeds_keep_every_promise(
    request: pytest.FixtureRequest, databases: DatabaseFactory, tmp_path: Path
) -> None:
    counted: Counter[str] = Counter(rounds=ROUNDS)
    with start_blocking_portal() as loop:
        for number in range(ROUNDS):
            counted += run_round(databases, tmp_path, loop, number)
    engine = request.node.callspec.params["databases"]
    write_report(f"race_{engine}", "make soak", dict(counted))
