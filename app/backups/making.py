"""Make a backup of one snapshot of the database and the files to which its rows refer. The service may run
meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from app import VERSION
from app.backups.archive import ArchiveWriter, Done, Seal, file_parts, open_archive
from app.backups.contents import belonging_files, tables
from app.backups.manifest import FileContent, Kind, LedgerFacts, Manifest, TableContent
from app.backups.rows import UnreadableRow, encoded, read
from app.context import Context
from app.db.migrate import head_revision
from app.fence import repository as lives
from app.kit.private_files import write_new_private
from app.ledger import tree_repository
from app.ledger.books import Head, digest_of
from app.ledger.books_repository import register
from app.ledger.integration import CannotIntegrate, integrate
from app.ledger.merkle import Frontier
from app.ledger.verdicts import describe
from app.ledger.verification import verify
from app.tables.ledger import Budget

#: The number of rows that are read at once.
_ROWS = 1000


class BackupRefused(Exception):
    """No backup is made, because the ledger or a row is not what the service would have written; the message says
    where.
    """


def seal_of(context: Context) -> Seal:
    """Return the function that seals manifests with the ledger's content secret. Every server of the database has this
    secret, and no archive contains it.
    """
    return lambda text: context.keyed_hash("backup", text)


def make_backup(context: Context, path: Path, done: Done, *, verifies: bool = True) -> Manifest:
    """Write a backup to a new file.

    Guarantees:
        - one_moment: all tables are from one snapshot of the database, whatever is written meanwhile.
        - whole_or_nothing: the file appears under its name when all of it is on the disk and was read again.
        - no_secret: neither a secret, nor a checkpoint of a run, nor the fence is in it.

    Args:
        context: The process's context; its database is at the newest schema.
        path: The new file, which only its owner can read, in a folder that exists.
        done: Called with the number of bytes that were written, or read again.
        verifies: Whether the ledger is verified, in the same snapshot.

    Returns:
        The manifest of the backup.

    Raises:
        FileExistsError: there is such a file.
        BackupRefused: the ledger is not valid, or a row cannot be read.
        OSError: the file cannot be written.
    """
    try:
        # Committed entries get their places in the tree first, so that verification of the restored backup covers all
        # of them.
        integrate(context.database)
    except CannotIntegrate:
        raise BackupRefused("The tree over the entries is damaged: `epsilond ledger verify` names the place.") from None
    made: list[Manifest] = []

    def write(file: IO[bytes]) -> None:
        with ArchiveWriter(file) as writer, context.database.read() as session:
            made.append(_write(context, session, writer, done, verifies=verifies))
            writer.finish(made[0], seal_of(context))
        file.flush()
        with open_archive(Path(file.name)) as archive:
            archive.check_seal(seal_of(context))
            archive.check(done)

    write_new_private(path, write)
    return made[0]


def _write(context: Context, session: Session, writer: ArchiveWriter, done: Done, *, verifies: bool) -> Manifest:
    made_at = context.clock()
    if verifies:
        verdict = verify(session)
        if verdict.first_bad is not None:
            raise BackupRefused(
                f"The books are not valid: {describe(verdict.first_bad)}. No backup was made, because invalid books "
                f"could not be restored."
            )
    written = [_write_table(session, writer, done, *table) for table in tables()]
    files, missing = _write_files(context, session, writer, done)
    return Manifest(
        service_version=VERSION,
        revision=head_revision(),
        database="sqlite" if context.database.is_sqlite else "postgresql",
        made_at=made_at,
        is_verified=verifies,
        ledger=ledger_facts(session),
        tables=tuple(written),
        files=tuple(files),
        missing_files=tuple(missing),
    )


def ledger_facts(session: Session) -> LedgerFacts:
    """Return a description of the ledger in a session's snapshot: the ends of its chains, and the row of its tree.

    Raises:
        BackupRefused: the row of the tree is missing or not valid.
    """
    connection = session.connection()
    rows = session.execute(select(Budget.id, Budget.sequence, Budget.head_hash)).all()
    chains = [*rows, *register(session, "")]
    tree, life = tree_repository.find(session), lives.newest_life(connection)
    try:
        if tree is None:
            raise ValueError("it is missing")
        root = Frontier(tree.size, bytes(tree.frontier)).root().hex()
    except (ValueError, TypeError, AttributeError) as error:
        raise BackupRefused(f"The row of the tree over the entries is damaged: {error}.") from None
    return LedgerFacts(
        ledger_id=tree.ledger_id,
        life=0 if life is None else life[0],
        budgets=len(rows),
        entries=sum(row.sequence for row in chains),
        heads=digest_of(Head(row.id, row.sequence, row.head_hash) for row in chains),
        tree_size=tree.size,
        tree_root=root,
    )


def _write_table(
    session: Session, writer: ArchiveWriter, done: Done, name: str, columns: Mapping[str, Kind], order: list[str]
) -> TableContent:
    rows = 0

    def lines() -> Iterator[bytes]:
        nonlocal rows
        statement = read(session.get_bind().dialect.name, name, columns, order)
        with closing(session.execute(statement.execution_options(yield_per=_ROWS))) as found:
            for line in encoded(name, columns, (tuple(row) for row in found)):
                rows += 1
                done(len(line))
                yield line

    try:
        content = writer.write(f"tables/{name}.ndjson", lines(), is_compressed=True)
    except (UnreadableRow, ValueError, TypeError, OverflowError) as error:
        # The database driver may fail to read a value before this code can check it.
        raise BackupRefused(
            f"The table {name} cannot be read: {error}. `epsilond ledger verify` may say more."
        ) from None
    return TableContent(name=name, columns=dict(columns), rows=rows, **content.model_dump())


def _write_files(
    context: Context, session: Session, writer: ArchiveWriter, done: Done
) -> tuple[list[FileContent], list[str]]:
    """Write the files, and return them with those that are missing although rows refer to them."""
    folder, files, absent = context.settings.data_dir, [], set()
    for path in belonging_files(session, context):
        name = path.relative_to(folder).as_posix()
        try:
            with path.open("rb") as file:
                content = writer.write(f"files/{name}", _told(file_parts(file), done), is_compressed=False)
        except FileNotFoundError:
            absent.add(path)
            continue
        files.append(FileContent(path=name, **content.model_dump()))
    if absent:
        # The file of a data set that was deleted since the view began is gone, and is not needed.
        with context.database.read() as now:
            absent &= set(belonging_files(now, context))
    return files, sorted(path.relative_to(folder).as_posix() for path in absent)


def _told(parts: Iterator[bytes], done: Done) -> Iterator[bytes]:
    for part in parts:
        done(len(part))
        yield part
