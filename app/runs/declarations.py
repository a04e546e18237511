"""Check that a run, its data sets and its charge agree with the ledger's entries, before a worker reads any row.

Without this check, somebody who can write to the database could declare private rows public, or remove or replace a
run's charge. The facts about runs and data sets are in entries of the register, and charges are in entries of budgets.
The fence, a record outside of the database, vouches for these entries (`app.ledger.vouched`), so nobody can rewrite
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from app.context import Context
from app.datasets import versions
from app.entries.registered import REGISTERED, charged_data
from app.entries.subjects import Subject
from app.ledger.rebuild import BrokenChain, details_of
from app.ledger.states import ReservationState
from app.ledger.vouched import Vouched, vouched_ends
from app.runs import charges, lifecycle, sweep_repository, sweep_trials
from app.runs.charges import ChargeAltered
from app.runs.failures import DECLARATION_ALTERED, RefusedError
from app.tables.datasets import Dataset
from app.tables.runs import Run
from app.tables.states import REGISTER, ReservationStatus
from calibrators.plan import Plan


def check(context: Context, run: Run, *, is_started: bool = False) -> None:
    """Compare a claimed run with the ledger's entries.

    Args:
        context: The process's context.
        run: The run as it was claimed.
        is_started: Whether its charge must have started. Then an entry holds what its row said at the start.

    Raises:
        RefusedError: the run, one of its data sets or its charge contradicts the entries; the plan is not the one that
            is charged; or private data would be trained on without a charge to their root budget.
        Unfenced: the database is behind its fence.
    """
    with checked(context, run, is_started=is_started):
        pass


@contextmanager
def checked(context: Context, run: Run, *, is_started: bool = False) -> Iterator[Session]:
    """Open a read session in whose snapshot the run, as it was claimed, agrees with the ledger's entries.

    The session reads the same rows of the run's data sets that were compared.

    Raises:
        RefusedError, Unfenced: as `check`.
    """
    plan = lifecycle.read_plan(run)
    ends = vouched_ends(context, [REGISTER, *([] if run.budget_id is None else [run.budget_id])])
    with context.database.read() as session:
        try:
            charge = _Check(context, session, Vouched(session, context.database, ends)).check(run, plan)
        except (BrokenChain, ChargeAltered):
            raise RefusedError(DECLARATION_ALTERED) from None
        if is_started and charge is not None and charge.state.status is not ReservationStatus.STARTED:
            raise RefusedError(DECLARATION_ALTERED)
        yield session


class _Check:
    """Compare rows in a session's snapshot with the ledger's entries."""

    def __init__(self, context: Context, session: Session, vouched: Vouched) -> None:
        self._context, self._session, self._vouched = context, session, vouched

    def check(self, run: Run, plan: Plan) -> _Charge | None:
        """Compare the run, its data sets and its charge, and return the charge, if there is one."""
        if run.sweep_id is not None:
            # The sweep is checked first, because a trial is compared with the cells of its sweep.
            self._check_sweep(run.sweep_id, run)
        self._check_run(run)
        for dataset_id in (run.dataset_id, run.test_dataset_id):
            if dataset_id is not None:
                self._check_row(Subject.DATASET, dataset_id)
        charge = self._check_charge(run, plan)
        dataset = None if run.dataset_id is None else self._session.get_one(Dataset, run.dataset_id)
        if dataset is None or dataset.is_public:
            return charge
        version = versions.find(self._session, dataset, run.dataset_version or 1)
        if version is None or charge is None:
            raise RefusedError(DECLARATION_ALTERED)
        if version.number > 1:
            self._check_row(Subject.VERSION, version.id)
        charged = charged_data(dataset, version.number, version.content_hash)
        if charge.root_id != dataset.budget_id or charge.state.dataset not in (None, charged):
            raise RefusedError(DECLARATION_ALTERED)
        return charge

    def _check_run(self, run: Run) -> None:
        """Compare the run with its entry. A trial of a sweep for the best run has no entry, and is compared with its
        cell."""
        if not run.is_withheld:
            # The run is compared as it was claimed, since its row may have changed meanwhile.
            self._compare(Subject.RUN, run.id, {name: getattr(run, name) for name in _COLUMNS_OF_RUNS})
            return
        sweep = None if run.sweep_id is None else sweep_repository.find(self._session, run.sweep_id)
        cell = None
        if sweep is not None and run.sweep_cell is not None:
            cell = sweep_repository.cell(self._session, sweep.id, run.sweep_cell)
        # The register has no entries about trials. If it has an entry about this run, somebody changed the row to hide
        # the run.
        if cell is None or cell.draft is None or self._vouched.told(run.id) is not None:
            raise RefusedError(DECLARATION_ALTERED)
        # A trial has no seed, since anybody who knew the seed could subtract the noise.
        if run.seed is not None or any(_drafted(run, name) != said for name, said in cell.draft.items()):
            raise RefusedError(DECLARATION_ALTERED)

    def _check_sweep(self, sweep_id: str, run: Run) -> None:
        """Compare the run's sweep with its entry, and a trial with the trials that the sweep makes."""
        sweep = sweep_repository.find(self._session, sweep_id)
        if sweep is None or not sweep_trials.is_as_entered(self._session, self._vouched, sweep):
            raise RefusedError(DECLARATION_ALTERED)
        if run.is_withheld and not sweep_trials.is_trial(self._context, self._session, sweep, run.id, run.sweep_cell):
            raise RefusedError(DECLARATION_ALTERED)

    def _check_row(self, subject: Subject, subject_id: str) -> None:
        table = REGISTERED[subject].table
        row = self._session.execute(select(table).where(table.c.id == subject_id)).one()
        self._compare(subject, subject_id, row._asdict())

    def _compare(self, subject: Subject, subject_id: str, row: Mapping[str, Any]) -> None:
        told = self._vouched.told(subject_id)
        if told is None or told.subject is not subject or REGISTERED[subject].different(row, told.columns) is not None:
            raise RefusedError(DECLARATION_ALTERED)

    def _check_charge(self, run: Run, plan: Plan) -> _Charge | None:
        """Compare the row of the charge with its entries, and the entries with the plan; None if nothing is charged."""
        sweep = None if run.sweep_id is None else sweep_repository.find(self._session, run.sweep_id)
        reservation_id = run.reservation_id if sweep is None else sweep.reservation_id
        if run.budget_id is None and reservation_id is None:
            return None
        if run.budget_id is None or reservation_id is None:
            raise RefusedError(DECLARATION_ALTERED)
        history, known = charges.as_entered(self._session, self._vouched, run.budget_id, reservation_id)
        if known.state.run_id != (run.sweep_id or run.id):
            raise RefusedError(DECLARATION_ALTERED)
        if sweep is None:
            lifecycle.check_plan(plan, known.state)
        else:
            lifecycle.check_plan_of_sweep(self._session, sweep, run, plan, known.state)
        # The oldest entries do not name the path, since there were no trees of budgets when they were written.
        path = str(details_of(history.made).get("path", history.budget_id))
        return _Charge(known.state, path.partition("/")[0])


@dataclass(frozen=True)
class _Charge:
    """The charge of a run.

    Attributes:
        state: The reservation as its entries describe it.
        root_id: The root budget that it is charged to.
    """

    state: ReservationState
    root_id: str


_COLUMNS_OF_RUNS = [column.key for column in inspect(Run).column_attrs]


def _drafted(run: Run, name: str) -> object:
    value = getattr(run, name)
    return value.decode() if isinstance(value, bytes) else value
