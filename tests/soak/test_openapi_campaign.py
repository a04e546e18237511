"""50000 cases made of the OpenAPI document, as `tests/contract/test_openapi_cases.py` has 1000."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.contract.openapi_cases import campaign
from tests.contract.test_openapi_cases import try_operations
from tests.databases import DatabaseFactory
from tests.soak.report import write_report

CASES = 50_000
#: Of each round, which has a new service and another seed.
EACH, IN_SEQUENCES = 40, 2000


@pytest.mark.soak
def test_every_answer_to_many_cases_is_documented(sqlite_databases: DatabaseFactory, tmp_path: Path) -> None:
    answers: Counter[tuple[str, int]] = Counter()
    rounds = 0
    while answers.total() < CASES:
        rounds += 1
        url = sqlite_databases.migrated()
        with campaign(url, tmp_path / str(rounds), number=1000 + rounds) as found:
            try_operations(found, found.operations, EACH)
            found.try_sequences(IN_SEQUENCES)
        sqlite_databases.drop(url)
        assert not found.faults, "\n".join(found.faults.values())
        answers += found.answers
    statuses: dict[str, dict[str, int]] = {}
    for (operation, status), count in sorted(answers.items()):
        statuses.setdefault(operation, {})[str(status)] = count
    figures = {"cases": answers.total(), "rounds": rounds, "operations": len(statuses), "faults": 0}
    write_report("openapi_cases", "make soak", {**figures, "answers": statuses})
