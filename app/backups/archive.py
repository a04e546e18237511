"""The file of a backup: a ZIP archive with a manifest, and a seal on it.

    manifest.json
    seal                          a keyed hash of the manifest, under the secret of contents
    tables/<table>.ndjson         compressed
    files/<path in the data folder>

Names, modes and links in an archive are never used for unpacking. A reader asks for the members that the manifest
names, and gets their bytes while they are hashed. Reading takes as much memory as the longest row.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from app.backups.manifest import ArchiveRefused, Content, FileContent, Manifest, TableContent, read_manifest

_MANIFEST, _SEAL = "manifest.json", "seal"
#: The largest manifest that is read. It has a line for each file, and half a million lines have this many bytes.
_MOST_MANIFEST_BYTES = 128 * 2**20
#: The largest row that is read, as a whole. The largest that the service writes is a run whose request contained its
#: data.
MOST_ROW_BYTES = 256 * 2**20
_PART_BYTES = 2**20
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1

#: The errors that `zipfile` raises for bytes that are not an archive.
_NOT_AN_ARCHIVE = (
    OSError,  # a seek to a negative position
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    UnicodeDecodeError,
    ValueError,
    RuntimeError,
)

#: A function that returns the seal of a manifest's bytes.
Seal = Callable[[bytes], str]
#: A function that is called with the number of bytes processed since its last call.
Done = Callable[[int], None]


class ArchiveWriter:
    """Write an archive, member by member, and the manifest last; without the manifest the file is not an archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(file, "w", allowZip64=True)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A failure is ignored here: closing fails on a full disk, and the file would be closed later anyway.
        with suppress(OSError, ValueError):
            self._archive.close()

    def write(self, name: str, parts: Iterator[bytes], *, is_compressed: bool) -> Content:
        """Write a member, and return its size and hash."""
        digest, size = hashlib.sha256(), 0
        with self._archive.open(_info(name, is_compressed=is_compressed), "w", force_zip64=True) as member:
            for part in parts:
                member.write(part)
                digest.update(part)
                size += len(part)
        return Content(bytes=size, sha256=digest.hexdigest())

    def finish(self, manifest: Manifest, seal: Seal) -> None:
        """Write the manifest and its seal: the archive is complete."""
        text = manifest.to_bytes()
        self._archive.writestr(_info(_MANIFEST, is_compressed=True), text)
        self._archive.writestr(_info(_SEAL, is_compressed=False), seal(text))
        self._archive.close()


class ArchiveReader:
    """An open archive. Everything that it returns has been compared with the manifest.

    Attributes:
        manifest: The archive's description of itself.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        infos = archive.infolist()
        self._infos = {info.filename: info for info in infos}
        if len(self._infos) < len(infos):
            raise ArchiveRefused("The archive has two members with the same name.")
        for info in infos:
            if info.compress_type not in _COMPRESSIONS or info.flag_bits & _ENCRYPTED:
                raise ArchiveRefused(
                    f"The archive's member {info.filename!r} is not stored in the way in which this program stores "
                    "members."
                )
        self._text = self._small(_MANIFEST, _MOST_MANIFEST_BYTES)
        self._seal = self._small(_SEAL, _PART_BYTES)
        self.manifest = read_manifest(self._text)
        expected = {_MANIFEST, _SEAL, *(content.member for content in self.manifest.contents)}
        for name in sorted(expected - self._infos.keys()):
            raise ArchiveRefused(f"The archive's member {name!r} is missing.")
        for name in sorted(self._infos.keys() - expected):
            raise ArchiveRefused(f"The archive's member {name!r} is not in the manifest.")

    def check_seal(self, seal: Seal) -> None:
        """Check that the manifest is the one that was written.

        Raises:
            ArchiveRefused: it was changed, or the content secret is another one.
        """
        if not hmac.compare_digest(seal(self._text).encode(), self._seal):
            raise ArchiveRefused(
                "The archive's seal does not match this content secret: the archive was changed after it was "
                "made, or the secret here belongs to another ledger."
            )

    def check(self, done: Done) -> None:
        """Read every member, and compare it with the manifest.

        Raises:
            ArchiveRefused: a member is not what was written.
        """
        for table in self.manifest.tables:
            for _ in self.lines(table, done):
                pass
        for file in self.manifest.files:
            for _ in self.parts(file, done):
                pass

    def parts(self, content: TableContent | FileContent, done: Done) -> Iterator[bytes]:
        """Return the bytes of a member, piece by piece.

        Raises:
            ArchiveRefused: they are not those that were written; this is raised after the last piece at the latest.
        """
        return self._hashed(content, done, lambda member, left: member.read(min(left, _PART_BYTES)))

    def lines(self, table: TableContent, done: Done) -> Iterator[bytes]:
        """Yield the lines of a table.

        Raises:
            ArchiveRefused: as in `parts`; a line is too long, or the number of lines differs from the manifest.
        """
        rows = 0
        for line in self._hashed(table, done, lambda member, left: member.readline(min(left, MOST_ROW_BYTES))):
            if not line.endswith(b"\n"):
                raise ArchiveRefused(
                    f"A row of the table {table.name} does not end, or is longer than any row that this program writes."
                )
            rows += 1
            yield line
        if rows != table.rows:
            raise ArchiveRefused(f"The table {table.name} has {rows} rows, and the manifest says {table.rows}.")

    def _hashed(
        self, content: TableContent | FileContent, done: Done, read: Callable[[IO[bytes], int], bytes]
    ) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        try:
            with self._archive.open(self._infos[content.member]) as member:
                # One byte more than expected is asked for, so that a member that is too long is noticed.
                while part := read(member, content.bytes + 1 - size):
                    digest.update(part)
                    size += len(part)
                    if size > content.bytes:
                        break
                    done(len(part))
                    yield part
        except _NOT_AN_ARCHIVE as error:
            raise ArchiveRefused(f"The archive's member {content.member!r} cannot be read: {error}.") from None
        if size != content.bytes or digest.hexdigest() != content.sha256:
            raise ArchiveRefused(
                f"The archive's member {content.member!r} was changed: its size or its hash differs from the manifest."
            )

    def _small(self, name: str, most: int) -> bytes:
        if name not in self._infos:
            raise ArchiveRefused(
                f"The archive has no member {name!r}: it is not a backup of this service, or it is incomplete."
            )
        try:
            with self._archive.open(self._infos[name]) as member:
                text = member.read(most + 1)
        except _NOT_AN_ARCHIVE as error:
            raise ArchiveRefused(f"The archive's member {name!r} cannot be read: {error}.") from None
        if len(text) > most:
            raise ArchiveRefused(f"The archive's member {name!r} is longer than any member that this program writes.")
        return text


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveReader]:
    """Open the archive in a file.

    Raises:
        ArchiveRefused: it is not a backup.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except _NOT_AN_ARCHIVE as error:
            raise ArchiveRefused(f"This is not an archive, or it is incomplete: {error}.") from None
        with archive:
            yield ArchiveReader(archive)


def _info(name: str, *, is_compressed: bool) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED if is_compressed else zipfile.ZIP_STORED
    info.external_attr = 0o100600 << 16
    return info


def file_parts(file: IO[bytes]) -> Iterator[bytes]:
    """Return the content of a file, piece by piece."""
    return iter(lambda: file.read(_PART_BYTES), b"")
