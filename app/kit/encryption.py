"""Private files encrypted at rest: AES-256-GCM in chunks, under a key that the operator keeps elsewhere.

A file is a header and chunks:

    magic (8 bytes) | key id (16) | salt (32) | chunk 0 | chunk 1 | ... | last chunk

Each chunk is 64 KiB of the content, encrypted and followed by its tag; the last one may be shorter or empty. The key of
a file is derived from the data key and the file's own salt. So the nonces, which count the chunks, are never used twice
under one key. The header and the file's name are authenticated, too: a file does not open if a chunk was moved, or if
the file was renamed, cut short or exchanged for another. An *older* file of the same name does open, and so does an
unencrypted one. Encryption protects against people who read the disk, not against those who can write the folder.

There may be several data keys (`app.kit.data_keys`): the newest encrypts, and a file is read with the one that its
header names. Without a key, files are written unencrypted. They can still be read after a key is set, so a key can be
set at any time.
"""

from __future__ import annotations

import hmac
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from app.kit.data_keys import KEY_ID_BYTES, DataKeys, Keys, key_id
from app.kit.private_files import Write, write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_BYTES = 2**16

_MAGIC = b"EPSENC1\n"
_SALT_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + KEY_ID_BYTES + _SALT_BYTES
_TAG_BYTES = 16


class FileUnreadable(Exception):
    """An encrypted file does not open. The message is constant: it names no file and reveals no content."""


class OtherKey(FileUnreadable):
    """The file was encrypted under another data key, or no data key is set."""

    def __init__(self) -> None:
        super().__init__("The file is encrypted under a data key that is not set; add it behind those that are.")


class Altered(FileUnreadable):
    """The file was altered, cut short or renamed since it was written."""

    def __init__(self) -> None:
        super().__init__("The file is not as it was written; restore it from a backup.")


@dataclass(frozen=True)
class Holding:
    """The files that one key holds.

    Attributes:
        files, bytes: The number of files, and their total size on the disk.
    """

    files: int = 0
    bytes: int = 0


class FileEncryption:
    """The reader and writer of the service's private files.

    Guarantees:
        - With a key, no byte of a file's content is on the disk in the clear.
        - `open` returns what `write` wrote under the same folder and name, or raises `FileUnreadable`.
        - When `write` returns, the file is encrypted with the newest key, unless a newer key was drawn after the file
          got its name.
    """

    def __init__(self, keys: DataKeys) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"FileEncryption({'on' if self.is_on else 'off'})"

    @property
    def is_on(self) -> bool:
        """Return whether new files are encrypted."""
        return bool(self.keys.current())

    def write(self, path: Path, write: Write) -> None:
        """Write a file like `write_private`: completely or not at all, and private to this user. It is encrypted if
        there is a key.

        Args:
            path: The file. The content is bound to the names of the file and its folder.
            write: Writes the content to the open file, which is not seekable. If a newer key is drawn meanwhile, the
                function is called again.
        """
        self._write(path, write, lambda: nullcontext(True))

    def _write(self, path: Path, write: Write, naming: Callable[[], AbstractContextManager[bool]]) -> bool:
        while True:
            key = self._newest()

            def write_encrypted(file: IO[bytes], key: bytes | None = key) -> None:
                assert key is not None
                encrypting = EncryptingWriter(file, key, _name(path))
                write(cast(IO[bytes], encrypting))
                encrypting.finish()

            is_written = write_private(path, write if key is None else write_encrypted, naming())
            if not is_written or key == self._newest():
                return is_written

    def write_anew(self, path: Path, may: Callable[[], AbstractContextManager[bool]]) -> bool:
        """Encrypt an existing file with the newest key. Readers that have it open are not disturbed.

        Args:
            path: The file.
            may: Makes the block in which the file is replaced; the block yields whether the file may be replaced.

        Returns:
            Whether the file was replaced. The result is false if the file was removed, or if another process replaced
            it meanwhile.

        Raises:
            FileUnreadable: As for `open`; the file is unchanged.
        """

        known = self.keys.current()
        read: tuple[int, int, int] | None = None

        @contextmanager
        def naming() -> Iterator[bool]:
            with may() as is_wanted:
                yield is_wanted and path.exists() and _identity(path) == read

        def write(target: IO[bytes]) -> None:
            nonlocal read
            read = _identity(path)
            # A key that was removed from the key file since then is still known here.
            with self._open(path, (*self.keys.current(), *known)) as source:
                shutil.copyfileobj(source, target, CHUNK_BYTES)

        try:
            return self._write(path, write, naming)
        except FileNotFoundError:
            return False

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """Open the content at its beginning. The result is seekable, and decrypts while it is read.

        Raises:
            OtherKey: The file needs another key, or no key is set.
            Altered: The content is not what was written under this name. Later reads may raise this, too.
        """
        with self._open(path, self.keys.current()) as file:
            yield file

    @contextmanager
    def _open(self, path: Path, keys: Keys) -> Iterator[IO[bytes]]:
        with path.open("rb") as file:
            identity = _key_of(file)
            file.seek(0)
            if identity is None:
                yield file
                return
            key = next((key for key in keys if hmac.compare_digest(key_id(key), identity)), None)
            if key is None:
                raise OtherKey
            yield open_decrypting(file, key, _name(path))

    def is_current(self, path: Path) -> bool:
        """Return whether the file is encrypted with the newest key; also true if the file is gone."""
        newest = self._newest()
        with suppress(FileNotFoundError), path.open("rb") as file:
            return newest is not None and _key_of(file) == key_id(newest)
        return True

    def _newest(self) -> bytes | None:
        return next(iter(self.keys.current()), None)


def holdings(paths: Iterable[Path]) -> dict[bytes | None, Holding]:
    """Return how many of these files each key encrypts, by the key's id; None stands for unencrypted files.

    Only the headers of files are read.
    """
    found: dict[bytes | None, Holding] = {}
    for path in paths:
        # Another process may remove a file meanwhile.
        with suppress(FileNotFoundError), path.open("rb") as file:
            identity = _key_of(file)
            before = found.get(identity, Holding())
            found[identity] = Holding(before.files + 1, before.bytes + os.fstat(file.fileno()).st_size)
    return found


def _key_of(file: IO[bytes]) -> bytes | None:
    """Return the id of the key that an open file's header names; None if the file is not encrypted."""
    header = file.read(len(_MAGIC) + KEY_ID_BYTES)
    return header[len(_MAGIC) :] if header.startswith(_MAGIC) else None


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


class EncryptingWriter(io.RawIOBase):
    """Writes an encrypted file from front to back. An unfinished file does not open."""

    def __init__(self, file: IO[bytes], key: bytes, name: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        header = _MAGIC + key_id(key) + salt
        file.write(header)
        self._file = file
        self._chunks = _Chunks(key, salt, header + name.encode())
        self._waiting = bytearray()
        self._index = 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]  # what callers have
        """Accept all the bytes. A full chunk is kept back until the next byte comes, since it might be the last one."""
        given = memoryview(content).cast("B")
        self._waiting += given
        while len(self._waiting) > CHUNK_BYTES:
            self._emit(CHUNK_BYTES, is_last=False)
        return given.nbytes

    def finish(self) -> None:
        self._emit(len(self._waiting), is_last=True)

    def _emit(self, length: int, *, is_last: bool) -> None:
        content = bytes(self._waiting[:length])
        del self._waiting[:length]
        self._file.write(self._chunks.encrypt(self._index, content, is_last=is_last))
        self._index += 1


def open_decrypting(file: IO[bytes], key: bytes, name: str) -> IO[bytes]:
    """Return a reader of an encrypted file. The caller still has to close the file.

    Raises:
        OtherKey: The header names another key.
        Altered: The header or the end of the file was changed. Later reads may raise this, too.
    """
    # A buffer larger than one chunk would decrypt data that nobody asked for.
    return cast(IO[bytes], io.BufferedReader(_DecryptingReader(file, key, name), CHUNK_BYTES))


class _DecryptingReader(io.RawIOBase):
    """Reads an encrypted file from any place, a chunk at a time."""

    def __init__(self, file: IO[bytes], key: bytes, name: str) -> None:
        file.seek(0)
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise Altered
        identity, salt = header[len(_MAGIC) : -_SALT_BYTES], header[-_SALT_BYTES:]
        if not hmac.compare_digest(identity, key_id(key)):
            raise OtherKey
        self._file = file
        self._chunks = _Chunks(key, salt, header + name.encode())
        body = file.seek(0, io.SEEK_END) - _HEADER_BYTES
        stored = CHUNK_BYTES + _TAG_BYTES
        self._last = max(0, -(-body // stored) - 1)
        self._length = body - _TAG_BYTES * (self._last + 1)
        self._position = 0
        self._index = -1
        self._content = b""
        # Only the last chunk is marked as the last, so a truncated file is noticed here, wherever it is read.
        self._load(self._last)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        if start + offset < 0:
            raise OSError("the position is before the beginning of the file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what callers have
        if self._position >= self._length:
            return 0
        index, offset = divmod(self._position, CHUNK_BYTES)
        if index != self._index:
            self._load(index)
        part = self._content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _load(self, index: int) -> None:
        self._file.seek(_HEADER_BYTES + index * (CHUNK_BYTES + _TAG_BYTES))
        stored = self._file.read(CHUNK_BYTES + _TAG_BYTES)
        self._content = self._chunks.decrypt(index, stored, is_last=index == self._last)
        self._index = index


class _Chunks:
    """The cipher of one file."""

    def __init__(self, key: bytes, salt: bytes, bound: bytes) -> None:
        self._file_key = hmac.digest(key, b"epsilond file key\0" + salt, "sha256")
        self._bound = bound

    def encrypt(self, index: int, content: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(_nonce(index, is_last=is_last), content, self._bound)

    def decrypt(self, index: int, stored: bytes, *, is_last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # as below

        try:
            return self._cipher.decrypt(_nonce(index, is_last=is_last), stored, self._bound)
        except (InvalidTag, ValueError):
            raise Altered from None

    @cached_property
    def _cipher(self) -> AESGCM:
        # Imported here, because only services with an encryption key need the library.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        return AESGCM(self._file_key)


def _nonce(index: int, *, is_last: bool) -> bytes:
    """Return the nonce: the chunk's number and whether it is the last. So chunks cannot be exchanged, or left out at
    the end."""
    return index.to_bytes(11, "big") + bytes([is_last])


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
