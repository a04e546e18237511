"""All SQL about runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, CursorResult, case, func, select, update
from sqlalchemy.orm import Session, load_only

from app.runs.turns import turns_of
from app.tables.runs import Audit, Run, RunSweep
from app.tables.states import ENDED, IN_PROGRESS, RunState, Select


@dataclass(frozen=True)
class Lease:
    """The signs of life of a worker that holds a run: the number of its claim and the counter of its heartbeats."""

    run_id: str
    worker_id: str
    epoch: int
    heartbeat: int


# A sweep for the best run releases only that run, whatever the flags of its trials say.
_IS_RELEASED = Run.sweep_id.is_(None) | (
    select(RunSweep.id)
    .where(RunSweep.id == Run.sweep_id, (RunSweep.select == Select.ALL) | (RunSweep.best_run_id == Run.id))
    .exists()
)
_MAY_BE_SEEN = ~Run.is_withheld & _IS_RELEASED


def find(session: Session, run_id: str) -> Run | None:
    """Return a run that may be seen."""
    return session.scalar(select(Run).where(Run.id == run_id, _MAY_BE_SEEN))


def find_for_update(session: Session, run_id: str) -> Run | None:
    """Return any run, locked until the transaction ends (SQLite's write transaction holds the lock already)."""
    return session.get(Run, run_id, with_for_update=True, populate_existing=True)


def newest_audits(session: Session, run_id: str, limit: int) -> list[Audit]:
    statement = select(Audit).where(Audit.run_id == run_id)
    return list(session.scalars(statement.order_by(Audit.created_at.desc(), Audit.id.desc()).limit(limit)))


def has_queued(session: Session) -> bool:
    return session.scalar(select(Run.id).where(Run.state == RunState.QUEUED).limit(1)) is not None


def count_queued(session: Session, principal_id: str) -> int:
    """Count a key's runs that wait for a worker. The hidden trials of a sweep count as one run."""
    statement = select(func.count()).where(
        Run.state == RunState.QUEUED, Run.principal_id == principal_id, ~Run.is_withheld
    )
    return session.scalar(statement) or 0


def next_queued(session: Session) -> Run | None:
    """Return and lock the oldest queued run of the queue whose turn it is, skipping runs that another worker has
    locked."""
    # The trials of each sweep have a queue of their own, so that other runs of the budget do not delay every trial.
    queue = func.coalesce(case((Run.is_withheld, Run.sweep_id)), Run.budget_id, Run.principal_id)
    is_queued = Run.state == RunState.QUEUED
    waiting = select(queue).where(is_queued).group_by(queue).order_by(func.min(Run.created_at), func.min(Run.id))
    turns = turns_of(session.get_bind())
    for each in turns.order(session.scalars(waiting).all()):
        statement = (
            select(Run)
            .where(is_queued, queue == each)
            .order_by(Run.created_at, Run.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        run = session.scalar(statement)
        if run is not None:
            turns.serve(each)
            return run
    return None


def progress_of(session: Session, run_ids: Sequence[str]) -> list[Run]:
    """Read the parts of these runs that change while they are carried out, without their plans."""
    columns = (Run.id, Run.state, Run.steps_done, Run.steps_total, Run.problem)
    statement = select(Run).where(Run.id.in_(run_ids)).options(load_only(*columns))
    return list(session.scalars(statement))


def in_progress_of(session: Session, worker_id: str) -> list[Run]:
    """Return and lock the runs that a worker claimed and did not finish, in the order of their ids."""
    statement = select(Run).where(Run.worker_id == worker_id, Run.state.in_(IN_PROGRESS)).order_by(Run.id)
    return list(session.scalars(statement.with_for_update()))


def leases(session: Session) -> list[Lease]:
    """Return the leases of all runs in progress, as they are now."""
    found = session.execute(select(Run.id, Run.worker_id, Run.epoch, Run.heartbeat).where(Run.state.in_(IN_PROGRESS)))
    return [Lease(run, worker, epoch, heartbeat) for run, worker, epoch, heartbeat in found if worker is not None]


def find_unchanged(session: Session, lease: Lease) -> Run | None:
    """Return and lock the run if its lease has not changed since it was seen. None if the lease has changed, or while
    somebody else has the lock."""
    statement = (
        select(Run)
        .where(
            Run.id == lease.run_id,
            Run.epoch == lease.epoch,
            Run.heartbeat == lease.heartbeat,
            Run.state.in_(IN_PROGRESS),
        )
        .with_for_update(skip_locked=True)
    )
    return session.scalar(statement)


def raise_heartbeat(session: Session, claimed: Run) -> bool:
    """Record that the claim's worker is alive; return False if another claim has the run."""
    statement = update(Run).where(*_held_by(claimed)).values(heartbeat=Run.heartbeat + 1)
    result = session.execute(statement, execution_options={"synchronize_session": False})
    assert isinstance(result, CursorResult)
    return result.rowcount == 1


def record_progress(session: Session, claimed: Run, steps_done: int) -> RunState | None:
    """Store the counter and return the state, which shows a request to cancel; None if the claim is lost."""
    statement = update(Run).where(*_held_by(claimed)).values(steps_done=steps_done).returning(Run.state)
    state = session.execute(statement).scalar_one_or_none()
    return None if state is None else RunState(state)


def _held_by(claimed: Run) -> tuple[ColumnElement[bool], ...]:
    return (
        Run.id == claimed.id,
        Run.epoch == claimed.epoch,
        Run.worker_id == claimed.worker_id,
        Run.state.in_(IN_PROGRESS),
    )


def ended_among(session: Session, run_ids: Collection[str]) -> list[Run]:
    """Return the runs among these that have ended, without their plans."""
    statement = select(Run).where(Run.id.in_(run_ids), Run.state.in_(ENDED))
    return list(session.scalars(statement.options(load_only(Run.id, Run.state, Run.epoch))))


def page(session: Session, before: tuple[datetime, str] | None, limit: int, within: ColumnElement[bool]) -> list[Run]:
    """Return a page of the runs that the reader may see, newest first, beginning after the cursor."""
    statement = select(Run).where(_MAY_BE_SEEN, within).order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)
    if before is not None:
        moment, run_id = before
        statement = statement.where((Run.created_at < moment) | ((Run.created_at == moment) & (Run.id < run_id)))
    return list(session.scalars(statement))
