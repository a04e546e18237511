"""The parts of the rows of data sets, keys, runs, sweeps, audits and webhooks that entries of the register contain.

A column that decides what may be charged, or says what a charge was for, is in an entry. Other columns are listed with
the reason why they are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, true

from accounting.canonical import Json, canonical_text, sha256_hex
from app.entries.kinds import ChargedData, EntryKind
from app.entries.subjects import LATER, Subject
from app.kit.timestamps import format_moment
from app.tables.access import ApiKey
from app.tables.datasets import Dataset, DatasetVersion
from app.tables.runs import Audit, Run, RunSweep
from app.tables.states import ENDED
from app.tables.webhooks import Webhook


@dataclass(frozen=True)
class Registered:
    """A table whose rows are registered, and the columns that entries contain.

    Attributes:
        subject: The kind of subject that a row is.
        table: The table.
        ends: The column that is not null once the row has ended; None if nothing ends.
        untold: The columns that no entry contains, with reasons.
        shortened: The columns of which entries contain only the SHA-256.
        rows: The rows that are registered.
        ended_states: The values of the column ``state`` of rows that have ended.
        is_removed: Whether a row is removed at its end.
    """

    subject: Subject
    table: Table
    ends: str | None = None
    untold: Mapping[str, str] = field(default_factory=dict)
    shortened: frozenset[str] = frozenset()
    rows: Callable[[Table], ColumnElement[bool]] = lambda _table: true()
    ended_states: tuple[str, ...] = ()
    is_removed: bool = False

    def columns(self, kind: EntryKind) -> tuple[str, ...]:
        """Return the columns that an entry of a kind contains."""
        if kind is not EntryKind.REGISTER:
            return LATER[self.subject][kind]
        left_for_the_end = set(LATER[self.subject].get(EntryKind.END, ())) - self._known_at_first
        return tuple(column.name for column in self.table.c if column.name not in self.untold.keys() | left_for_the_end)

    @property
    def _known_at_first(self) -> set[str]:
        """Return the column that both the first entry and the end contain; the first entry says that the row has not
        ended."""
        return set() if self.ends is None else {self.ends}

    def says(self, row: Mapping[str, Any], kind: EntryKind) -> dict[str, Json]:
        """Return what an entry of a kind says about a stored row."""
        return {name: self._said(name, row) for name in self.columns(kind)}

    def different(self, row: Mapping[str, Any], said: Mapping[str, Json]) -> str | None:
        """Return the first column of the row that differs from its last value in the entries; None if there is none.

        A column that did not exist yet at the first entry must be null in the row.
        """
        told = said.keys() | self.columns(EntryKind.REGISTER)
        for name in [column.name for column in self.table.c if column.name in told]:
            if canonical_text(self._said(name, row)) != canonical_text(said.get(name)):
                return name
        if self.ended_states and "state" not in said and row["state"] in self.ended_states:
            return "state"
        return None

    def _said(self, name: str, row: Mapping[str, Any]) -> Json:
        value = row[name]
        if name == "content_hash" and value is not None:
            # The first version is described in the row of its data set.
            dataset_id, version = row.get("dataset_id", row["id"]), row.get("version", 1)
            return content_under(row["budget_id"], dataset_id, version, value)
        if value is None:
            return None
        if name in self.shortened:
            data = value if isinstance(value, bytes) else _compact(value)
            return f"sha256:{sha256_hex(data)}"
        return format_moment(value) if isinstance(value, datetime) else cast(Json, value)


def content_under(root_id: str | None, dataset_id: str, version: int, content_hash: str) -> str:
    """Return the hash that entries contain in place of a content. Without the secret it is as good as a random number
    for each version of each data set.

    So readers of entries can neither test a guess at rows nor see that the same rows are registered twice. The entries
    that an analyst sees have the same distribution whatever the rows are.

    Args:
        root_id: The root budget of private data.
        dataset_id, version: The version that has the content.
        content_hash: The content hash of the rows, keyed.

    >>> content_under("bud_a", "ds_1", 1, "00") == content_under("bud_b", "ds_1", 1, "00")
    False
    """
    named = f"epsilond dataset content\n{root_id or ''}\n{dataset_id}\n{version}\n{content_hash}"
    return sha256_hex(named.encode())


def charged_data(dataset: Dataset, version: int, content_hash: str | None) -> ChargedData:
    """Return how a charge for a data set names it.

    Args:
        dataset: A data set with private rows.
        version: The version that is trained on.
        content_hash: The content hash of the rows of that version.
    """
    content = content_under(dataset.budget_id, dataset.id, version, str(content_hash))
    return ChargedData(dataset.id, version, content)


def hash_of_cells(cells: Iterable[tuple[Any, ...]]) -> str:
    """Return the hash of a sweep's cells.

    Args:
        cells: For each cell, in order: its number, its values, its plan's hash, what it achieves, and the draft of its
            trials.
    """
    hashed = hashlib.sha256()
    for cell in cells:
        hashed.update(_compact(list(cell)) + b"\n")
    return hashed.hexdigest()


def _compact(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


REGISTERED: Mapping[Subject, Registered] = {
    each.subject: each
    for each in (
        Registered(
            Subject.DATASET,
            cast(Table, Dataset.__table__),
            ends="deleted_at",
        ),
        Registered(
            Subject.VERSION,
            cast(Table, DatasetVersion.__table__),
        ),
        Registered(
            Subject.KEY,
            cast(Table, ApiKey.__table__),
            ends="revoked_at",
            untold={"last_used_at": "It is written with every use, and only shows which keys are still used."},
            shortened=frozenset({"token_hash", "previous_token_hash"}),
        ),
        Registered(
            Subject.RUN,
            cast(Table, Run.__table__),
            ends="finished_at",
            untold={
                "heartbeat": "A worker updates it while it carries out the run; it decides nothing afterwards.",
                "stream_id": "It names the random numbers of a run in training; it decides nothing afterwards.",
            },
            shortened=frozenset(
                {
                    "plan",
                    "target",
                    "achieved",
                    "provenance",
                    "warnings",
                    "model",
                    "description",
                    "inline_dataset",
                    "result",
                    "problem",
                    "schedule",
                }
            ),
            # The trials of a sweep for the best are left out, since their number is secret.
            rows=lambda table: ~table.c.is_withheld,
            ended_states=ENDED,
        ),
        Registered(
            Subject.AUDIT,
            cast(Table, Audit.__table__),
            shortened=frozenset({"plan", "request", "claim", "finding"}),
        ),
        Registered(
            Subject.SWEEP,
            cast(Table, RunSweep.__table__),
            ends="finished_at",
            shortened=frozenset({"request", "fields", "guarantee", "warnings"}),
        ),
        Registered(
            Subject.WEBHOOK,
            cast(Table, Webhook.__table__),
            untold={"dropped": "It counts messages that were not written, and decides nothing."},
            # The address may contain a secret of the receiver, so only owners of the budget see all of it.
            shortened=frozenset({"url"}),
            is_removed=True,
        ),
    )
}
