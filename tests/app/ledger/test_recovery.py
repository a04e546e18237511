"""Entries rebuild the state: with the state tables gone, they are written anew as they were (P10)."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.ledger.books import BadPlace
from app.ledger.recovery import Rebuilt, rebuild_tables
from tests.app.budgets.conftest import Api, Clock, audit_all, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.scenes import at_random

LOSSES = {
    "amounts": (
        "UPDATE budgets SET spent = '[0]', started = '[0]', pending = '[0]', headroom = 0, overdrawn = FALSE",
        "UPDATE budgets SET filter = '{\"kind\":\"zcdp\",\"rho\":9}', path = 'gone', parent_id = NULL, labels = '{}'",
    ),
    "reservations": ("DELETE FROM reservations",),
    "states of reservations": (
        "UPDATE reservations SET state = 'pending', charged = NULL, charged_events = NULL, resolved_at = NULL",
        "UPDATE reservations SET cost = '[0]', events = '[]', purpose = '', warnings = '[]', mechanisms = ''",
    ),
    "limit requests": (
        "DELETE FROM limit_requests WHERE state = 'refused'",
        "UPDATE limit_requests SET state = 'approved', decided_at = created_at WHERE state = 'open'",
    ),
    "exposed steps": ("DELETE FROM exposed_steps",),
    "counts of exposed steps": ("UPDATE exposed_steps SET count = count + 1",),
    "everything": (
        "DELETE FROM exposed_steps",
        "DELETE FROM limit_requests",
        "DELETE FROM reservations",
        "DELETE FROM budgets",
    ),
}


def rebuilt(database: Database) -> Rebuilt:
    with database.write() as session:
        return rebuild_tables(session)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.one_in(16)
def test_what_is_lost_of_the_state_is_written_anew(
    root: dict[str, Any], client: TestClient, clock: Clock, context: Context, loss: str
) -> None:
    api = Api(client)
    at_random(context, clock, 7, 60)
    before, shown = attacks.dump(context.database), api.read(root["id"])
    assert rebuilt(context.database) == Rebuilt(entries=len(attacks.entries(context.database)))
    attacks.run(context.database, *LOSSES[loss])
    assert attacks.dump(context.database) != before
    done = rebuilt(context.database)
    assert attacks.dump(context.database) == before
    assert api.read(root["id"]) == shown
    if loss == "everything":
        counts = (len(before["budgets"]), len(before["reservations"]))
        assert (done.budgets, done.reservations) == counts
    audit_all(context)
    api.spend(root["id"], [zcdp(0.01)])
    audit_all(context)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 12))])
@pytest.mark.one_in(3)
def test_random_histories_are_rebuilt(context: Context, clock: Clock, seed: int) -> None:
    ids = at_random(context, clock, seed, 120)
    before = attacks.dump(context.database)
    states = {row["state"] for row in before["reservations"]}
    assert states >= {"committed", "started"}, "the history has something to rebuild"
    attacks.run(context.database, *LOSSES["everything"])
    done = rebuilt(context.database)
    assert done.budgets == len(ids)
    assert attacks.dump(context.database) == before
    audit_all(context)


def test_a_tail_that_is_missing_is_not_forgotten(root: dict[str, Any], client: TestClient, database: Database) -> None:
    api = Api(client)
    api.spend(root["id"], [zcdp(0.01)])
    before = attacks.dump(database)
    last = attacks.entries(database)[-1]
    attacks.run(database, f"DELETE FROM entries WHERE leaf_index = {last['leaf_index']}", "DELETE FROM exposed_steps")
    with pytest.raises(BadPlace, match="is missing") as caught:
        rebuilt(database)
    assert (caught.value.budget_id, caught.value.sequence) == (last["budget_id"], last["sequence"])
    after = attacks.dump(database)
    assert (after["budgets"], after["reservations"]) == (before["budgets"], before["reservations"])
    assert after["exposed_steps"] == []


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE entries SET canonical = previous_hash WHERE leaf_index = 5", "not an entry with this hash"),
        ("UPDATE reservations SET id = 'res_x' WHERE purpose = 'spent'", "has no entry that made it"),
        ("UPDATE budgets SET id = 'bud_x' WHERE parent_id IS NULL", "is missing"),
    ],
)
def test_what_the_entries_do_not_explain_is_left_alone(
    root: dict[str, Any], database: Database, statement: str, reason: str
) -> None:
    if "canonical" in statement and not database.is_sqlite:
        statement = statement.replace("previous_hash", "convert_to(previous_hash, 'UTF8')")
    attacks.run(database, statement)
    before = attacks.dump(database)
    with pytest.raises(BadPlace, match=reason):
        rebuilt(database)
    assert attacks.dump(database) == before


def test_only_rows_that_are_wrong_are_written(root: dict[str, Any], database: Database) -> None:
    attacks.run(database, "UPDATE reservations SET purpose = 'another' WHERE purpose IN ('spent', 'part')")
    assert rebuilt(database) == Rebuilt(entries=len(attacks.entries(database)), reservations=2)
