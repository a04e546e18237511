"""Rows as texts with the same meaning on both databases.

A row is a JSON list. Integers, truth values and texts are written as they are, bytes in base64, and a moment as a text
in ISO 8601, in UTC. The stored text of a JSON column is kept letter by letter, and so are texts with amounts, events
and filters, because a value that was parsed and written again might differ in a byte from the text that was hashed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from app.backups.manifest import ArchiveRefused, Kind
from app.tables.base import UtcDateTime

#: The type with which columns of each kind are read and written.
_TYPES: Mapping[Kind, TypeEngine[Any]] = {
    "integer": sa.BigInteger(),
    "boolean": sa.Boolean(),
    "real": sa.Double(),
    "text": sa.Text(),
    "json": sa.Text(),
    "bytes": sa.LargeBinary(),
    "moment": UtcDateTime(),
}
_PYTHON: Mapping[Kind, type] = {
    "integer": int,
    "boolean": bool,
    "real": float,
    "text": str,
    "json": str,
    "bytes": bytes,
    "moment": datetime,
}
_OF_SQL: Sequence[tuple[type[TypeEngine[Any]], Kind]] = (
    (sa.JSON, "json"),
    (sa.Boolean, "boolean"),
    (sa.DateTime, "moment"),
    (sa.LargeBinary, "bytes"),
    (sa.Integer, "integer"),
    (sa.Float, "real"),
    (sa.String, "text"),
)


class UnreadableRow(Exception):
    """A stored value is not of its column's kind, which SQLite allows; the message says where."""


def kind_of(column: sa.Column[Any]) -> Kind:
    """Return the kind that says how the values of a column are written.

    Raises:
        TypeError: the column is of a type that has no kind yet.
    """
    type_: Any = column.type
    # SQLAlchemy's own decorators (Interval, PickleType) are stored differently on each database.
    while isinstance(type_, sa.TypeDecorator) and not isinstance(type_, sa.Interval | sa.PickleType):
        type_ = type_.impl_instance
    for known, kind in _OF_SQL:
        if isinstance(type_, known):
            return kind
    raise TypeError(f"a backup cannot hold the column {column.table.name}.{column.name} of the type {column.type!r}")


def read(dialect: str, table: str, columns: Mapping[str, Kind], order: Sequence[str]) -> sa.Select[Any]:
    """Return the statement that reads all rows of a table in a fixed order."""
    source = sa.table(table, *[sa.column(name, _TYPES[kind]) for name, kind in columns.items()])
    shown = [
        sa.cast(source.c[name], sa.Text).label(name) if kind == "json" and dialect != "sqlite" else source.c[name]
        for name, kind in columns.items()
    ]
    return sa.select(*shown).order_by(*[source.c[name] for name in order])


def insertion(dialect: str, table: str, columns: Mapping[str, Kind]) -> sa.Insert:
    """Return the statement that writes rows, given as dictionaries by the columns' names."""
    source = sa.table(table, *[sa.column(name, _TYPES[kind]) for name, kind in columns.items()])
    as_json = {
        name: sa.cast(sa.bindparam(name, type_=sa.Text()), sa.JSON)
        for name, kind in columns.items()
        if kind == "json" and dialect != "sqlite"
    }
    return sa.insert(source).values(
        {name: as_json.get(name, sa.bindparam(name, type_=_TYPES[kind])) for name, kind in columns.items()}
    )


def encoded(table: str, columns: Mapping[str, Kind], rows: Iterator[Sequence[Any]]) -> Iterator[bytes]:
    """Return the lines of some rows.

    Raises:
        UnreadableRow: a value is not of its column's kind.
    """
    kinds = list(columns.items())
    for row in rows:
        values = [_encode(table, name, kind, value) for (name, kind), value in zip(kinds, row, strict=True)]
        yield json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decoded(table: str, columns: Mapping[str, Kind], line: bytes) -> dict[str, Any]:
    """Return the row of a line.

    Raises:
        ArchiveRefused: it is not a row of the table.
    """
    try:
        values = json.loads(line)
        if type(values) is not list or len(values) != len(columns):
            raise ValueError("its number of values differs from the table's number of columns")
        return {
            name: None if value is None else _DECODERS[kind](value)
            for (name, kind), value in zip(columns.items(), values, strict=True)
        }
    except (ValueError, TypeError, RecursionError) as error:
        raise ArchiveRefused(
            f"A row of the table {table} does not have the form that this program writes: {error}."
        ) from None


def _encode(table: str, name: str, kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not _PYTHON[kind]:
        raise UnreadableRow(f"a value of the column {table}.{name} is not of the kind {kind}")
    return _ENCODERS.get(kind, _as_it_is)(value)


def _as_it_is(value: Any) -> Any:
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_checked(str)(value))
    if moment.tzinfo is None:
        raise ValueError("a time has no time zone")
    return moment


def _checked(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"a {kind.__name__} was expected")
        return value

    return check


_ENCODERS: Mapping[Kind, Callable[[Any], Any]] = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "moment": lambda value: value.astimezone(UTC).isoformat(),
}
_DECODERS: Mapping[Kind, Callable[[Any], Any]] = {
    "integer": _checked(int),
    "boolean": _checked(bool),
    "real": _checked(float),
    "text": _checked(str),
    "json": _checked(str),
    "bytes": lambda value: base64.b64decode(cast(str, _checked(str)(value)), validate=True),
    "moment": _moment,
}
