"""Kinds of stored values: SQLite takes a value of any kind in any column, so what is read is looked at first.

A value of another kind is something that the ledger did not write. Verification names it; whoever asks for a proof or a
checkpoint is answered 409.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Row, Select
from sqlalchemy.orm import Session

from app.problems import Problem
from app.tables.base import UtcDateTime


class WrongKind(ValueError):
    """A stored value is not of its column's kind."""

    def __init__(self, where: str) -> None:
        super().__init__(f"a stored value is not of its column's kind: {where}")


def rows(
    session: Session, statement: Select[Any], *columns: Column[Any], values: dict[str, Any] | None = None
) -> Sequence[Row[Any]]:
    """Return the rows of a statement, once every value is known to be of the kind of its column.

    Args:
        session: A session.
        statement: Selects the columns, in their order.
        columns: What is selected. None is a value of each that may be null, or that is the key of an outer join.
        values: Of the statement's parameters.

    Raises:
        WrongKind: one is not.
    """
    with wrong_kinds_named(f"the table {columns[0].table.name} has one"):
        found = session.execute(statement, values or {}).all()
    for column, stored in zip(columns, zip(*found, strict=True), strict=False):
        others = set(map(type, stored)) - _kinds(column)
        if others:
            place = next(number for number, value in enumerate(stored) if type(value) in others)
            raise WrongKind(f"the column {column.name} of {column.table.name}, in the row of {found[place][0]!r:.80}")
    return found


@contextmanager
def wrong_kinds_named(where: str) -> Iterator[None]:
    """Raise `WrongKind` where what reads a column fails because of a value's kind, as it does for moments."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, WrongKind):
            raise
        raise WrongKind(f"{where} ({type(error).__name__})") from None


@contextmanager
def wrong_kinds_are_a_conflict() -> Iterator[None]:
    """Answer 409 ``ledger_not_consistent`` where a stored value is not of its column's kind."""
    try:
        yield
    except WrongKind as error:
        raise not_consistent(str(error)) from None


def not_consistent(reason: str) -> Problem:
    """409: asking again does not help, and nothing that contradicts an earlier checkpoint is ever signed."""
    detail = f"Somebody has changed the database: {reason}. `epsilond ledger verify` names the first bad place."
    return Problem(409, "ledger_not_consistent", detail)


@lru_cache(maxsize=256)
def _kinds(column: Column[Any]) -> frozenset[type]:
    kind: type = str
    if isinstance(column.type, Integer | BigInteger):
        kind = int
    elif isinstance(column.type, LargeBinary):
        kind = bytes
    elif isinstance(column.type, UtcDateTime):
        kind = datetime
    return frozenset({kind, type(None)} if column.nullable else {kind})
