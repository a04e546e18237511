"""Acknowledge that the database has lost entries, for example after a restore: enter the loss, charge what may have
happened in the lost time, and begin a new life of the ledger.

The database does not show what was lost. The fence, a record outside of the database, knows which budgets lost entries
and how many, but not what these entries said. So every pending reservation of such a budget may have been started in
the lost time, and is treated as started. Anything that was both reserved and released in the lost time is unknown.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.canonical import Json
from app.context import Context
from app.entries import registering
from app.entries.kinds import SERVICE, EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.fence import repository
from app.fence.marks import Kept, Loss, Reason
from app.fence.service import leave_out
from app.fence.watching import fence_of
from app.ledger.commands import Command, Commit, EnterLoss, Start, Void
from app.ledger.journal import Instruction, carry_out
from app.ledger.transitions import Transition
from app.runs import artifacts
from app.tables.ledger import Budget, Reservation
from app.tables.runs import Run, RunSweep
from app.tables.states import ENDED, ReservationStatus, RunState, Select, SweepState

RUN_LOST = {
    "code": "database_restored",
    "detail": "The service went on with an older copy of its database, so nobody knows what the run had released. It "
    "was ended; if it may have started, its charge stands in full.",
}


class NothingToAcknowledge(Exception):
    """There is no loss, or the loss is one that a new life would not repair. The message says which."""


@dataclass(frozen=True)
class Acknowledged:
    """The measures taken after a loss.

    Attributes:
        loss: What is known about it.
        life: The number of the life that has begun.
        runs: The number of runs that were ended.
        started: The number of reservations that may have been started in the lost time, and now count as started.
        charged: The number of reservations of runs that were charged in full.
    """

    loss: Loss
    life: int
    runs: int
    started: int
    charged: int

    def in_words(self) -> str:
        """Return sentences that say what was done and what is left to do."""
        return (
            f"{self.loss.in_words()}\nThe loss is entered, and life {self.life} of the ledger has begun. {self.runs} "
            f"run(s) were ended; {self.started} reservation(s) that may have been started count as started; "
            f"{self.charged} of runs were charged in full.\nWhat was released after this copy was made is not in the "
            "books: charge what you know of it by corrections, or close the budgets (docs/operating/fence.md)."
        )


def acknowledge(context: Context, reason: str) -> Acknowledged:
    """Enter the loss of entries, and continue with the database as it is.

    Guarantees:
        - what_may_have_started_is_held: in a budget that lost entries, no reservation is released.
        - entered: every tree of budgets has an entry that says what is known to be missing.

    Args:
        context: The process's context. Servers and workers may run, because they serve nothing.
        reason: The reason for the loss, which every later reader of the ledger sees.

    Raises:
        NothingToAcknowledge: the database is not behind, or the fence belongs to another ledger.
        Unfenced: the fence cannot be read or written.
    """
    loss = fence_of(context).check()
    if loss is None:
        raise NothingToAcknowledge("The database has everything that was acknowledged. Nothing was changed.")
    if loss.reason in (Reason.OTHER_LEDGER, Reason.OTHER_SCHEMA):
        raise NothingToAcknowledge(f"{loss.in_words()} Nothing was changed.")
    life = secrets.token_hex(16)
    with context.database.write() as session:
        connection = session.connection()
        newest = repository.newest_life(connection)
        number = 1 if newest is None else newest[0] + 1
        repository.enter_life(connection, number, life, context.clock(), _in_json(loss))
        runs = _end_runs(session, context)
        session.flush()
        started = _carry_out(session, context, _starts(session, loss))
        charged = _carry_out(session, context, _settlements(session))
        _carry_out(session, context, _entries(session, loss, number, reason))
        # The fence is rewritten below, and refuses this database until then.
        leave_out(connection)
    with context.database.read() as session:
        connection = session.connection()
        fence_of(context).renew(Kept(repository.ledger_id(connection), life, repository.heads(connection)))
    return Acknowledged(loss, number, runs, started, charged)


def _in_json(loss: Loss) -> dict[str, Json]:
    """Return the known facts about the loss as JSON, which is stored for ever."""
    return {
        "cause": str(loss.reason),
        "missing": None
        if loss.acknowledged is None
        else [
            {"budget_id": each.budget_id, "acknowledged": str(each.acknowledged), "found": str(each.found)}
            for each in loss.missing
        ],
    }


def _end_runs(session: Session, context: Context) -> int:
    """End every run and sweep that has not ended, taking locks in the order of `app.runs.lifecycle`."""
    unfinished = select(RunSweep).where(RunSweep.finished_at.is_(None)).order_by(RunSweep.id).with_for_update()
    sweeps = session.scalars(unfinished).all()
    open_runs = select(Run).where(Run.state.not_in(ENDED)).order_by(Run.id).with_for_update()
    runs = session.scalars(open_runs).all()
    now = context.clock()
    for run in runs:
        run.state, run.problem, run.finished_at = RunState.FAILED, RUN_LOST, now
    for sweep in sweeps:
        sweep.outcome, sweep.finished_at = SweepState.FAILED, now
        if sweep.select == Select.BEST:
            # Trials are never shown: neither their results nor why they ended.
            for trial in session.scalars(select(Run).where(Run.sweep_id == sweep.id)):
                artifacts.remove_models(context, trial)
                trial.result = trial.problem = None
    ended = [Registration(EntryKind.END, Subject.RUN, run.id) for run in runs if not run.is_withheld]
    ended += [Registration(EntryKind.END, Subject.SWEEP, sweep.id) for sweep in sweeps]
    registering.enter(session, now, ended)
    return len(runs)


def _starts(session: Session, loss: Loss) -> list[Instruction]:
    """Return commands that start the pending reservations of budgets that lost entries. If nobody knows which budgets
    these are, return commands for all budgets."""
    waiting = select(Reservation.id).where(Reservation.state == ReservationStatus.PENDING).order_by(Reservation.id)
    if loss.acknowledged is not None:
        lost: Collection[str] = [each.budget_id for each in loss.missing]
        waiting = waiting.where(Reservation.budget_id.in_(lost))
    return [_by_service(Start(by_run=True, is_told_late=True), each) for each in session.scalars(waiting)]


def _settlements(session: Session) -> list[Instruction]:
    """Return the commands that settle the reservations of ended runs: a started one is charged in full, a pending one
    is released."""
    of_runs = (
        select(Reservation.id, Reservation.state)
        .where(Reservation.run_id.is_not(None))
        .where(Reservation.state.in_([ReservationStatus.PENDING, ReservationStatus.STARTED]))
        .order_by(Reservation.id)
    )
    return [
        _by_service(Commit(by_run=True) if state == ReservationStatus.STARTED else Void(by_run=True), reservation_id)
        for reservation_id, state in session.execute(of_runs)
    ]


def _entries(session: Session, loss: Loss, number: int, reason: str) -> list[Instruction]:
    """Return one entry for each tree of budgets, with what is known to be missing from it and from budgets that are
    gone."""
    roots = {row.id: row.path.split("/")[0] for row in session.execute(select(Budget.id, Budget.path))}
    instructions = []
    for root in sorted(set(roots.values())):
        of_tree = tuple(each for each in loss.missing if roots.get(each.budget_id, root) == root)
        told = _in_json(Loss(loss.reason, loss.acknowledged, of_tree))
        details: dict[str, Json] = {**told, "life": str(number)}
        instructions.append(_by_service(EnterLoss(reason, details), root))
    return instructions


def _by_service(command: Command, target_id: str) -> Instruction:
    return Instruction(command, SERVICE, target_id)


def _carry_out(session: Session, context: Context, instructions: list[Instruction]) -> int:
    """Carry out all instructions, and return how many entries of kinds that charge there were."""
    outcomes = carry_out(session, context.database, instructions, context.clock()) if instructions else []
    assert all(isinstance(outcome, Transition) for outcome in outcomes), "none of these is ever denied"
    return sum(isinstance(each.command, Start | Commit) for each in instructions)
