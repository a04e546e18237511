"""Rewrite the state tables from the entries where the two disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.ledger import books_repository as repository
from app.ledger import tables
from app.ledger.books import BadPlace, Books, Head, Known
from app.ledger.statements import BUDGETS, RESERVATIONS
from app.ledger.states import BudgetState
from app.ledger.tables import Comparison

_WRITTEN_AT_ONCE = 500


@dataclass
class Rebuilt:
    """The numbers of rows that were written.

    Attributes:
        entries: The number of entries that were read.
        budgets, reservations: Rows that were missing or wrong.
        limit_requests: Rows that were missing, wrong, or made by no entry.
        exposed: Budgets whose exposed steps were missing or wrong.
    """

    entries: int = 0
    budgets: int = 0
    reservations: int = 0
    limit_requests: int = 0
    exposed: int = 0


def rebuild_tables(session: Session) -> Rebuilt:
    """Rewrite budgets, reservations, requests for limits and exposed steps so that they agree with the entries.

    Guarantees: never_forgets: if entries are missing, a rewrite would forget what was spent. So it is refused if the
    row of a budget names a later entry than there is, or if no entry has made a reservation.

    Args:
        session: A write session. Nobody else writes to the ledger until it ends; if this function raises, nothing is
            kept.

    Raises:
        BadPlace: an entry is not what the ledger wrote, or is missing.
    """
    repository.keep_others_out(session)
    return _Recovery(session).run()


class _Recovery:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._budgets: dict[str, Row[Any]] = {row.id: row for row in repository.budgets(session, "")}
        self._books = Books(repository.corrected_reservations(session, ""))
        self._comparison = Comparison(session, RESERVATIONS)
        self._settled: list[Known] = []
        self._rebuilt = Rebuilt()

    def run(self) -> Rebuilt:
        row = repository.reservation_without_entry(self._session, "")
        if row is not None:
            raise BadPlace(row.budget_id, row.sequence, None, f"the reservation {row.id} has no entry that made it")
        books = self._books
        for entry in repository.entries(self._session, ""):
            record = books.read(entry)
            done = books.enter(entry, record)
            if record.kind is EntryKind.CREATE:
                self._open(record)
            if isinstance(done, Known):
                self._settle(done)
        lost = [account.head for budget_id, account in books.accounts.items() if budget_id not in self._budgets]
        kept = [Head(row.id, row.sequence, row.head_hash) for row in self._budgets.values()]
        kept += [Head(row.id, row.sequence, row.head_hash) for row in repository.register(self._session, "")]
        books.check_ends([*kept, *lost], "the {whose} row")
        for known in books.unsettled():
            self._settle(known)
        self._write_settled()
        self._write_budgets()
        self._write_limit_requests()
        self._write_exposed_steps()
        self._rebuilt.entries = books.entries
        return self._rebuilt

    def _open(self, record: EntryRecord) -> None:
        """Insert the missing row of a budget, so that reservations can refer to it; its amounts are written last."""
        if record.budget_id in self._budgets:
            return
        account = self._books.accounts[record.budget_id]
        zero = account.history.filter.zero
        state = BudgetState(record.budget_id, account.history.filter, account.history.relation, zero, zero, zero)
        repository.insert_budget(self._session, tables.budget_row(account, state))

    def _settle(self, known: Known) -> None:
        self._settled.append(known)
        if len(self._settled) >= _WRITTEN_AT_ONCE:
            self._write_settled()

    def _write_settled(self) -> None:
        settled, self._settled = self._settled, []
        stored = repository.reservations(self._session, settled)
        new, changed = [], []
        for known in settled:
            row, values = stored.get(known.state.id), tables.reservation_row(known)
            if row is None:
                new.append(values)
            elif self._comparison.different(row, values) is not None:
                changed.append(values)
        repository.insert_reservations(self._session, new)
        repository.update_reservations(self._session, changed)
        self._rebuilt.reservations += len(new) + len(changed)

    def _write_budgets(self) -> None:
        states, comparison = self._books.states(), Comparison(self._session, BUDGETS)
        for budget_id, account in self._books.accounts.items():
            row, values = self._budgets.get(budget_id), tables.budget_row(account, states[budget_id])
            if row is None or comparison.different(row, values) is not None:
                repository.update_budget(self._session, values)
                self._rebuilt.budgets += 1

    def _write_limit_requests(self) -> None:
        faults = list(tables.limit_request_faults(self._session, self._books, ""))
        if faults:
            rows = tables.limit_request_rows(self._books)
            repository.replace_limit_requests(self._session, list(rows.values()))
            self._rebuilt.limit_requests = len(faults)

    def _write_exposed_steps(self) -> None:
        faults = list(tables.exposed_faults(self._session, self._books, ""))
        for budget_id in dict(faults):
            rows = tables.exposed_rows(self._books.accounts[budget_id])
            repository.replace_exposed_steps(self._session, budget_id, list(rows.values()))
            self._rebuilt.exposed += 1
