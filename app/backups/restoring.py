"""Restore a backup into an empty database and an empty data folder, completely or not at all.

A restore first writes a file that marks it as under way, and then the files of the data folder. It writes the database
last, in one transaction; on SQLite the database has another name until it is complete. So if the database exists,
everything else exists, too. After a restore was killed, the next one starts again from the beginning.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from app.backups.archive import ArchiveReader, Done
from app.backups.making import BackupRefused, ledger_facts, seal_of
from app.backups.manifest import ArchiveRefused, FileContent, LedgerFacts, Manifest, TableContent
from app.backups.rows import decoded, insertion
from app.context import Context
from app.db.database import Database, sqlite_file
from app.db.migrate import BrokenReferences, UnknownRevision, schema_changes, upgrade_within
from app.fence.file_store import DamagedFence
from app.fence.watching import fence_of
from app.kit.private_files import make_private_folder, sync_folder, write_private, write_private_once
from app.ledger.verdicts import describe
from app.ledger.verification import verify
from app.secrets.material import Purpose

#: The folders that must be empty before a restore.
_FOLDERS = ("datasets", "models", "checkpoints")
_ROWS = 500
_MARK = b"""A backup is being restored into this folder, or a restore was interrupted. `epsilond restore`, called
again, removes what lies in datasets, models and checkpoints here, and begins anew.
"""
#: The suffixes of the database file and of the files that SQLite keeps beside it.
_BESIDE = ("", "-wal", "-shm", "-journal")


class RestoreRefused(Exception):
    """Nothing was restored; the message says why, and what would be right."""


def restore(context: Context, archive: ArchiveReader, done: Done) -> None:
    """Restore the database and the data folder from the backup.

    Guarantees:
        - checked_first: nothing is written before every member of the archive was compared with the manifest, and the
          manifest with its seal.
        - whole_or_nothing: the database contains either nothing or everything in the backup, and then its ledger is
          valid.
        - again: after a crash the same call succeeds.

    Args:
        context: The process's context; its database and its data folder are empty.
        archive: The backup.
        done: Called with the number of bytes that were read; each byte is read twice.

    Raises:
        RestoreRefused: the database or the data folder is not empty, the secret is missing, the fence belongs to
            another ledger, the disk has no room, or the ledger is not valid.
        ArchiveRefused: the archive was changed since it was written.
    """
    manifest, settings = archive.manifest, context.settings
    if not context.secrets.exists(Purpose.CONTENT, 1):
        raise RestoreRefused(
            f"There is no secret at {settings.secret_file}, and no backup holds one. Put the secrets of this "
            "ledger into the data folder, or set EPSILOND_SECRET_KEY (docs/operating/secrets.md)."
        )
    archive.check_seal(seal_of(context))
    _check_fence(context, manifest)
    mark = settings.unfinished_restore_file
    was_killed = mark.exists()
    if not was_killed:
        _require_empty(context)
    _require_room(context, manifest)
    archive.check(done)
    with _alone(mark):
        # From here on, everything in the folders was put there by this restore, or by an earlier one that was killed.
        if not _is_empty(context.database):
            _require_this_backup(context, manifest)
        else:
            if was_killed:
                _clear(context)
            _write(context, archive, done)
        mark.unlink()
        sync_folder(settings.data_dir)


@contextmanager
def _alone(mark: Path) -> Iterator[None]:
    """Keep a file that stops every other command; only one restore at a time can hold it."""
    write_private_once(mark, _MARK)
    with mark.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RestoreRefused("Another restore into this data folder is under way.") from None
        yield


def _write(context: Context, archive: ArchiveReader, done: Done) -> None:
    try:
        for file in archive.manifest.files:
            _write_file(context, archive, file, done)
        with _new_database(context.database) as database:
            _write_database(database, archive, done)
    except BaseException:  # Ctrl+C included
        if _is_empty(context.database):
            _clear(context)
            context.settings.unfinished_restore_file.unlink()
        raise


def _check_fence(context: Context, manifest: Manifest) -> None:
    try:
        kept = fence_of(context).store.read(())
    except DamagedFence:
        return
    if kept is not None and kept.ledger_id != manifest.ledger.ledger_id:
        raise RestoreRefused(
            f"The fence belongs to the ledger {kept.ledger_id}, and the backup to the ledger "
            f"{manifest.ledger.ledger_id}. EPSILOND_FENCE or the data folder belongs to another service. Nothing "
            "was changed."
        )


def _require_this_backup(context: Context, manifest: Manifest) -> None:
    """Check that the existing database comes from an earlier restore of this backup that was killed at its very end."""
    with context.database.read() as session:
        if inspect(session.connection()).has_table("merkle_trees") and ledger_facts(session) == manifest.ledger:
            return
    raise RestoreRefused(
        "A restore was interrupted here, and the database holds something other than this backup. Give an empty "
        f"database, or remove the file {context.settings.unfinished_restore_file} after checking what the "
        "database holds."
    )


def _is_empty(database: Database) -> bool:
    file = sqlite_file(database.url)
    if file is not None:
        return not any(file.with_name(f"{file.name}{end}").exists() for end in _BESIDE)
    with database.read() as session:
        return not inspect(session.connection()).get_table_names()


def _require_empty(context: Context) -> None:
    if not _is_empty(context.database):
        raise RestoreRefused(
            "The database that EPSILOND_DATABASE_URL names is not empty. A backup is restored only into an empty "
            "database, so that nothing is lost; with SQLite, the file must not exist. Nothing was changed."
        )
    for name in _FOLDERS:
        folder = context.settings.data_dir / name
        if folder.is_dir() and any(folder.iterdir()):
            raise RestoreRefused(
                f"The folder {folder} is not empty. A backup is restored only into an empty data folder, which may "
                "hold the secrets and the fence. Nothing was changed."
            )


def _require_room(context: Context, manifest: Manifest) -> None:
    folder = make_private_folder(context.settings.data_dir)
    free, needed = shutil.disk_usage(folder).free, manifest.total_bytes
    if needed > free:
        raise RestoreRefused(
            f"The backup needs {needed} bytes, and only {free} are free in {folder}. Nothing was changed."
        )


def _clear(context: Context) -> None:
    """Remove what an unfinished restore has written."""
    for name in _FOLDERS:
        shutil.rmtree(context.settings.data_dir / name, ignore_errors=True)
    _remove_draft(context.database)


def _remove_draft(database: Database) -> None:
    file = sqlite_file(database.url)
    for end in _BESIDE if file is not None else ():
        assert file is not None
        _draft_of(file).with_name(f"{_draft_of(file).name}{end}").unlink(missing_ok=True)


def _draft_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.restoring")


def _write_file(context: Context, archive: ArchiveReader, content: FileContent, done: Done) -> None:
    def write(file: IO[bytes]) -> None:
        for part in archive.parts(content, done):
            file.write(part)

    write_private(context.settings.data_dir / content.path, write)


@contextmanager
def _new_database(target: Database) -> Iterator[Database]:
    """Provide a database to fill, which becomes the target when the block ends."""
    file = sqlite_file(target.url)
    if file is None:
        yield target
        return
    draft = _draft_of(file)
    _remove_draft(target)
    database = Database(sa.make_url(target.url).set(database=str(draft)).render_as_string(hide_password=False))
    try:
        yield database
    finally:
        # Closing the last connection moves the write-ahead log into the database file.
        database.dispose()
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    draft.rename(file)
    sync_folder(file.parent)


def _write_database(database: Database, archive: ArchiveReader, done: Done) -> None:
    """Write everything in one transaction, and commit it if the ledger is valid then."""
    manifest = archive.manifest
    try:
        with schema_changes(database) as connection:
            if inspect(connection).get_table_names():
                raise RestoreRefused("Another process wrote to the database during the restore. Nothing was changed.")
            _migrate(connection, manifest.revision)
            with _open_tables(connection):
                _require_same_tables(connection, manifest)
                for table in manifest.tables:
                    connection.execute(sa.delete(sa.table(table.name)))
                for table in manifest.tables:
                    _write_table(connection, archive, table, done)
            _continue_numbers(connection, manifest)
            upgrade_within(connection)
            _check_books(connection, manifest.ledger)
    except (IntegrityError, DataError, BrokenReferences) as error:
        # Only the first line of the driver's message, since the lines after it may quote rows.
        words = str(getattr(error, "orig", error)).partition("\n")[0]
        raise ArchiveRefused(f"The rows of the backup do not fit together: {words}.") from None


def _migrate(connection: Connection, revision: str) -> None:
    try:
        upgrade_within(connection, revision)
    except UnknownRevision:
        raise RestoreRefused(
            f"The backup has the schema {revision}, which this version does not know. Restore it with the version "
            "that made it, or with a newer one. Nothing was changed."
        ) from None


def _require_same_tables(connection: Connection, manifest: Manifest) -> None:
    """Require that each table and column of the archive exists in the archive's schema revision."""
    inspector = inspect(connection)
    there = set(inspector.get_table_names()) - {"alembic_version"}
    named = {table.name for table in manifest.tables}
    if named - there:
        raise ArchiveRefused(f"The schema {manifest.revision} has no table {min(named - there)}.")
    for table in manifest.tables:
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        if unknown := table.columns.keys() - columns:
            raise ArchiveRefused(f"In the schema {manifest.revision}, {table.name} has no column {min(unknown)}.")


@contextmanager
def _open_tables(connection: Connection) -> Iterator[None]:
    """Let rows be written in any order, even into append-only tables, and restore the constraints afterwards."""
    if connection.dialect.name == "sqlite":
        triggers = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")).all()
        for name, _ in triggers:
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"')
        yield
        for _, statement in triggers:
            connection.exec_driver_sql(statement)
        return
    inspector = inspect(connection)
    names = inspector.get_table_names()
    references = [(name, each["name"]) for name in names for each in inspector.get_foreign_keys(name)]
    for name in names:
        connection.exec_driver_sql(f'ALTER TABLE "{name}" DISABLE TRIGGER USER')
    for name, reference in references:
        connection.exec_driver_sql(f'ALTER TABLE "{name}" ALTER CONSTRAINT "{reference}" DEFERRABLE INITIALLY DEFERRED')
    yield
    connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
    for name, reference in references:
        connection.exec_driver_sql(f'ALTER TABLE "{name}" ALTER CONSTRAINT "{reference}" NOT DEFERRABLE')
    for name in names:
        connection.exec_driver_sql(f'ALTER TABLE "{name}" ENABLE TRIGGER USER')


def _write_table(connection: Connection, archive: ArchiveReader, table: TableContent, done: Done) -> None:
    statement = insertion(connection.dialect.name, table.name, table.columns)
    rows: list[dict[str, Any]] = []
    for line in archive.lines(table, done):
        rows.append(decoded(table.name, table.columns, line))
        if len(rows) == _ROWS:
            connection.execute(statement, rows)
            rows.clear()
    if rows:
        connection.execute(statement, rows)


def _continue_numbers(connection: Connection, manifest: Manifest) -> None:
    """Set the database's sequences so that they continue after the numbers in the rows. SQLite needs no such step."""
    if connection.dialect.name == "sqlite":
        return
    inspector = inspect(connection)
    for table in manifest.tables:
        for column in inspector.get_columns(table.name):
            where = {"table": f'"{table.name}"', "column": column["name"]}
            sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:table, :column)"), where)
            if sequence is not None:
                last = connection.scalar(
                    sa.select(sa.func.max(sa.column(column["name"]))).select_from(sa.table(table.name))
                )
                if last is not None:
                    connection.execute(text("SELECT setval(:sequence, :last)"), {"sequence": sequence, "last": last})


def _check_books(connection: Connection, said: LedgerFacts) -> None:
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        verdict = verify(session)
        if verdict.first_bad is not None:
            raise RestoreRefused(
                f"The books of the backup are not valid: {describe(verdict.first_bad)}. Nothing was changed."
            )
        try:
            found = ledger_facts(session)
        except BackupRefused as error:
            raise RestoreRefused(f"{error} Nothing was changed.") from None
    if found != said:
        raise ArchiveRefused("The books in the backup are not the ones that its manifest names.")
