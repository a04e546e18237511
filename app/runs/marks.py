"""Marks say how many steps of a private run may have drawn noise, so that the others may be given up.

A mark is written before its steps draw noise. It follows from public times alone, since the charge of a run that was
cancelled shows it. It is ahead of the schedule, and a worker that is faster than that waits. Without a mark every step
counts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from accounting.events import Event
from app.context import Context
from app.ledger import pricing, rows
from app.ledger.commands import GivenUp
from app.ledger.journal import path_of
from app.reservations.service import get_reservation
from app.tables.runs import MarkedSteps, Run
from calibrators.plan import plan_from_canonical

#: A mark is so many intervals of the schedule ahead: one until the next is written, and one in which that may be late.
INTERVALS_AHEAD = 2


def begin(session: Session, run: Run, steps: int | None) -> None:
    """Mark steps of a charge that starts in this transaction; None where nobody will tell before each of them."""
    if steps is not None:
        session.add(MarkedSteps(run_id=run.id, steps=max(1, steps)))


def go_on(session: Session, run: Run, steps: int | None) -> None:
    """Mark steps for a later claim, never fewer than before; with None, all steps count from now on."""
    marked = of(session, run.id)
    if marked is None:
        return
    if steps is None:
        session.execute(delete(MarkedSteps).where(MarkedSteps.run_id == run.id))
    else:
        raise_to(session, run, max(marked, steps))


def raise_to(session: Session, run: Run, steps: int) -> None:
    """Mark more steps."""
    session.execute(update(MarkedSteps).where(MarkedSteps.run_id == run.id).values(steps=steps))


def of(session: Session, run_id: str) -> int | None:
    """Return how many steps of a run are marked; None where all of them count."""
    return session.scalar(select(MarkedSteps.steps).where(MarkedSteps.run_id == run_id))


class Permits:
    """Steps that may be taken: a worker waits for the mark of the next one.

    Args:
        marked: How many are marked at first; None where all of them count, so that nobody waits.
    """

    def __init__(self, marked: int | None) -> None:
        self.marked = marked
        self._is_over = False
        self._changed = threading.Condition()

    def give(self, marked: int) -> None:
        """Allow more steps, whose mark is in the database."""
        with self._changed:
            self.marked = marked
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody wait any more, because no further step is to be taken."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for(self, step: int) -> None:
        """Wait until the step, counted from 1, may be taken, or no further step is to be."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self.marked is None or self.marked >= step)


@dataclass(frozen=True)
class Rest:
    """The steps that a run gives up where it ends early.

    Attributes:
        marked: The steps that were marked when its worth was found.
        kept: The events of these.
        given_up: What is given back for the others.
    """

    marked: int
    kept: tuple[Event, ...]
    given_up: GivenUp


def rest(context: Context, run_id: str) -> Rest | None:
    """Find what a run that ends early gives up: before its end is written, because it takes numerics.

    Returns:
        None where all of its steps count, or the others are worth nothing.
    """
    with context.database.read() as session:
        run, marked = session.get(Run, run_id), of(session, run_id)
        if run is None or marked is None or marked >= run.steps_total or run.reservation_id is None:
            return None
        state = rows.reservation_state(get_reservation(session, run.reservation_id))
        path = path_of(session, state.budget_id)
    assert path is not None, "a reservation has a budget"
    try:
        kept = plan_from_canonical(run.plan, run.plan_hash).cost_of_prefix(marked)
        terms = path[0].filter, state.cost, state.events, kept, path[0].relation
        given_up = pricing.given_up_within_limits(context, *terms)
    except AccountingError:
        return None
    return None if given_up is None else Rest(marked, kept, given_up)
