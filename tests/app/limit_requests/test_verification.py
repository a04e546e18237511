"""Verification of requests for limits: forged entries whose chains are whole are named, and lost rows come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.db.database import Database
from app.ledger.recovery import rebuild_tables
from tests.app.budgets.conftest import made
from tests.app.ledger import attacks
from tests.app.ledger.attacks import Rows
from tests.app.ledger.test_verification_of_whole_chains import canonical, rechained
from tests.app.ledger.verdicts import first_bad, verdict_on
from tests.app.limit_requests.conftest import People

Record = dict[str, Any]


def forged(database: Database, sequence: int, change: Callable[[Record], None]) -> str:
    """Change one entry, fit all hashes, write the state anew; why the books are refused then."""

    def changed(rows: Rows) -> Rows:
        budget_id = next(row["budget_id"] for row in rows if row["kind"] == "ask")
        row = next(row for row in rows if (row["budget_id"], row["sequence"]) == (budget_id, sequence))
        record = json.loads(bytes(row["canonical"]))
        change(record)
        row["canonical"] = canonical(record)
        row |= {"principal_id": record["principal_id"], "kind": record["kind"]}
        return rechained(rows)

    attacks.rewrite_entries(database, changed)
    bad = first_bad(database)
    assert bad.sequence is not None
    return f"{bad.sequence}: {bad.reason}"


def to(*path: str, value: Any) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        for member in path[:-1]:
            record = record[member]
        record[path[-1]] = value

    return change


def zcdp(rho: str) -> Any:
    return {"kind": "zcdp", "rho": rho}


@pytest.fixture
def approvals() -> int:
    return 2


@pytest.fixture
def entered(people: People) -> People:
    """Entries: 1 create, 2 ask, 3 approve, 4 limit, 5 ask, 6 withdraw, 7 ask, 8 refuse."""
    budget_id = people.budget["id"]
    first = made(people.analyst.ask(budget_id, 2))
    made(people.owner.approve(first))
    made(people.other.approve(first))
    made(people.analyst.withdraw(made(people.analyst.ask(budget_id, 3))))
    made(people.owner.refuse(made(people.analyst.ask(budget_id, 3))))
    kinds = ["create", "ask", "approve", "limit", "ask", "withdraw", "ask", "refuse"]
    assert people.owner.kinds(budget_id) == kinds
    return people


FORGERIES: dict[str, tuple[int, Callable[[Record], None], str]] = {
    "a limit that too few have approved": (
        2, to("details", "approvals_needed", value="3"), "4: the entry sets a limit that"
    ),
    "no approval is needed": (2, to("details", "approvals_needed", value="0"), "2: the entry is a request that nobody"),
    "another limit than was asked for": (
        2, to("details", "filter", value=zcdp("1.5")), "4: the entry sets another limit"
    ),
    "a limit that was never asked for": (
        4, to("details", "limit_request_id", value="lim_other"), "4: the entry is about a request for a limit",
    ),
    "an approval of another request": (
        3, to("details", "limit_request_id", value="lim_other"), "3: the entry is about a request for a limit",
    ),
    "another limit before": (
        2, to("details", "filter_before", value=zcdp("0.5")), "2: the entry says that the budget had"
    ),
    "another kind of filter": (
        2, to("details", "filter", value={"kind": "pure_dp", "epsilon": "2"}), "2: the entry does not have the fields",
    ),
    "an approval that charges": (
        3, to("amounts", value=["5"]), "3: the entry charges something, which an approve never"
    ),
    "a request without a reason": (2, lambda record: record["details"].pop("reason"), "2: the entry does not have"),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.one_in(3)
def test_a_forged_entry_is_named(entered: People, database: Database, forgery: str) -> None:
    assert verdict_on(database).valid
    sequence, change, expected = FORGERIES[forgery]
    assert forged(database, sequence, change).startswith(expected)


def test_somebody_who_approves_their_own_request_is_named(entered: People, database: Database) -> None:
    reason = forged(database, 4, to("principal_id", value=entered.analyst.id))
    assert reason == "4: somebody approves their own request"


def test_two_approvals_of_one_key_are_named(entered: People, database: Database) -> None:
    reason = forged(database, 4, to("principal_id", value=entered.owner.id))
    assert reason == "4: somebody approves a request twice"


def test_a_withdrawal_by_somebody_else_is_named(entered: People, database: Database) -> None:
    reason = forged(database, 6, to("principal_id", value=entered.owner.id))
    assert reason == "6: somebody withdraws a request of somebody else"


def test_a_second_decision_is_named(entered: People, database: Database) -> None:
    [first, *_] = [row for row in attacks.entries(database) if row["kind"] == "ask"]
    asked = json.loads(bytes(first["canonical"]))["details"]["limit_request_id"]
    reason = forged(database, 8, to("details", "limit_request_id", value=asked))
    assert reason == "8: a request for a limit that is approved cannot have the entry refuse"


def test_lost_rows_are_written_anew(entered: People, database: Database) -> None:
    before = attacks.dump(database)
    assert len(before["limit_requests"]) == 3
    attacks.run(
        database,
        "DELETE FROM limit_requests WHERE state = 'refused'",
        "UPDATE limit_requests SET approvals = '[]', reason = 'another' WHERE state = 'approved'",
        "UPDATE limit_requests SET id = 'lim_nobody' WHERE state = 'withdrawn'",
    )
    assert not verdict_on(database).valid
    with database.write() as session:
        assert rebuild_tables(session).limit_requests == 4
    assert attacks.dump(database) == before
    assert verdict_on(database).valid
