"""The check that a run, its data sets and its charge are what the register says: before a worker looks at any row.

Whoever can write to the database could else declare private rows public, or take the charge from a run.
"""

from __future__ import annotations

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from app.context import Context
from app.datasets import versions
from app.datasets.versions import Version
from app.entries import registering
from app.entries.register import UNREADABLE, Told
from app.entries.registered import REGISTERED, charged_data
from app.entries.subjects import Subject
from app.ledger.repository import get_budget
from app.reservations.service import get_reservation
from app.runs import sweep_repository, sweep_trials
from app.runs.lifecycle import DECLARATION_ALTERED, RefusedError
from app.tables.datasets import Dataset
from app.tables.runs import Run


def check(context: Context, run: Run) -> None:
    """Compare a claimed run with the register.

    Raises:
        RefusedError: the run, or a data set of it, is not what was registered; or private data would be trained on
            without a charge to their root budget.
    """
    with context.database.read() as session:
        has_begun = registering.has_begun(session)
    if not has_begun:
        with context.database.write() as session:
            registering.begin(session, context.clock())
    with context.database.read() as session:
        if run.sweep_id is not None:
            _check_sweep(context, session, run)
        _check_run(session, run)
        for dataset_id in (run.dataset_id, run.test_dataset_id):
            if dataset_id is not None:
                _check_row(session, Subject.DATASET, dataset_id)
        dataset = None if run.dataset_id is None else session.get_one(Dataset, run.dataset_id)
        if dataset is not None and not dataset.is_public:
            version = versions.find(session, dataset, run.dataset_version or 1)
            if version is None:
                raise RefusedError(DECLARATION_ALTERED)
            if version.number > 1:
                _check_row(session, Subject.VERSION, version.id)
            _check_charge(session, run, dataset, version)


def _check_run(session: Session, run: Run) -> None:
    """Compare the run with its entry; a trial of a sweep for the best has none, and is what its cell says."""
    if not run.is_withheld:
        _check_row(session, Subject.RUN, run.id)
        return
    sweep = None if run.sweep_id is None else sweep_repository.find(session, run.sweep_id)
    cell = None if sweep is None or run.sweep_cell is None else sweep_repository.cell(session, sweep.id, run.sweep_cell)
    # The register says nothing of trials: one that it knows was hidden by hand.
    if cell is None or cell.draft is None or _told(session, run.id) is not None:
        raise RefusedError(DECLARATION_ALTERED)
    # A trial has no seed: whoever knew it would subtract the noise.
    if run.seed is not None or any(_drafted(run, name) != said for name, said in cell.draft.items()):
        raise RefusedError(DECLARATION_ALTERED)


def _check_sweep(context: Context, session: Session, run: Run) -> None:
    """Compare the run's sweep with its entry, and a trial with those that the sweep makes."""
    sweep = sweep_repository.find(session, str(run.sweep_id))
    if sweep is None or not sweep_trials.is_as_entered(session, sweep):
        raise RefusedError(DECLARATION_ALTERED)
    if run.is_withheld and not sweep_trials.is_trial(context, session, sweep, run.id, run.sweep_cell):
        raise RefusedError(DECLARATION_ALTERED)


def _drafted(run: Run, name: str) -> object:
    value = getattr(run, name)
    return value.decode() if isinstance(value, bytes) else value


def _check_row(session: Session, subject: Subject, subject_id: str) -> None:
    registered = REGISTERED[subject]
    statement = select(registered.table).where(registered.table.c.id == subject_id)
    row: Row[tuple[object, ...]] = session.execute(statement).one()
    told = _told(session, subject_id)
    if told is None or told.subject is not subject or registered.different(row, told.columns) is not None:
        raise RefusedError(DECLARATION_ALTERED)


def _told(session: Session, subject_id: str) -> Told | None:
    try:
        return registering.told_of(session, subject_id)
    except UNREADABLE:
        raise RefusedError(DECLARATION_ALTERED) from None


def _check_charge(session: Session, run: Run, dataset: Dataset, version: Version) -> None:
    reservation_id = run.reservation_id
    if run.sweep_id is not None:
        sweep = sweep_repository.find(session, run.sweep_id)
        reservation_id = None if sweep is None else sweep.reservation_id
    if reservation_id is None:
        raise RefusedError(DECLARATION_ALTERED)
    reservation = get_reservation(session, reservation_id)
    is_bound = get_budget(session, reservation.budget_id).root_id == dataset.budget_id
    charged = charged_data(dataset, version.number, version.content_hash)
    is_for_it = reservation.dataset in (None, charged.to_json())
    if not is_bound or not is_for_it or reservation.run_id != (run.sweep_id or run.id):
        raise RefusedError(DECLARATION_ALTERED)
