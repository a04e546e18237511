"""All SQL about sweeps of runs, and about the runs of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, defer

from app.tables.runs import Run, RunSweep, RunSweepCell
from app.tables.states import ENDED, RunState, Select


def find(session: Session, sweep_id: str) -> RunSweep | None:
    return session.get(RunSweep, sweep_id)


def find_for_update(session: Session, sweep_id: str) -> RunSweep:
    """Return the sweep of a run, locked until the transaction ends."""
    return session.get_one(RunSweep, sweep_id, with_for_update=True, populate_existing=True)


def page(
    session: Session, before: tuple[datetime, str] | None, limit: int, within: ColumnElement[bool]
) -> list[RunSweep]:
    """Return a page of the sweeps that the reader may see, newest first, beginning after the cursor."""
    statement = select(RunSweep).where(within).order_by(RunSweep.created_at.desc(), RunSweep.id.desc()).limit(limit)
    if before is not None:
        moment, sweep_id = before
        statement = statement.where(
            (RunSweep.created_at < moment) | ((RunSweep.created_at == moment) & (RunSweep.id < sweep_id))
        )
    return list(session.scalars(statement))


def unfinished(session: Session) -> list[str]:
    return list(session.scalars(select(RunSweep.id).where(RunSweep.finished_at.is_(None)).order_by(RunSweep.id)))


def count_waiting(session: Session, principal_id: str) -> int:
    """Count a key's sweeps that release only the best run and have not ended; each counts as one waiting run."""
    statement = select(func.count()).where(
        RunSweep.finished_at.is_(None), RunSweep.principal_id == principal_id, RunSweep.select == Select.BEST
    )
    return session.scalar(statement) or 0


def plan_hashes(session: Session, sweep_id: str) -> list[str]:
    """Return the plan hashes of all cells, in their order."""
    statement = select(RunSweepCell.plan_hash).where(RunSweepCell.sweep_id == sweep_id).order_by(RunSweepCell.number)
    return list(session.scalars(statement))


def cells(session: Session, sweep_id: str) -> list[RunSweepCell]:
    """Return all cells in order, without the drafts of trials."""
    statement = (
        select(RunSweepCell)
        .where(RunSweepCell.sweep_id == sweep_id)
        .order_by(RunSweepCell.number)
        .options(defer(RunSweepCell.draft))
    )
    return list(session.scalars(statement))


def whole_cells(session: Session, sweep_id: str) -> Iterator[tuple[Any, ...]]:
    """Yield the stored values of each cell, in order, for `app.entries.registered.hash_of_cells`."""
    columns = (RunSweepCell.number, RunSweepCell.values, RunSweepCell.plan_hash, RunSweepCell.achieved)
    statement = select(*columns, RunSweepCell.draft).where(RunSweepCell.sweep_id == sweep_id)
    for row in session.execute(statement.order_by(RunSweepCell.number)):
        yield tuple(row)


def cell(session: Session, sweep_id: str, number: int) -> RunSweepCell:
    return session.get_one(RunSweepCell, (sweep_id, number))


def drafts(session: Session, sweep_id: str) -> list[dict[str, Any]]:
    """Return the drafts from which trials are made, for all cells in their order."""
    statement = select(RunSweepCell.draft).where(RunSweepCell.sweep_id == sweep_id).order_by(RunSweepCell.number)
    return [draft for draft in session.scalars(statement) if draft is not None]


def schedule_of_trials(session: Session, sweep_id: str) -> dict[str, Any] | None:
    """Return the schedule that the trials of a sweep on private data share; None before the first trial was claimed."""
    statement = select(Run.schedule).where(Run.sweep_id == sweep_id, Run.schedule.is_not(None)).limit(1)
    return session.scalar(statement)


def count_cells(session: Session, sweep_id: str) -> int:
    return session.scalar(select(func.count()).where(RunSweepCell.sweep_id == sweep_id)) or 0


def run_ids(session: Session, sweep_id: str) -> set[str]:
    return set(session.scalars(select(Run.id).where(Run.sweep_id == sweep_id)))


def has_open_runs(session: Session, sweep_id: str) -> bool:
    """Return whether a run of the sweep has not ended."""
    statement = select(Run.id).where(Run.sweep_id == sweep_id, Run.state.not_in(ENDED)).limit(1)
    return session.scalar(statement) is not None


def open_runs_for_update(session: Session, sweep_id: str) -> Sequence[Run]:
    """Return the runs that have not ended, locked in the order of their ids."""
    statement = select(Run).where(Run.sweep_id == sweep_id, Run.state.not_in(ENDED)).order_by(Run.id)
    return session.scalars(statement.with_for_update()).all()


def has_started_runs(session: Session, sweep_id: str) -> bool:
    """Return whether noise may have been drawn for a run of the sweep."""
    statement = select(Run.id).where(Run.sweep_id == sweep_id, Run.stream_id.is_not(None)).limit(1)
    return session.scalar(statement) is not None


def runs(session: Session, sweep_id: str) -> list[Run]:
    """Return all runs in the order of their cells; their plans are read only when needed."""
    statement = select(Run).where(Run.sweep_id == sweep_id).order_by(Run.sweep_cell, Run.id)
    return list(session.scalars(statement.options(defer(Run.plan), defer(Run.description), defer(Run.provenance))))


def has_left_the_queue(session: Session, sweep_id: str) -> bool:
    statement = select(Run.id).where(Run.sweep_id == sweep_id, Run.state != RunState.QUEUED).limit(1)
    return session.scalar(statement) is not None
