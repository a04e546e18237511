"""Kinds of stored values: SQLite accepts a value of any kind in any column, so values are checked before they are read.

The ledger did not write a value of another kind. Verification names it, and requests for proofs and checkpoints are
answered 409.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Integer,
    LargeBinary,
    Row,
    Select,
    Table,
    TypeDecorator,
    case,
    func,
    literal,
    or_,
    select,
)
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
    """Return the rows of a statement, after checking that every value is of its column's kind.

    Args:
        session: A session.
        statement: A statement that selects the columns in order.
        columns: The selected columns. A value may be None if its column may be null, or is the key of an outer join.
        values: The values of the statement's parameters.

    Raises:
        WrongKind: a value is of another kind.
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
    """Raise `WrongKind` if reading a column fails because of a value's kind, as happens for moments."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, WrongKind):
            raise
        raise WrongKind(f"{where} ({type(error).__name__})") from None


def is_misread(column: Column[Any]) -> bool:
    """Return whether a value of another kind is read from a column without an error.

    For example, an integer in place of bytes is read as that many zero bytes in memory, and any number but zero as
    true.
    """
    return isinstance(column.type, LargeBinary | Boolean)


def look_for_wrong_kinds(
    session: Session, tables: Iterable[Table], of: Callable[[Column[Any]], bool] = lambda _: True
) -> None:
    """Check the kind of every value of these tables, without reading the values. PostgreSQL accepts no wrong kind.

    Args:
        session: A read session.
        tables: The tables, in the order in which they are checked.
        of: A function that selects the columns to check.

    Raises:
        WrongKind: names the first value of another kind than its column. A text that should be JSON or a moment, and is
            not, counts as one.
    """
    if session.get_bind().dialect.name != "sqlite":
        return
    for table in tables:
        columns = [column for column in table.c if of(column)]
        key = list(table.primary_key)
        wrong = {column.name: _is_wrong(column) for column in columns}
        found = None
        if columns:
            # Keys are quoted by the database, since a key may itself have a value of the wrong type.
            shown = [func.quote(column) for column in key]
            statement = select(*shown, *wrong.values()).select_from(table).where(or_(*wrong.values())).limit(1)
            found = session.execute(statement).first()
        if found is not None:
            row = ", ".join(str(value)[:80] for value in found[: len(key)])
            name = next(name for name, is_bad in zip(wrong, found[len(key) :], strict=True) if is_bad)
            raise WrongKind(f"the column {name} of {table.name}, in the row of {row}")


def _is_wrong(column: Column[Any]) -> ColumnElement[bool]:
    kind = func.typeof(column)
    if isinstance(column.type, JSON):
        # SQLite's JSON functions return null for a null, and fail for bytes.
        allowed = case(
            (kind == "text", func.json_valid(column)), else_=(kind == "null") & literal(bool(column.nullable))
        )
        return allowed == 0
    if isinstance(column.type, UtcDateTime):
        allowed = case(
            (kind == "text", func.datetime(column).is_not(None)), else_=(kind == "null") & bool(column.nullable)
        )
        return allowed == 0
    if isinstance(column.type, Boolean):
        return (kind != "integer") | column.cast(Integer).not_in([0, 1])
    return kind.not_in([*_storage(column), *(["null"] if column.nullable else [])])


def _storage(column: Column[Any]) -> tuple[str, ...]:
    """Return the storage classes that SQLite may use for values of a column."""
    kind = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(kind, Integer | BigInteger):
        return ("integer",)
    if isinstance(kind, LargeBinary):
        return ("blob",)
    return ("real", "integer") if isinstance(kind, Float) else ("text",)


@contextmanager
def wrong_kinds_are_a_conflict() -> Iterator[None]:
    """Answer 409 ``ledger_not_consistent`` if a stored value is not of its column's kind."""
    try:
        yield
    except WrongKind as error:
        raise not_consistent(str(error)) from None


def not_consistent(reason: str) -> Problem:
    """Return a problem with status 409: asking again does not help, and nothing that contradicts an earlier checkpoint
    is ever signed."""
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
