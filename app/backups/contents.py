"""The contents of a backup: every table, and the files of the data folder that rows refer to.

A backup contains no secrets, and no checkpoints of runs, which hold the keys of their noise. It does not contain the
fence either, which distinguishes an old backup from the newest state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.backups.manifest import Kind
from app.backups.rows import kind_of
from app.context import Context
from app.datasets import repository
from app.datasets.files import DatasetFiles
from app.runs.artifacts import model_path
from app.tables.runs import Run
from app.tables.schema import metadata
from app.tables.states import RunState

#: Tables, and columns as ``table.column``, that a backup leaves out, and why. A column that is left out has no value
#: after a restore.
LEFT_OUT: Mapping[str, str] = {
    "ledger_uses": "They count what keys have written on a day, only for quotas; a restored ledger counts anew.",
    "merkle_trees.awaited_leaf_index": "It goes with the next one.",
    "merkle_trees.awaited_transaction": "It counts the transactions of one database server, and another counts anew.",
}


def tables() -> Iterator[tuple[str, Mapping[str, Kind], list[str]]]:
    """Yield the tables of a backup: their names, their columns with their kinds, and the columns of their primary
    keys."""
    for name, table in sorted(metadata.tables.items()):
        if name not in LEFT_OUT:
            columns = [column for column in table.columns if f"{name}.{column.name}" not in LEFT_OUT]
            kinds = {column.name: kind_of(column) for column in columns}
            yield name, kinds, [column.name for column in table.primary_key.columns]


def belonging_files(session: Session, context: Context) -> Iterator[Path]:
    """Return the files of data sets and models to which the rows in a session's snapshot refer."""
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    for version_id in repository.stored(session):
        yield files.path(version_id)
    with_model = select(Run).where(Run.state == RunState.SUCCEEDED, Run.result.is_not(None))
    with closing(session.scalars(with_model.order_by(Run.id).execution_options(yield_per=100))) as runs:
        for run in runs:
            yield model_path(context, run)
