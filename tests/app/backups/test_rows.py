"""Rows as text: every kind of column, and values that are none of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from app.backups.contents import LEFT_OUT
from app.backups.manifest import ArchiveRefused, Kind
from app.backups.rows import UnreadableRow, decoded, encoded, kind_of
from app.tables.schema import metadata

COLUMNS: dict[str, Kind] = {
    "i": "integer",
    "b": "boolean",
    "r": "real",
    "t": "text",
    "j": "json",
    "y": "bytes",
    "m": "moment",
}
ROW = (2**62, True, 0.1, "é\n\u2028\x1b", '{"a" : 1.0}', b"\0\xff", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC))


def test_a_row_comes_back_as_it_was() -> None:
    (line,) = encoded("x", COLUMNS, iter([ROW]))
    assert line.count(b"\n") == 1, "a row is a line"
    assert tuple(decoded("x", COLUMNS, line).values()) == ROW
    (line,) = encoded("x", COLUMNS, iter([(None,) * 7]))
    assert set(decoded("x", COLUMNS, line).values()) == {None}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i", 1.0),
        ("i", True),
        ("b", 1),
        ("r", "0.1"),
        ("r", 1),
        ("t", b"a"),
        ("j", {}),
        ("y", "a"),
        ("m", "2026-01-01"),
    ],
)
def test_a_stored_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnreadableRow, match=f"a value of the column x.{name} is not of the kind {COLUMNS[name]}"):
        list(encoded("x", {name: COLUMNS[name]}, iter([(value,)])))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i", "[1.0]"), ("i", "[true]"), ("i", '["1"]'), ("i", "[1e400]"), ("b", "[1]"), ("r", "[1]"), ("t", "[1]"),
        ("j", "[{}]"), ("y", '["%"]'), ("y", "[1]"), ("m", '["2026-01-01"]'), ("m", '["today"]'), ("m", "[1]"),
        ("i", "[]"), ("i", "[1,2]"), ("i", "{}"), ("i", "1"), ("i", "x"), ("i", "[" * 100_000),
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_is_refused(name: str, text: str) -> None:
    with pytest.raises(ArchiveRefused, match="A row of the table x does not have the form that this program writes"):
        decoded("x", {name: COLUMNS[name]}, f"{text}\n".encode())


def test_every_column_of_every_table_has_a_kind() -> None:
    tables = [table for name, table in metadata.tables.items() if name not in LEFT_OUT]
    kinds = {kind_of(column) for table in tables for column in table.columns}
    assert kinds == set(COLUMNS.values())


def test_a_type_without_a_kind_is_an_error() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("c", sa.Interval()))
    with pytest.raises(TypeError, match=r"cannot hold the column t\.c"):
        kind_of(table.c.c)


def test_text_of_json_is_kept_letter_by_letter() -> None:
    (line,) = encoded("x", {"j": "json"}, iter([('{"b": 1,  "a":1e0}',)]))
    assert json.loads(line) == ['{"b": 1,  "a":1e0}']
