"""All SQL that reads the books as a whole, or writes the state tables anew from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session

from accounting.filters import PrivacyFilter
from app.db.lists import among, as_list
from app.ledger import statements
from app.ledger.books import StoredEntry
from app.ledger.columns import AmountsText, EventsText, FilterText
from app.ledger.repository import under
from app.ledger.statements import BUDGETS, ENTRIES, EXPOSED, RESERVATIONS
from app.ledger.states import EntryKind

#: Rows that are held in memory at once.
BATCH = 1000
#: Columns of entries that repeat what their bytes say. They are the first ones of the rows that are read here.
REPEATED = ("id", "sequence", "kind", "reservation_id", "principal_id", "purpose", "mechanisms", "recorded_at")
_ENTRY = [ENTRIES.c[name] for name in (*REPEATED, "leaf_index", "budget_id", "canonical", "previous_hash", "hash")]


def root_of(session: Session, budget_id: str) -> str | None:
    """The id of the budget at the top of a budget's tree; None if there is no such budget."""
    path = session.scalar(select(BUDGETS.c.path).where(BUDGETS.c.id == budget_id))
    return None if path is None else path.partition("/")[0]


def entries(session: Session, root_id: str) -> Iterator[StoredEntry]:
    """The entries of a tree, or of all for "", in the order of their leaf indices: rows that begin with `REPEATED`."""
    after = 0
    while batch := entries_after(session, root_id, after):
        yield from batch
        after = batch[-1].leaf_index


def entries_after(session: Session, root_id: str, leaf_index: int, until: int | None = None) -> list[StoredEntry]:
    """The next entries behind a place, at most `BATCH`, up to the place ``until``."""
    statement = select(*_ENTRY).where(ENTRIES.c.leaf_index > leaf_index).order_by(ENTRIES.c.leaf_index).limit(BATCH)
    if until is not None:
        statement = statement.where(ENTRIES.c.leaf_index <= until)
    return cast(list[StoredEntry], session.execute(_in_tree(statement, ENTRIES, root_id)).all())


def last_leaf_index(session: Session) -> int:
    """The place of the newest entry; 0 where there is none."""
    return session.scalar(select(func.max(ENTRIES.c.leaf_index))) or 0


def corrected_reservations(session: Session, root_id: str) -> set[str]:
    """The reservations that a correction is about."""
    statement = select(ENTRIES.c.reservation_id).where(ENTRIES.c.kind == str(EntryKind.CORRECT))
    return set(session.scalars(_in_tree(statement, ENTRIES, root_id)))


def budgets(session: Session, root_id: str) -> Sequence[Row[Any]]:
    """The budgets of a tree, or all, in the order of their ids, with all columns as `as_stored` lists them."""
    return session.execute(select(*as_stored(BUDGETS)).where(under(root_id)).order_by(BUDGETS.c.id)).all()


def filters(session: Session, root_id: str) -> dict[str, PrivacyFilter]:
    """The filters of the budgets of a tree, or of all."""
    rows = session.execute(select(BUDGETS.c.id, BUDGETS.c.filter).where(under(root_id)))
    return {row.id: row.filter for row in rows}


def reservations(session: Session, ids: Sequence[str]) -> dict[str, Row[Any]]:
    """Reservations by id, with all columns as `as_stored` lists them."""
    dialect = session.get_bind().dialect.name
    statement = select(*as_stored(RESERVATIONS)).where(among(dialect, RESERVATIONS.c.id, "ids"))
    return {row.id: row for row in session.execute(statement, {"ids": as_list(dialect, ids)}).all()}


def reservation_without_entry(session: Session, root_id: str) -> Row[Any] | None:
    """A reservation that the entry in its place did not make."""
    made_it = (ENTRIES.c.budget_id == RESERVATIONS.c.budget_id) & (ENTRIES.c.sequence == RESERVATIONS.c.sequence)
    statement = (
        select(RESERVATIONS)
        .outerjoin(ENTRIES, made_it)
        .where(ENTRIES.c.reservation_id.is_distinct_from(RESERVATIONS.c.id))
        .order_by(RESERVATIONS.c.budget_id, RESERVATIONS.c.sequence)
        .limit(1)
    )
    return session.execute(_in_tree(statement, RESERVATIONS, root_id)).one_or_none()


def exposed_steps(session: Session, root_id: str) -> Iterator[Row[Any]]:
    """What the budgets of a tree, or all, have exposed, with all columns as `as_stored` lists them."""
    place = tuple_(EXPOSED.c.budget_id, EXPOSED.c.step_hash)
    statement = _in_tree(select(*as_stored(EXPOSED)).order_by(*place).limit(BATCH), EXPOSED, root_id)
    after = ("", "")
    while batch := session.execute(statement.where(place > after)).all():
        yield from batch
        after = (batch[-1].budget_id, batch[-1].step_hash)


def keep_others_out(session: Session) -> None:
    """Let nobody else write budgets until the transaction ends. On SQLite a write session does."""
    if session.get_bind().dialect.name != "sqlite":
        session.execute(text("LOCK TABLE budgets, reservations, exposed_steps, entries IN SHARE ROW EXCLUSIVE MODE"))


def insert_budget(session: Session, row: dict[str, Any]) -> None:
    """A budget that has no row."""
    session.execute(insert(BUDGETS).values(row))


def update_budget(session: Session, row: dict[str, Any]) -> None:
    """All columns of a budget that has a row."""
    session.execute(update(BUDGETS).where(BUDGETS.c.id == row["id"]).values(row))


def insert_reservations(session: Session, rows: list[dict[str, Any]]) -> None:
    """Reservations that have no row."""
    statements.insert_reservations(session.connection(), rows)


def update_reservations(session: Session, rows: list[dict[str, Any]]) -> None:
    """All columns of reservations that have a row."""
    if rows:
        values = [{"b_id" if name == "id" else name: value for name, value in row.items()} for row in rows]
        session.execute(update(RESERVATIONS).where(RESERVATIONS.c.id == bindparam("b_id")), values)


def replace_exposed_steps(session: Session, budget_id: str, rows: list[dict[str, Any]]) -> None:
    """Write what a budget has exposed in place of what stands there."""
    session.execute(delete(EXPOSED).where(EXPOSED.c.budget_id == budget_id))
    if rows:
        session.execute(insert(EXPOSED), rows)


def as_stored(table: Table) -> list[ColumnElement[Any]]:
    """The columns of a table; amounts, events and filters as the texts that are stored, which nobody has read yet."""
    return [type_coerce(column, Text).label(column.name) if text_type(column) else column for column in table.c]


def text_type(column: ColumnElement[Any]) -> TypeDecorator[Any] | None:
    """What reads the text of a column that holds amounts, events or a filter; None for another column."""
    return column.type if isinstance(column.type, AmountsText | EventsText | FilterText) else None


def _in_tree(statement: Select[Any], table: Table, root_id: str) -> Select[Any]:
    if not root_id:
        return statement
    return statement.where(table.c.budget_id.in_(select(BUDGETS.c.id).where(under(root_id))))
