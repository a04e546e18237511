"""The manifest of a backup: its description of itself. Pure.

A reader reads the manifest of an archive first, and trusts only what it states. It refuses a member that the manifest
does not name, and a member whose size or hash differs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

#: Archives of other versions are refused, since their contents may mean something else.
FORMAT_VERSION: Final = 1

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
#: A file of the data folder: the name of one of its folders, and a file name that cannot lead out of that folder.
FilePath = Annotated[str, StringConstraints(pattern=r"^(datasets|models)/[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
#: How the values of a column are written; see `app.backups.rows`.
Kind = Literal["integer", "boolean", "real", "text", "json", "bytes", "moment"]


class ArchiveRefused(Exception):
    """The file is not a backup, or not the one that was made; the message says what is wrong, and where."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Content(_Record):
    """Bytes that the archive holds."""

    bytes: Count
    sha256: Sha256


class TableContent(Content):
    """The rows of a table, one JSON list per line, in the order of ``columns``."""

    name: Name
    columns: dict[Name, Kind]
    rows: Count

    @property
    def member(self) -> str:
        """Its name in the archive."""
        return f"tables/{self.name}.ndjson"


class FileContent(Content):
    """A file of the data folder, unchanged: if a data key is set, data sets are encrypted."""

    path: FilePath

    @property
    def member(self) -> str:
        """Its name in the archive."""
        return f"files/{self.path}"


class LedgerFacts(_Record):
    """A description of the ledger in the backup.

    Attributes:
        ledger_id: The random id of the ledger, drawn once with the database.
        life: The number of the life that the ledger was in.
        budgets, entries: Their numbers.
        heads: One hash of the ends of all chains (`app.ledger.books.digest_of`).
        tree_size, tree_root: The size and the root of the tree over all entries.
    """

    ledger_id: str
    life: Count
    budgets: Count
    entries: Count
    heads: Sha256
    tree_size: Count
    tree_root: Sha256


class Manifest(_Record):
    """The contents of a backup.

    Attributes:
        format, version: The format of the archive and its version.
        service_version: The version of the program that made it.
        revision: The revision of the tables' schema.
        database: The kind of database from which they come; they can be restored into either kind.
        made_at: The time of its snapshot of the database, in UTC.
        is_verified: Whether the ledger was verified when the backup was made.
        ledger: A description of the ledger.
        tables: All tables.
        files: The files of the data folder.
        missing_files: The files that belong to rows and were not in the data folder.
    """

    format: Literal["epsilond-backup"] = "epsilond-backup"
    version: Literal[1] = FORMAT_VERSION
    service_version: str
    revision: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,32}$")]
    database: Literal["sqlite", "postgresql"]
    made_at: datetime
    is_verified: bool
    ledger: LedgerFacts
    tables: tuple[TableContent, ...]
    files: tuple[FileContent, ...]
    missing_files: tuple[FilePath, ...]

    @property
    def contents(self) -> tuple[TableContent | FileContent, ...]:
        """Return everything that the archive holds besides the manifest and its seal."""
        return (*self.tables, *self.files)

    @property
    def total_bytes(self) -> int:
        """Return the total size of the contents in bytes."""
        return sum(content.bytes for content in self.contents)

    def to_bytes(self) -> bytes:
        """Return the bytes of the manifest in the archive."""
        return self.model_dump_json(indent=1).encode()


def read_manifest(text: bytes) -> Manifest:
    """Read an archive's manifest.

    Raises:
        ArchiveRefused: it is not a manifest, or one of another version.
    """
    try:
        head = _Head.model_validate_json(text)
        if head.version != FORMAT_VERSION:
            raise ArchiveRefused(
                f"The backup has the format version {head.version}, and this program reads version "
                f"{FORMAT_VERSION}. Restore the backup with the program that made it, and upgrade afterwards."
            )
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ArchiveRefused(
            f"The archive's manifest does not have the form that this program writes: {where or 'text'}: "
            f"{fault['msg']}."
        ) from None
    names = [content.member for content in manifest.contents]
    if len(set(names)) < len(names):
        raise ArchiveRefused("The archive's manifest names a member twice.")
    return manifest


class _Head(BaseModel):
    format: Literal["epsilond-backup"]
    version: int
