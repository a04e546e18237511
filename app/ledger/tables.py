"""The rows of the state tables as they follow from the books, to be compared with the stored rows or to replace
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Dialect, Row, Table, TypeDecorator
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.ledger import books_repository as repository
from app.ledger import rows
from app.ledger.books import Account, Books, Known
from app.ledger.books_repository import text_type
from app.ledger.statements import EXPOSED, LIMIT_REQUESTS, step_hash
from app.ledger.states import BudgetState

# The errors that malformed text causes in the code that reads it.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, AccountingError)


def budget_row(account: Account, state: BudgetState) -> dict[str, Any]:
    """Return all columns of a budget.

    Args:
        account: The budget in the books.
        state: Its present state, including charges to budgets below it.
    """
    history, terms = account.history, account.terms
    return {
        "id": history.budget_id,
        "name": terms["name"],
        "neighboring_relation": terms["neighboring_relation"],
        "privacy_unit": terms["privacy_unit"],
        "report_delta": terms["report_delta"],
        "labels": terms["labels"],
        "principal_id": history.made.principal_id,
        "created_at": history.made.recorded_at,
        "parent_id": history.parent_id,
        "path": account.path,
        "sequence": history.sequence,
        "head_hash": history.head_hash,
        **rows.budget_amounts(state),
    }


def reservation_row(known: Known) -> dict[str, Any]:
    """Return all columns of a reservation."""
    return rows.new_reservation(known.state, sequence=known.sequence, principal_id=known.principal_id)


def limit_request_rows(books: Books) -> dict[str, dict[str, Any]]:
    """Return all columns of each request for another limit, by id."""
    return {
        request.id: rows.new_limit_request(request)
        for account in books.accounts.values()
        for request in account.history.limit_requests.values()
    }


def limit_request_faults(session: Session, books: Books, root_id: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of requests for another limit, each with its budget: a row differs, is missing, or has no
    entry."""
    comparison, expected = Comparison(session, LIMIT_REQUESTS), limit_request_rows(books)
    for row in repository.limit_requests(session, root_id):
        values = expected.pop(row.id, None)
        if values is None:
            yield row.budget_id, f"the limit request {row.id} has no entry that made it"
        elif (column := comparison.different(row, values)) is not None:
            reason = f"the column {column} of the limit request {row.id} differs from its entries"
            yield values["budget_id"], reason
    for request_id, values in expected.items():
        yield values["budget_id"], f"the limit request {request_id} has no row"


def exposed_rows(account: Account) -> dict[str, dict[str, Any]]:
    """Return all columns of each step that the budget itself has exposed, by the hash of the step."""
    found = {}
    for said, count in account.exposed.items():
        if count:
            step = account.steps[said]
            hashed = step_hash(step)
            row = {"budget_id": account.history.budget_id, "step_hash": hashed, "step": (step,), "count": count}
            found[hashed] = row
    return found


def exposed_faults(session: Session, books: Books, root_id: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of rows of exposed steps that are missing or disagree with the entries, each with its budget."""
    comparison = Comparison(session, EXPOSED)
    expected = {budget_id: exposed_rows(account) for budget_id, account in books.accounts.items()}
    for row in repository.exposed_steps(session, root_id):
        step = expected.get(row.budget_id, {}).pop(row.step_hash, None)
        # A row stays when its count has come back to 0.
        is_wrong = row._mapping["count"] != 0 if step is None else comparison.different(row, step) is not None
        if is_wrong:
            yield row.budget_id, f"the row of the exposed step {row.step_hash} is not what the entries amount to"
    for budget_id, missing in expected.items():
        if missing:
            yield budget_id, f"the exposed step {next(iter(missing))} has no row"


class Comparison:
    """Compare the rows of a table, as `books_repository.as_stored` reads them, with the expected rows.

    A stored text is parsed only if it differs from the text that would be written now.
    """

    def __init__(self, session: Session, table: Table) -> None:
        self._columns = [(column.name, text_type(column)) for column in table.c]
        self._texts = [(name, kind.process_bind_param) for name, kind in self._columns if kind is not None]
        self._names = [name for name, _ in self._columns]
        self._dialect: Dialect = session.get_bind().dialect

    def different(self, row: Row[Any], expected: Mapping[str, Any]) -> str | None:
        """Return the first column of the row that is not as expected; None if there is none."""
        if tuple(row) == self._written(expected):
            return None
        for (name, kind), found in zip(self._columns, row, strict=True):
            value = expected[name]
            if found != value and (kind is None or not self._is_written(kind, found, value)):
                return name
        return None

    def _written(self, expected: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the row in the form in which it would be written now."""
        texts = {name: write(expected[name], self._dialect) for name, write in self._texts}
        return tuple(map({**expected, **texts}.__getitem__, self._names))

    def _is_written(self, kind: TypeDecorator[Any], found: str | None, value: Any) -> bool:
        """Return whether a text stands for the value."""
        if found == kind.process_bind_param(value, self._dialect):
            return True
        try:
            return bool(kind.process_result_value(found, self._dialect) == value)
        except _UNREADABLE:
            return False
