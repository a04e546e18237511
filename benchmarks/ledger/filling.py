"""This module makes a budget with a long history, faster than one command at a time could.

The first reservations and commits are real ones. The others repeat their rows with new identifiers, sequence numbers
and canonical bytes, and are chained by the ledger's own hash. The result is the same as if each had been a command,
which a test checks by replaying the entries. But it takes a minute instead of an hour.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
from sqlalchemy import make_url

from accounting.events import Event, event_from_json
from accounting.filters import filter_from_json
from accounting.units import Amounts, add_saturating
from app.context import Context
from app.entries.records import record_from_canonical
from app.kit.hash_chain import chain_hash
from app.kit.ids import new_id
from benchmarks.ledger import ours, work
from benchmarks.ledger.postgresql import libpq_url
from benchmarks.ledger.throughput import new_key

#: A limit on rho that ten million entries do not reach.
LIMIT = 10_000.0
#: The number of real pairs of a reservation and a commit, which the other pairs repeat. Noise and count differ in each.
TEMPLATES = 16
BATCH = 20_000

#: A row as the driver reads and writes it. JSON values are text, and on PostgreSQL all values are text.
Row = dict[str, Any]


class Tables(Protocol):
    """A connection that reads and writes rows without the application's code."""

    def rows(self, table: str, where: str) -> list[Row]: ...
    def insert(self, table: str, rows: Sequence[Row]) -> None: ...
    def execute(self, statement: str) -> None: ...
    def to_bytes(self, stored: Any) -> bytes: ...
    def from_bytes(self, value: bytes) -> Any: ...


@dataclass(frozen=True, slots=True)
class Template:
    """The rows of one reservation and its commit, with the charged amounts in the filter's units, and the charged step
    with its count."""

    @property
    def made(self) -> str:
        """The hash of the entry of the reservation, to which the entry of the commit refers."""
        return str(self.entries[0]["hash"])

    reservation: Row
    entries: tuple[Row, Row]
    charged: Amounts
    step_hash: str
    count: int


def filled_budget(
    context: Context, entries: int, request: Mapping[str, Any] | None = None, events: Sequence[Event] = ()
) -> str:
    """Fill a new budget with the given number of entries, or one more, and return the budget's id. Real entries come
    first, then repetitions of them.

    Args:
        context: The context of the ledger.
        entries: The number of entries, at least twice the number of events.
        request: The request that opens the budget; if None, the budget counts rho.
        events: One event for each real reservation; if empty, `TEMPLATES` full-batch queries.
    """
    budget_id = ours.create_budget(context, request or work.budget_request("zcdp", LIMIT), new_key("budget"))
    for event in events or [work.event(count, work.NOISE + count) for count in range(1, TEMPLATES + 1)]:
        reservation_id = ours.reserve(context, budget_id, [event], new_key("reserve"))
        assert reservation_id is not None, "the reservation is far below the limit"
        ours.commit(context, reservation_id, new_key("commit"))
    with _tables(context) as tables:
        _repeat_until(tables, budget_id, entries)
        tables.execute("ANALYZE")
    return budget_id


def _repeat_until(tables: Tables, budget_id: str, entries: int) -> None:
    (budget,) = tables.rows("budgets", f"id = '{budget_id}'")
    templates = _templates(tables, budget_id)
    sequence, head = int(budget["sequence"]), str(budget["head_hash"])
    spent = tuple(json.loads(budget["spent"]))
    exposed: Counter[str] = Counter()
    turns = itertools.cycle(templates)
    while sequence < entries:
        reservations: list[Row] = []
        added: list[Row] = []
        for template in itertools.islice(turns, min(BATCH, (entries - sequence + 1) // 2)):
            reservation_id = new_id("res")
            reservations.append({**template.reservation, "id": reservation_id, "sequence": sequence + 1})
            made = ""
            for row in template.entries:
                sequence += 1
                repeated = _repeated(tables, row, reservation_id, sequence, head, (template.made, made))
                head = repeated["hash"]
                made = made or head
                added.append(repeated)
            reservations[-1]["entry_hash"] = made
            spent = add_saturating(spent, template.charged)
            exposed[template.step_hash] += template.count
        tables.insert("reservations", reservations)
        tables.insert("entries", added)
    headroom = filter_from_json(json.loads(budget["filter"])).headroom(spent)
    tables.execute(
        f"UPDATE budgets SET spent = '{json.dumps(spent, separators=(',', ':'))}', headroom = {headroom}, "
        f"sequence = {sequence}, head_hash = '{head}' WHERE id = '{budget_id}'"
    )
    for step_hash, count in exposed.items():
        tables.execute(
            f"UPDATE exposed_steps SET count = count + {count} "
            f"WHERE budget_id = '{budget_id}' AND step_hash = '{step_hash}'"
        )


def _repeated(
    tables: Tables, row: Row, reservation_id: str, sequence: int, previous_hash: str, refers: tuple[str, str]
) -> Row:
    """Return a copy of the entry at another place in the chain. The copy is about another reservation, which was made
    by another entry."""
    entry_id = new_id("ent")
    canonical = (
        tables.to_bytes(row["canonical"])
        .replace(row["id"].encode(), entry_id.encode())
        .replace(row["reservation_id"].encode(), reservation_id.encode())
        .replace(b'"refers_to":"%s"' % refers[0].encode(), b'"refers_to":"%s"' % refers[1].encode())
        .replace(b'"sequence":"%d"' % int(row["sequence"]), b'"sequence":"%d"' % sequence)
    )
    return {
        **row,
        "id": entry_id,
        "sequence": sequence,
        "reservation_id": reservation_id,
        "canonical": tables.from_bytes(canonical),
        "previous_hash": previous_hash,
        "hash": chain_hash(previous_hash, canonical),
    }


def _templates(tables: Tables, budget_id: str) -> list[Template]:
    reservations = {row["id"]: row for row in tables.rows("reservations", f"budget_id = '{budget_id}'")}
    rows = tables.rows("entries", f"budget_id = '{budget_id}'")
    entries = sorted(rows, key=lambda row: int(row["sequence"]))[1:]
    for row in entries:
        del row["leaf_index"]  # the database assigns the number of the leaf
    exposed = tables.rows("exposed_steps", f"budget_id = '{budget_id}'")
    step_hashes = {event_from_json(json.loads(row["step"])[0]): row["step_hash"] for row in exposed}
    return [
        _template(reservations[reserve["reservation_id"]], (reserve, commit), tables, step_hashes)
        for reserve, commit in zip(entries[::2], entries[1::2], strict=True)
    ]


def _template(reservation: Row, entries: tuple[Row, Row], tables: Tables, step_hashes: Mapping[Event, str]) -> Template:
    record = record_from_canonical(tables.to_bytes(entries[1]["canonical"]))
    (event,) = record.events
    step_hash = step_hashes[Event(event.mechanism, event.sampling)]
    return Template(reservation, entries, record.amounts, step_hash, event.count)


@contextmanager
def _tables(context: Context) -> Iterator[Tables]:
    """Open one transaction on the context's database."""
    if context.database.is_sqlite:
        connection = sqlite3.connect(str(make_url(context.database.url).database))
        try:
            with connection:
                yield _SqliteTables(connection)
        finally:
            connection.close()
    else:
        with psycopg.connect(libpq_url(context.database.url)) as connected:
            yield _PostgreSqlTables(connected)


@dataclass(frozen=True, slots=True)
class _SqliteTables:
    connection: sqlite3.Connection

    def rows(self, table: str, where: str) -> list[Row]:
        found = self.connection.execute(f"SELECT * FROM {table} WHERE {where}")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        columns = list(rows[0])
        places = ", ".join("?" * len(columns))
        self.connection.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", (tuple(row.values()) for row in rows)
        )

    def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    def to_bytes(self, stored: Any) -> bytes:
        return bytes(stored)

    def from_bytes(self, value: bytes) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class _PostgreSqlTables:
    connection: psycopg.Connection[Any]

    def rows(self, table: str, where: str) -> list[Row]:
        names = [column.name for column in self.connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
        texts = ", ".join(f"{name}::text" for name in names)
        found = self.connection.execute(f"SELECT {texts} FROM {table} WHERE {where}")
        return [dict(zip(names, row, strict=True)) for row in found]

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        with self.connection.cursor().copy(f"COPY {table} ({', '.join(rows[0])}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(tuple(row.values()))

    def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    def to_bytes(self, stored: Any) -> bytes:
        return bytes.fromhex(stored.removeprefix("\\x"))

    def from_bytes(self, value: bytes) -> Any:
        return f"\\x{value.hex()}"
