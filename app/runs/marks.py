"""Marks say how many steps of a private run may have drawn noise, so that the cost of the other steps can be given
back.

A mark is written before its steps draw noise. The charge of a cancelled run shows the last mark, so marks follow from
public times alone. A mark is ahead of the schedule, and a faster worker waits for the next mark. Every step of a run
without marks counts.
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

#: A mark is this many intervals of the schedule ahead: one interval until the next mark is written, and one more
#: because that may be late.
INTERVALS_AHEAD = 2


def begin(session: Session, run: Run, steps: int | None) -> None:
    """Mark the first steps of a charge that starts in this transaction. With None, which means that the executor does
    not report before each step, nothing is marked and all steps count."""
    if steps is not None:
        session.add(MarkedSteps(run_id=run.id, steps=max(1, steps)))


def go_on(session: Session, run: Run, steps: int | None) -> None:
    """Mark steps for a later claim, never fewer than before. With None, all steps count from now on."""
    marked = of(session, run.id)
    if marked is None:
        return
    if steps is None:
        session.execute(delete(MarkedSteps).where(MarkedSteps.run_id == run.id))
    else:
        raise_to(session, run, max(marked, steps))


def raise_to(session: Session, run: Run, steps: int) -> None:
    """Raise the mark of a run to this number of steps."""
    session.execute(update(MarkedSteps).where(MarkedSteps.run_id == run.id).values(steps=steps))


def of(session: Session, run_id: str) -> int | None:
    """Return how many steps of a run are marked; None if all of them count."""
    return session.scalar(select(MarkedSteps.steps).where(MarkedSteps.run_id == run_id))


class Permits:
    """Permission to take steps: a worker waits until the next step is marked.

    Args:
        marked: How many steps are marked at first; None if all of them count, so that nobody waits.
    """

    def __init__(self, marked: int | None) -> None:
        self.marked = marked
        self._is_over = False
        self._changed = threading.Condition()

    def give(self, marked: int) -> None:
        """Allow steps up to a mark that is already in the database."""
        with self._changed:
            self.marked = marked
            self._changed.notify_all()

    def end(self) -> None:
        """Stop all waiting, because no further step will be taken."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for(self, step: int) -> None:
        """Wait until the step, counted from 1, may be taken, or until no further step will be taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self.marked is None or self.marked >= step)


@dataclass(frozen=True)
class Rest:
    """The steps that a run gives up if it ends early.

    Attributes:
        marked: The number of marked steps when the worth of the other steps was computed.
        kept: The events of the marked steps.
        given_up: What is given back for the other steps.
    """

    marked: int
    kept: tuple[Event, ...]
    given_up: GivenUp


def rest(context: Context, run_id: str) -> Rest | None:
    """Compute what a run that ends early gives up. This takes time, so it happens before the end is written.

    Returns:
        None if all steps of the run count, or if the steps that do not count are worth nothing.
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
