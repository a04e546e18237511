"""A history that was repeated in bulk is one that commands could have made, and commands go on from it."""

from __future__ import annotations

from sqlalchemy import func, select

from app.context import Context
from app.tables.ledger import Reservation
from benchmarks.ledger import ours, work
from benchmarks.ledger.filling import TEMPLATES, filled_budget
from tests.app.ledger.audit import audit


def test_a_filled_budget_is_what_its_entries_say(context: Context) -> None:
    budget_id = filled_budget(context, 100)
    with context.database.read() as session:
        history = audit(session, budget_id)
        reservations = session.scalar(select(func.count()).select_from(Reservation))
    pairs = 50
    assert history.sequence == 2 * pairs + 1
    assert reservations == pairs
    # Three times each of the sixteen real pairs, then the first two once more.
    counts = [*range(1, TEMPLATES + 1)] * 3 + [1, 2]
    assert sum(event.count for one in history.reservations.values() for event in one.events) == sum(counts)


def test_commands_go_on_from_a_filled_budget(context: Context) -> None:
    budget_id = filled_budget(context, 60)
    before = ours.used(context, budget_id)
    reservation_id = ours.reserve(context, budget_id, [work.event(3)], "reserve")
    assert reservation_id is not None
    ours.commit(context, reservation_id, "commit")
    assert ours.used(context, budget_id) == (before[0] + 3 * 200_000,)
    with context.database.read() as session:
        assert audit(session, budget_id).sequence == 63
