"""Exports of the books: every entry of a consistent state, in pieces that may be read as slowly as the reader likes.

The ends of all chains, which are read together, fix the state. Entries never change, so they can be read afterwards, a
batch at a time, each in a short transaction of its own.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Row

from accounting.filters import PrivacyFilter
from app.context import Context
from app.db.database import Database
from app.db.failures import busy_is_a_problem
from app.ledger import books_repository as repository
from app.ledger import tree_repository
from app.ledger.bodies import entry_body
from app.ledger.books import Head, StoredEntry
from app.ledger.checkpoints import origin_of
from app.ledger.export_format import MEDIA_TYPE, ExportWriter
from app.ledger.integration import CannotIntegrate, integrate
from app.ledger.merkle import Frontier
from app.ledger.stored_values import WrongKind
from app.ledger.verdicts import TreeHead


class ExportFormat(StrEnum):
    """A format in which the file is written."""

    NDJSON = "ndjson"
    """A line of JSON per entry with the hashed bytes: can be verified by itself."""
    CSV = "csv"
    """A table for people, as `GET /v1/budgets/{id}/entries` shows the entries; RFC 4180."""

    @property
    def media_type(self) -> str:
        return MEDIA_TYPE if self is ExportFormat.NDJSON else "text/csv; charset=utf-8; header=present"


@dataclass(frozen=True)
class Export:
    """A state of the books that can be read.

    Attributes:
        made_at: The time of the state.
        root_id: The id of the root of the tree; "" for all.
        heads: The ends of all chains.
        filters: The filters of the budgets, for the names of amounts.
        last_leaf_index: The place of the last entry of the state.
        tree: The tree over all entries; later additions to it are not part of the state.
    """

    database: Database
    made_at: datetime
    root_id: str
    heads: Mapping[str, Head]
    filters: Mapping[str, PrivacyFilter]
    last_leaf_index: int
    tree: TreeHead | None

    def file_name(self, file_format: ExportFormat) -> str:
        """Return a name that says when it was made."""
        return f"ledger-{self.made_at:%Y%m%dT%H%M%SZ}.{file_format}"

    def parts(self, file_format: ExportFormat, service_version: str) -> Iterator[bytes]:
        """Yield the file, about a thousand lines at a time."""
        if file_format is ExportFormat.NDJSON:
            writer = ExportWriter()
            yield writer.first_line(self.made_at, service_version, self.root_id or None)
            for batch in self._batches():
                yield writer.entry_lines(batch)
            yield writer.last_line(list(self.heads.values()), None if self.root_id else self.tree)
        else:
            yield _lines([_COLUMNS])
            for batch in self._batches():
                yield _lines(_cells(self._body(entry)) for _, entry in batch)

    def _body(self, entry: StoredEntry) -> Mapping[str, Any]:
        """Return a row of the table. For an unreadable entry, the row says where it is and that it was changed."""
        try:
            return entry_body(entry, self.filters.get(entry.budget_id))
        except (WrongKind, KeyError):
            known = {name: getattr(entry, name) for name in ("leaf_index", "budget_id", "sequence", "hash")}
            return {**dict.fromkeys(_COLUMNS), **known, "reason": _UNREADABLE}

    def _batches(self) -> Iterator[list[tuple[int | None, StoredEntry]]]:
        """Yield the entries with their places in the tree."""
        after, size = 0, 0 if self.tree is None else self.tree.size
        while True:
            with self.database.read() as session:
                batch = repository.entries_after(session, self.root_id, after, self.last_leaf_index)
                if not batch:
                    return
                places: dict[int, int] = {}
                with suppress(WrongKind):
                    places = tree_repository.places(session, [entry.leaf_index for entry in batch])
            after = batch[-1].leaf_index
            placed = ((places.get(entry.leaf_index), entry) for entry in batch if self._belongs(entry))
            yield [(None if place is None or place >= size else place, entry) for place, entry in placed]

    def _belongs(self, entry: StoredEntry) -> bool:
        # A later transaction may have added entries of other budgets, and one of these may have an earlier place.
        head = self.heads.get(entry.budget_id)
        if type(entry.sequence) is not int:
            return True  # verification of the file will name it
        return head is not None and entry.sequence <= head.sequence


def export(context: Context, root_id: str = "") -> Export:
    """Return the books as they are now. Committed entries get their places in the tree first, if that is possible. If
    it is not, because somebody has changed the ledger, the entries are exported all the same, as evidence.

    Args:
        context: The process's context.
        root_id: The root of the tree of budgets to export; "" for all.
    """
    with busy_is_a_problem(context.database), suppress(CannotIntegrate):
        integrate(context.database)
    with context.database.read() as session:
        rows = [*repository.budgets(session, root_id), *repository.register(session, root_id)]
        tree = None
        with suppress(WrongKind):
            tree = tree_repository.find(session)
        return Export(
            context.database,
            context.clock(),
            root_id,
            {row.id: Head(row.id, row.sequence, row.head_hash) for row in rows},
            repository.filters(session, root_id),
            repository.last_leaf_index(session),
            None if tree is None else _head(tree),
        )


def _head(tree: Row[Any]) -> TreeHead | None:
    with suppress(ValueError):  # the text may be no frontier of that size
        return TreeHead(origin_of(tree.ledger_id), tree.size, Frontier(tree.size, tree.frontier).root())
    return None


_UNREADABLE = "not what the ledger wrote: `epsilond ledger verify` says what is wrong"
_COLUMNS = (
    "leaf_index",
    "budget_id",
    "sequence",
    "id",
    "kind",
    "recorded_at",
    "principal_id",
    "reservation_id",
    "refers_to",
    "dataset",
    "certificate",
    "purpose",
    "reason",
    "limit_request_id",
    "amount",
    "given_back",
    "events",
    "engine_version",
    "previous_hash",
    "hash",
)
#: First characters, including their wide forms, that make a spreadsheet take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _cells(body: Mapping[str, Any]) -> list[str]:
    return [_cell(body[column]) for column in _COLUMNS]


def _cell(value: Any) -> str:
    """Return the text of a cell, with an apostrophe before a text that a spreadsheet would execute.

    >>> _cell(" =1+1"), _cell(None), _cell({"rho": 0.5})
    ("' =1+1", '', '{"rho":0.5}')
    """
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue().encode()
