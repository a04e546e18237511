"""Comparison of the rows of data sets, keys, runs, sweeps, audits and webhooks with what the register says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from itertools import groupby
from typing import Any, cast

from sqlalchemy import Row, Select, Table, func, select, union_all
from sqlalchemy.orm import Session

from app.db.lists import among, as_list
from app.entries.kinds import EntryKind
from app.entries.register import Told
from app.entries.registered import REGISTERED, Registered, hash_of_cells
from app.entries.statements import ENTRIES
from app.entries.subjects import Subject
from app.ledger.books import BadPlace
from app.ledger.statements import BUDGETS, RESERVATIONS
from app.tables.datasets import Dataset, DatasetContent, DatasetVersion
from app.tables.runs import Run, RunSweep, RunSweepCell
from app.tables.states import REGISTER, ReservationStatus, RunState

_COMPARED_AT_ONCE = 250
SWEEPS, CELLS = cast(Table, RunSweep.__table__), cast(Table, RunSweepCell.__table__)


class RegisterComparison:
    """Collect what the register says, a row at a time, and compare some hundreds of rows at once.

    Args:
        session: A read session on a fixed snapshot.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[Subject, list[Told]] = {subject: [] for subject in Subject}
        self._counts: Counter[Subject] = Counter()
        self._bad: BadPlace | None = None

    def add(self, told: Told) -> None:
        """Compare a row with what the last entry about it says; rows are collected and compared many at a time."""
        if told.subject is Subject.REGISTER or (told.has_ended and REGISTERED[told.subject].is_removed):
            return
        self._counts[told.subject] += 1
        waiting = self._waiting[told.subject]
        waiting.append(told)
        if len(waiting) >= _COMPARED_AT_ONCE:
            self._compare(told.subject)

    def check(self, subjects: Set[Subject]) -> None:
        """Compare the remaining rows, and look for rows that the register does not mention.

        Args:
            subjects: The subjects of which the register has every row. Rows from before the register recorded their
                table are entered with its next entry.

        Raises:
            BadPlace: a row differs from the register, and this is the first one.
        """
        for subject in REGISTERED:
            self._compare(subject)
        if self._bad is not None:
            raise self._bad
        if not subjects:
            return
        twice = self._session.execute(_REGISTERED_TWICE).one_or_none()
        if twice is not None:
            # Rows and registered subjects are only counted, so a subject that is registered twice could hide a row
            # that is not registered.
            raise BadPlace(REGISTER, twice.sequence, twice.leaf_index, f"{twice.subject_id} is registered already")
        for registered in REGISTERED.values():
            if registered.subject in subjects:
                self._check_count(registered)
        lost = self._session.scalar(_CONTENT_WITHOUT_ROW)
        if lost is not None:
            raise _bad(f"the content of the data set {lost} has no row in dataset_contents")
        free = self._session.scalar(_RUN_WITHOUT_CHARGE)
        if free is not None:
            # Somebody who declares private rows public while a run lasts leaves the run itself as evidence.
            raise _bad(f"the run {free} is on private data, but no charge to their root budget belongs to it")

    def _compare(self, subject: Subject) -> None:
        waiting, self._waiting[subject] = self._waiting[subject], []
        if not waiting:
            return
        registered, dialect = REGISTERED[subject], self._session.get_bind().dialect.name
        statement = select(registered.table).where(among(dialect, registered.table.c.id, "ids"))
        ids = {"ids": as_list(dialect, [told.id for told in waiting])}
        rows: dict[str, Row[Any]] = {row.id: row for row in self._session.execute(statement, ids)}
        for told in waiting:
            reason = _fault(registered, told, rows.get(told.id))
            if reason is not None and self._bad is None:
                self._bad = _bad(reason)
        if registered.subject is Subject.SWEEP and self._bad is None:
            self._bad = self._bad_cells([row.id for row in rows.values()])

    def _bad_cells(self, sweep_ids: list[str]) -> BadPlace | None:
        """Compare the cells of each sweep with the hash in the register."""
        dialect = self._session.get_bind().dialect.name
        statement = select(CELLS).where(among(dialect, CELLS.c.sweep_id, "ids")).order_by(*CELLS.primary_key)
        cells = self._session.execute(statement, {"ids": as_list(dialect, sweep_ids)})
        hashed = {sweep_id: hash_of_cells(cell[1:] for cell in own) for sweep_id, own in groupby(cells, lambda c: c[0])}
        statement = select(SWEEPS.c.id, SWEEPS.c.cells_hash).where(among(dialect, SWEEPS.c.id, "ids"))
        for sweep_id, said in self._session.execute(statement, {"ids": as_list(dialect, sweep_ids)}):
            if hashed.get(sweep_id) != said:
                return _bad(f"the cells of the sweep {sweep_id} differ from the register")
        return None

    def _check_count(self, registered: Registered) -> None:
        table = registered.table
        if registered.is_removed:
            is_of_it = (ENTRIES.c.budget_id == REGISTER) & (ENTRIES.c.subject_id == table.c.id)
            end = select(ENTRIES.c.leaf_index).where(is_of_it, ENTRIES.c.kind == str(EntryKind.END))
            revived = self._session.scalar(select(table.c.id).where(end.exists()).order_by(table.c.id).limit(1))
            if revived is not None:
                raise _bad(
                    f"the {registered.subject} {revived} has ended according to the register, but still has a row"
                )
        count = self._session.scalar(select(func.count()).select_from(table).where(registered.rows(table)))
        if count == self._counts[registered.subject]:
            return  # Each registered subject has a row, so equal counts mean that no other rows exist.
        is_registered = select(ENTRIES.c.leaf_index).where(
            ENTRIES.c.budget_id == REGISTER, ENTRIES.c.subject_id == table.c.id
        )
        stranger = select(table.c.id).where(registered.rows(table), ~is_registered.exists()).order_by(table.c.id)
        raise _bad(f"the {registered.subject} {self._session.scalar(stranger.limit(1))} was never registered")


_FIRST = (ENTRIES.c.budget_id == REGISTER) & (ENTRIES.c.kind == str(EntryKind.REGISTER))
_FIRSTS = select(func.min(ENTRIES.c.sequence)).where(_FIRST).group_by(ENTRIES.c.subject_id)
# Subjects that have ended or never change are forgotten while the entries are read, so a second entry for one is looked
# for here.
_REGISTERED_TWICE = (
    select(ENTRIES.c.sequence, ENTRIES.c.leaf_index, ENTRIES.c.subject_id)
    .where(_FIRST, ENTRIES.c.sequence.not_in(_FIRSTS))
    .order_by(ENTRIES.c.sequence)
    .limit(1)
)

# A content row without a data set decides nothing: it is the lock of an upload that was refused.
_CONTENTS = union_all(
    select(Dataset.id, Dataset.content_hash).where(Dataset.content_hash.is_not(None)),
    select(DatasetVersion.dataset_id, DatasetVersion.content_hash),
).subquery()
_CONTENT_WITHOUT_ROW = (
    select(_CONTENTS.c.id)
    .outerjoin(DatasetContent, DatasetContent.content_hash == _CONTENTS.c.content_hash)
    .where(DatasetContent.content_hash.is_(None))
    .limit(1)
)


def _run_without_charge() -> Select[Any]:
    """Return the statement that finds a registered run on private rows without a reservation under their root
    budget."""
    root, path = Dataset.budget_id, BUDGETS.c.path
    is_below = func.substr(path, 1, func.length(root) + 1) == root + "/"
    may_have_drawn = RESERVATIONS.c.state.in_((ReservationStatus.STARTED, ReservationStatus.COMMITTED))
    charge = (
        select(RESERVATIONS.c.id)
        .join(BUDGETS, BUDGETS.c.id == RESERVATIONS.c.budget_id)
        .where(
            # The charge of a sweep covers all its runs.
            RESERVATIONS.c.id == func.coalesce(Run.reservation_id, RunSweep.reservation_id),
            RESERVATIONS.c.run_id == func.coalesce(Run.sweep_id, Run.id),
            (path == root) | is_below,
            may_have_drawn | (Run.state != RunState.SUCCEEDED),
        )
    )
    statement = select(Run.id).join(Dataset, Dataset.id == Run.dataset_id)
    statement = statement.outerjoin(RunSweep, RunSweep.id == Run.sweep_id)
    return statement.where(~Run.is_withheld, ~Dataset.is_public, ~charge.exists()).order_by(Run.id).limit(1)


_RUN_WITHOUT_CHARGE = _run_without_charge()


def _fault(registered: Registered, told: Told, row: Row[Any] | None) -> str | None:
    if row is None:
        return f"the {told.subject} {told.id} has no row"
    column = registered.different(row._asdict(), told.columns)
    return column and f"the column {column} of the {told.subject} {told.id} is not what the register says"


def _bad(reason: str) -> BadPlace:
    return BadPlace(REGISTER, None, None, reason)
