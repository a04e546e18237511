"""What verification says of the books of a database, and where it found the first bad place."""

from __future__ import annotations

from typing import Any

from app.db.database import Database
from app.ledger.books import BadPlace
from app.ledger.verdicts import Past, Verdict
from app.ledger.verification import verify
from tests.app.ledger.attacks import Rows

#: Of the entries of `lived_in`, one with a neighbour on either side in its own chain.
PLACE = 9


def verdict_on(database: Database, past: Past | None = None) -> Verdict:
    with database.read() as session:
        return verify(session, past=past)


def first_bad(database: Database, past: Past | None = None) -> BadPlace:
    verdict = verdict_on(database, past)
    assert verdict.first_bad is not None
    assert verdict.head is None
    return verdict.first_bad


def where(bad: BadPlace) -> tuple[str | None, int | None, int | None]:
    return bad.budget_id, bad.sequence, bad.leaf_index


def place_of(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["budget_id"], row["sequence"], row["leaf_index"]


def own_chain(rows: Rows, row: dict[str, Any]) -> Rows:
    return [other for other in rows if other["budget_id"] == row["budget_id"]]
