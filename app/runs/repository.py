"""All SQL about runs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.runs.models import IN_PROGRESS, Run, RunState


def find(session: Session, run_id: str) -> Run | None:
    return session.get(Run, run_id)


def find_for_update(session: Session, run_id: str) -> Run | None:
    """The run, locked until the transaction ends (SQLite's write transaction holds the lock already)."""
    return session.get(Run, run_id, with_for_update=True, populate_existing=True)


def has_queued(session: Session) -> bool:
    return session.scalar(select(Run.id).where(Run.state == RunState.QUEUED).limit(1)) is not None


def next_queued(session: Session) -> Run | None:
    """The oldest queued run, locked; one that another worker has locked is passed over."""
    statement = (
        select(Run)
        .where(Run.state == RunState.QUEUED)
        .order_by(Run.created_at, Run.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return session.scalar(statement)


def in_progress_of(session: Session, worker_id: str) -> list[Run]:
    """Runs that a worker claimed and did not finish, locked."""
    statement = select(Run).where(Run.worker_id == worker_id, Run.state.in_(IN_PROGRESS)).with_for_update()
    return list(session.scalars(statement))


def workers_in_progress(session: Session) -> set[str]:
    """The ids of all workers that have a run in progress."""
    found = session.scalars(select(Run.worker_id).where(Run.state.in_(IN_PROGRESS)).distinct())
    return {worker_id for worker_id in found if worker_id is not None}


def record_progress(session: Session, run_id: str, steps_done: int) -> RunState | None:
    """Store the counter and return the state, in which a wish to cancel shows."""
    statement = update(Run).where(Run.id == run_id).values(steps_done=steps_done).returning(Run.state)
    state = session.execute(statement).scalar_one_or_none()
    return None if state is None else RunState(state)


def page(session: Session, before: tuple[datetime, str] | None, limit: int) -> list[Run]:
    """Newest first, from just after the cursor."""
    statement = select(Run).order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)
    if before is not None:
        moment, run_id = before
        statement = statement.where((Run.created_at < moment) | ((Run.created_at == moment) & (Run.id < run_id)))
    return list(session.scalars(statement))
