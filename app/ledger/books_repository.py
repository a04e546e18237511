"""All SQL that reads the books as a whole, or rewrites the state tables from them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    Select,
    String,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    delete,
    distinct,
    func,
    insert,
    select,
    text,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from accounting.filters import PrivacyFilter
from app.db.lists import among, as_list
from app.entries.kinds import EntryKind
from app.entries.registered import REGISTERED
from app.entries.registering import REGISTERS
from app.entries.statements import ENTRIES
from app.entries.subjects import Subject
from app.ledger import statements
from app.ledger.books import Known, StoredEntry
from app.ledger.statements import BUDGETS, CERTIFICATES, EXPOSED, LIMIT_REQUESTS, RESERVATIONS
from app.tables.columns import AmountsText, EventsText, FilterText
from app.tables.ledger import under
from app.tables.runs import RunSweepCell

KEYS = REGISTERED[Subject.KEY].table
#: The tables that are kept beside the entries and compared with them.
STATE_TABLES: tuple[Table, ...] = (
    *(BUDGETS, RESERVATIONS, LIMIT_REQUESTS, EXPOSED, REGISTERS),
    *(registered.table for registered in REGISTERED.values()),
    cast(Table, RunSweepCell.__table__),
)
#: The number of rows that are held in memory at once.
BATCH = 1000
# The number of rows that are read at once where many are read in turn. It is small, because the garbage collector looks
# at each row that waits.
_READ_AT_ONCE = 500


class EntryRow(NamedTuple):
    """An entry with all its columns; the columns that repeat its bytes come first."""

    id: str
    sequence: int
    kind: str
    reservation_id: str | None
    subject_id: str | None
    principal_id: str
    purpose: str | None
    mechanisms: str
    recorded_at: datetime
    leaf_index: int
    budget_id: str
    canonical: bytes
    previous_hash: str
    hash: str


#: The columns of entries that repeat contents of their bytes.
REPEATED = EntryRow._fields[: EntryRow._fields.index("leaf_index")]
_ENTRY = [ENTRIES.c[name] for name in EntryRow._fields]
_EXPORTED = [ENTRIES.c[name] for name in ("leaf_index", "budget_id", "sequence", "previous_hash", "hash", "canonical")]


def root_of(session: Session, budget_id: str) -> str | None:
    """Return the id of the budget at the top of a budget's tree; None if there is no such budget."""
    path = session.scalar(select(BUDGETS.c.path).where(BUDGETS.c.id == budget_id))
    return None if path is None else path.partition("/")[0]


def entries(session: Session, root_id: str) -> Iterator[EntryRow]:
    """Yield the entries of a tree, or of all for "", in the order of their leaf indices."""
    behind = ENTRIES.c.leaf_index > bindparam("leaf_index")
    statement = select(*_ENTRY).where(behind).order_by(ENTRIES.c.leaf_index).limit(_READ_AT_ONCE)
    statement, leaf_index = _in_tree(statement, ENTRIES, root_id), 0
    while batch := session.execute(statement, {"leaf_index": leaf_index}).all():
        yield from map(EntryRow._make, batch)
        leaf_index = batch[-1].leaf_index


def entries_after(session: Session, root_id: str, leaf_index: int, until: int | None = None) -> list[StoredEntry]:
    """Return the next entries behind a place, at most `BATCH`, up to the place ``until``."""
    # Columns that repeat the bytes are not read, so the entry is exported even if one of them has a value of another
    # type.
    statement = select(*_EXPORTED).where(ENTRIES.c.leaf_index > leaf_index).order_by(ENTRIES.c.leaf_index).limit(BATCH)
    if until is not None:
        statement = statement.where(ENTRIES.c.leaf_index <= until)
    return cast(list[StoredEntry], session.execute(_in_tree(statement, ENTRIES, root_id)).all())


def last_leaf_index(session: Session) -> int:
    """Return the place of the newest entry; 0 if there is none."""
    return session.scalar(select(func.max(ENTRIES.c.leaf_index))) or 0


def corrected_reservations(session: Session, root_id: str) -> set[str]:
    """Return the reservations that a correction is about."""
    statement = select(ENTRIES.c.reservation_id).where(ENTRIES.c.kind == str(EntryKind.CORRECT))
    return set(session.scalars(_in_tree(statement, ENTRIES, root_id)))


def budgets(session: Session, root_id: str) -> Sequence[Row[Any]]:
    """Return the budgets of a tree, or all, in the order of their ids, with all columns as `as_stored` lists them."""
    return session.execute(select(*as_stored(BUDGETS)).where(under(root_id)).order_by(BUDGETS.c.id)).all()


def register(session: Session, root_id: str) -> Sequence[Row[Any]]:
    """Return the end of the register's chain, if it has begun and the books are those of all budgets."""
    begun = select(REGISTERS).where(REGISTERS.c.sequence > 0)
    return () if root_id else session.execute(begun).all()


def key_ids(session: Session) -> set[str]:
    """Return the ids of all keys that ever existed."""
    return set(session.scalars(select(KEYS.c.id)))


def first_entry_of(session: Session, principal_id: str) -> Row[Any]:
    """Return the first entry that somebody has made."""
    statement: Select[Any] = select(ENTRIES).where(ENTRIES.c.principal_id == principal_id)
    return session.execute(statement.order_by(ENTRIES.c.leaf_index).limit(1)).one()


def filters(session: Session, root_id: str) -> dict[str, PrivacyFilter]:
    """Return the filters of the budgets of a tree, or of all."""
    rows = session.execute(select(BUDGETS.c.id, BUDGETS.c.filter).where(under(root_id)))
    return {row.id: row.filter for row in rows}


def reservations(session: Session, known: Sequence[Known]) -> dict[str, Row[Any]]:
    """Return the rows of reservations by id, with all columns as `as_stored` lists them.

    Rows are first looked for in the order of the entries that made them, where they are stored side by side. Only those
    that are not there are looked for by id, which is slower because ids are scattered over the table.
    """
    dialect = session.get_bind().dialect.name
    budgets, sequences = [each.state.budget_id for each in known], [each.sequence for each in known]
    places: dict[str, Any]
    if dialect == "sqlite":
        places = {"places": json.dumps(list(zip(budgets, sequences, strict=True)))}
    else:
        places = {"budgets": budgets, "sequences": sequences}
    found = {row[0]: row for row in session.execute(_at_places(dialect), places).all()}
    ids = [each.state.id for each in known if each.state.id not in found]
    if ids:
        statement = select(*as_stored(RESERVATIONS)).where(among(dialect, RESERVATIONS.c.id, "ids"))
        found |= {row[0]: row for row in session.execute(statement, {"ids": as_list(dialect, ids)}).all()}
    return found


def certified_reservations(session: Session, root_id: str) -> Generator[Row[Any]]:
    """Yield the reservations that were made with a certificate, with the terms of their budgets; to be closed.

    Those with the same certificate come one after another.
    """
    statement = (
        select(
            *(RESERVATIONS.c.budget_id, RESERVATIONS.c.sequence, RESERVATIONS.c.events, RESERVATIONS.c.cost),
            *(RESERVATIONS.c.certificate, BUDGETS.c.neighboring_relation, BUDGETS.c.filter),
        )
        .join_from(RESERVATIONS, BUDGETS, RESERVATIONS.c.budget_id == BUDGETS.c.id)
        .where(RESERVATIONS.c.certificate.is_not(None))
        .order_by(RESERVATIONS.c.certificate, RESERVATIONS.c.budget_id, RESERVATIONS.c.sequence)
        .execution_options(yield_per=_READ_AT_ONCE)
    )
    with closing(session.execute(_in_tree(cast(Select[Any], statement), RESERVATIONS, root_id))) as found:
        yield from found


def count_certified(session: Session) -> int:
    """Return how many reservations were made with a certificate."""
    statement = select(func.count()).select_from(RESERVATIONS).where(RESERVATIONS.c.certificate.is_not(None))
    return session.scalar(statement) or 0


def certificate(session: Session, sha256: str) -> bytes | None:
    """Return the bytes of a certificate by their hash."""
    return session.scalar(select(CERTIFICATES.c.data).where(CERTIFICATES.c.sha256 == sha256))


def count_reservations(session: Session, root_id: str) -> tuple[int, int]:
    """Return the number of rows of reservations and the number of different ids; they are equal as long as the table
    has its key."""
    counts = func.count(), func.count(distinct(RESERVATIONS.c.id))
    statement = cast(Select[Any], select(*counts).select_from(RESERVATIONS))
    found: Sequence[Any] = session.execute(_in_tree(statement, RESERVATIONS, root_id)).one()
    return found[0], found[1]


def reservation_without_entry(session: Session, root_id: str) -> Row[Any] | None:
    """Return a reservation that the entry in its place did not make; None if there is none."""
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
    """Return what the budgets of a tree, or all, have exposed, with all columns as `as_stored` lists them."""
    place = tuple_(EXPOSED.c.budget_id, EXPOSED.c.step_hash)
    statement = _in_tree(select(*as_stored(EXPOSED)).order_by(*place).limit(BATCH), EXPOSED, root_id)
    after = ("", "")
    while batch := session.execute(statement.where(place > after)).all():
        yield from batch
        after = (batch[-1].budget_id, batch[-1].step_hash)


def limit_requests(session: Session, root_id: str) -> Iterator[Row[Any]]:
    """Yield the requests for another limit of a tree, or all, with all columns as `as_stored` lists them."""
    statement = select(*as_stored(LIMIT_REQUESTS)).order_by(LIMIT_REQUESTS.c.id).limit(BATCH)
    statement, after = _in_tree(statement, LIMIT_REQUESTS, root_id), ""
    while batch := session.execute(statement.where(LIMIT_REQUESTS.c.id > after)).all():
        yield from batch
        after = batch[-1].id


def replace_limit_requests(session: Session, rows: list[dict[str, Any]]) -> None:
    """Write all requests for another limit anew."""
    session.execute(delete(LIMIT_REQUESTS))
    statements.insert_limit_requests(session.connection(), rows)


def keep_others_out(session: Session) -> None:
    """Let nobody else write budgets until the transaction ends. On SQLite, every write session has this effect."""
    if session.get_bind().dialect.name != "sqlite":
        tables = "budgets, reservations, limit_requests, exposed_steps, entries"
        session.execute(text(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE"))


def insert_budget(session: Session, row: dict[str, Any]) -> None:
    """Insert the row of a budget."""
    session.execute(insert(BUDGETS).values(row))


def update_budget(session: Session, row: dict[str, Any]) -> None:
    """Update all columns of a budget's row."""
    session.execute(update(BUDGETS).where(BUDGETS.c.id == row["id"]).values(row))


def insert_reservations(session: Session, rows: list[dict[str, Any]]) -> None:
    """Insert the rows of reservations."""
    statements.insert_reservations(session.connection(), rows)


def update_reservations(session: Session, rows: list[dict[str, Any]]) -> None:
    """Update all columns of the rows of reservations."""
    if rows:
        values = [{"b_id" if name == "id" else name: value for name, value in row.items()} for row in rows]
        session.execute(update(RESERVATIONS).where(RESERVATIONS.c.id == bindparam("b_id")), values)


def replace_exposed_steps(session: Session, budget_id: str, rows: list[dict[str, Any]]) -> None:
    """Replace the stored exposed steps of a budget."""
    session.execute(delete(EXPOSED).where(EXPOSED.c.budget_id == budget_id))
    if rows:
        session.execute(insert(EXPOSED), rows)


def as_stored(table: Table) -> list[ColumnElement[Any]]:
    """Return the columns of a table; amounts, events and filters stay the stored texts, which are not parsed yet."""
    return [type_coerce(column, Text).label(column.name) if text_type(column) else column for column in table.c]


def text_type(column: ColumnElement[Any]) -> TypeDecorator[Any] | None:
    """Return the function that parses the text of a column with amounts, events or a filter; None for other columns."""
    return column.type if isinstance(column.type, AmountsText | EventsText | FilterText) else None


@cache
def _at_places(dialect: str) -> Select[Any]:
    """Select the reservations at a list of places. The list is one parameter on SQLite, and two on PostgreSQL: budgets
    and sequences."""
    columns: list[ColumnElement[Any]]
    if dialect == "sqlite":
        listed = func.json_each(bindparam("places")).table_valued("value")
        columns = [func.json_extract(listed.c.value, f"$[{member}]") for member in (0, 1)]
    else:
        lists = bindparam("budgets", type_=ARRAY(String)), bindparam("sequences", type_=ARRAY(BigInteger))
        listed = func.unnest(*lists).table_valued("budget_id", "sequence").render_derived()
        columns = [listed.c.budget_id, listed.c.sequence]
    is_there = (RESERVATIONS.c.budget_id == columns[0]) & (RESERVATIONS.c.sequence == columns[1])
    return select(*as_stored(RESERVATIONS)).join_from(listed, RESERVATIONS, is_there)


def _in_tree(statement: Select[Any], table: Table, root_id: str) -> Select[Any]:
    if not root_id:
        return statement
    return statement.where(table.c.budget_id.in_(select(BUDGETS.c.id).where(under(root_id))))
