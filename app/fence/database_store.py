"""The fence in another database, for servers on machines that share no file system."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, delete, insert, select, update
from sqlalchemy import bindparam as parameter
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from app.db.database import Database
from app.db.lists import among, as_list
from app.fence.marks import Head, Kept, Move

_METADATA = MetaData()
_FENCE = Table(
    "epsilond_fence",
    _METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("ledger_id", String(64), nullable=False),
    Column("life", String(64), nullable=False),
)
_HEADS = Table(
    "epsilond_fence_heads",
    _METADATA,
    Column("budget_id", String(64), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)
_ADVANCE = (
    update(_HEADS)
    .where(
        _HEADS.c.budget_id == parameter("b_id"),
        _HEADS.c.sequence == parameter("b_sequence"),
        _HEADS.c.hash == parameter("b_hash"),
    )
    .values(sequence=parameter("sequence"), hash=parameter("hash"))
)
#: The option that makes the driver report how many rows were inserted.
_COUNTED = {"preserve_rowcount": True}


class DatabaseStore:
    """The fence in two tables of a database that is not the ledger's."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self._is_made = False

    def read(self, ids: Collection[str] | None = None) -> Kept | None:
        """Return the content of the fence, with the heads of some budgets or of all; None if there is no fence."""
        self._make_tables()
        dialect = self._database.engine.dialect.name
        statement = select(_HEADS)
        values = {}
        if ids is not None:
            statement = statement.where(among(dialect, _HEADS.c.budget_id, "ids"))
            values = {"ids": as_list(dialect, list(ids))}
        with self._database.read() as session:
            fence = session.execute(select(_FENCE)).one_or_none()
            if fence is None:
                return None
            heads = {row.budget_id: Head(row.sequence, row.hash) for row in session.execute(statement, values)}
        return Kept(fence.ledger_id, fence.life, heads)

    def create(self, kept: Kept) -> None:
        """Create the fence unless it exists."""
        self._make_tables()
        with self._database.write_briefly() as connection:
            row = {"id": 1, "ledger_id": kept.ledger_id, "life": kept.life}
            made = connection.execute(self._insert(_FENCE).values(row).on_conflict_do_nothing())
            if made.rowcount and kept.heads:
                connection.execute(insert(_HEADS), _rows(kept.heads))

    def replace(self, kept: Kept) -> None:
        """Replace the whole content of the fence."""
        self._make_tables()
        with self._database.write_briefly() as connection:
            connection.execute(delete(_HEADS))
            connection.execute(delete(_FENCE))
            connection.execute(insert(_FENCE), {"id": 1, "ledger_id": kept.ledger_id, "life": kept.life})
            if kept.heads:
                connection.execute(insert(_HEADS), _rows(kept.heads))

    def advance(self, moves: Sequence[Move]) -> bool:
        """Update the head of each chain whose ``base`` is its head in the fence. Return whether all were updated
        (`Store.advance`)."""
        extended = [
            {
                "b_id": move.budget_id,
                "b_sequence": move.base.sequence,
                "b_hash": move.base.hash,
                "sequence": move.head.sequence,
                "hash": move.head.hash,
            }
            for move in sorted(moves, key=lambda move: move.budget_id)
            if move.base is not None
        ]
        new = {move.budget_id: move.head for move in moves if move.base is None}
        noted = 0
        with self._database.write_briefly() as connection:
            if extended:
                noted += connection.execute(_ADVANCE, extended).rowcount
            if new:
                statement = self._insert(_HEADS).on_conflict_do_nothing()
                noted += connection.execute(statement, _rows(new), execution_options=_COUNTED).rowcount
        return noted == len(moves)

    def close(self) -> None:
        """Close the connections. New ones are opened when they are needed."""
        self._database.dispose()

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        return sqlite.insert(table) if self._database.is_sqlite else postgresql.insert(table)

    def _make_tables(self) -> None:
        if self._is_made:
            return
        try:
            _METADATA.create_all(self._database.engine)
        except DBAPIError:
            # If another server has created the tables meanwhile, this call finds them.
            _METADATA.create_all(self._database.engine)
        self._is_made = True


def _rows(heads: Mapping[str, Head]) -> list[dict[str, object]]:
    return [
        {"budget_id": budget_id, "sequence": head.sequence, "hash": head.hash}
        for budget_id, head in sorted(heads.items())
    ]
