"""Private files encrypted at rest: AES-256-GCM in chunks, under a key that the operator keeps elsewhere.

A file is a header and chunks:

    magic (8 bytes) | key id (16) | salt (32) | chunk 0 | chunk 1 | ... | last chunk

Each chunk is 64 KiB of the content, encrypted and followed by its tag; the last one may be shorter, also empty. The key
of a file is derived from the data key and the file's own salt, so the nonces, which count the chunks, never meet again.
What is authenticated besides is the header and the file's name: a chunk that was moved, a file that was renamed, cut
short or put in another's place does not open. An *older* file of the same name does, and so does one in the clear:
encryption is against who reads the disk, not against who may write the folder.

Without a key, files are written as they are. Those are read with a key too, so a key may be set at any time.
"""

from __future__ import annotations

import binascii
import hmac
import io
import os
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from app.kit.private_files import Write, write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
CHUNK_BYTES = 2**16

_MAGIC = b"EPSENC1\n"
_ID_BYTES = 16
_SALT_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + _ID_BYTES + _SALT_BYTES
_TAG_BYTES = 16


class FileUnreadable(Exception):
    """An encrypted file that does not open. Its words are constant: they name no file and nothing of the content."""


class OtherKey(FileUnreadable):
    """The file was encrypted under another data key, or no data key is set."""

    def __init__(self) -> None:
        super().__init__("The file is encrypted under another data key than EPSILOND_DATA_KEY; set the one it has.")


class Altered(FileUnreadable):
    """The file was altered, cut short or renamed since it was written."""

    def __init__(self) -> None:
        super().__init__("The file is not as it was written; restore it from a backup.")


def parse_key(text: str) -> bytes:
    """The 32 bytes that ``text`` stands for, hexadecimal or base64.

    Raises:
        ValueError: It stands for something else. The message does not repeat it.
    """
    text = text.strip()
    for decode in (bytes.fromhex, lambda given: b64decode(given, validate=True)):
        try:
            key = decode(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    raise ValueError("it must be 32 bytes, as 64 hexadecimal digits or in base64; `openssl rand -hex 32` makes them")


class FileEncryption:
    """The reader and writer of the service's private files.

    Guarantees:
        - With a key, no byte of a file's content is on the disk in the clear.
        - What `open` gives is what `write` was given under the same folder and name, or `FileUnreadable` is raised.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"FileEncryption({'off' if self._key is None else 'on'})"

    @property
    def is_on(self) -> bool:
        """Return whether new files are encrypted."""
        return self._key is not None

    def write(self, path: Path, write: Write) -> None:
        """Like `write_private`: whole or not at all, for this user alone; encrypted if there is a key.

        Args:
            path: The file. Its folder's and its own name are bound to the content.
            write: Given the open file, which cannot be sought in, writes the content.
        """

        def write_encrypted(file: IO[bytes]) -> None:
            assert self._key is not None
            encrypting = EncryptingWriter(file, self._key, _name(path))
            write(cast(IO[bytes], encrypting))
            encrypting.finish()

        write_private(path, write if self._key is None else write_encrypted)

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """The content, from its beginning; it can be sought in and is decrypted as it is read.

        Raises:
            OtherKey: The file needs another key, or one at all.
            Altered: Here or while reading: it is not what was written under this name.
        """
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                file.seek(0)
                yield file
            elif self._key is None:
                raise OtherKey
            else:
                yield open_decrypting(file, self._key, _name(path))

    def foreign_files(self, folder: Path) -> int:
        """Count the encrypted files directly in the folder that this key does not open; only headers are read."""
        expected = None if self._key is None else _key_id(self._key)
        count = 0
        for path in folder.iterdir() if folder.is_dir() else ():
            # Another process may remove a file meanwhile.
            with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
                header = file.read(_HEADER_BYTES)
                count += header.startswith(_MAGIC) and header[len(_MAGIC) : -_SALT_BYTES] != expected
        return count


class EncryptingWriter(io.RawIOBase):
    """Writes an encrypted file, front to back. What is not finished does not open."""

    def __init__(self, file: IO[bytes], key: bytes, name: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        header = _MAGIC + _key_id(key) + salt
        file.write(header)
        self._file = file
        self._chunks = _Chunks(key, salt, header + name.encode())
        self._waiting = bytearray()
        self._index = 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]  # what callers have
        """Take all of it. A full chunk waits for the next byte: it might be the last one."""
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
    """The content of an encrypted file, which stays the caller's to close.

    Raises:
        OtherKey: The header names another key.
        Altered: The header or the end of the file is not as it was written; later reads raise it too.
    """
    # No larger: a buffer of more than one chunk would decrypt what nobody asked for.
    return cast(IO[bytes], io.BufferedReader(_DecryptingReader(file, key, name), CHUNK_BYTES))


class _DecryptingReader(io.RawIOBase):
    """Reads an encrypted file from any place, a chunk at a time."""

    def __init__(self, file: IO[bytes], key: bytes, name: str) -> None:
        file.seek(0)
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise Altered
        key_id, salt = header[len(_MAGIC) : -_SALT_BYTES], header[-_SALT_BYTES:]
        if not hmac.compare_digest(key_id, _key_id(key)):
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
        # The last chunk says that it is: a file that was cut short is found here, wherever it is read.
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
            raise OSError("a place before the beginning of the file")
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
        # Only who has set a key waits for the library.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        return AESGCM(self._file_key)


def _nonce(index: int, *, is_last: bool) -> bytes:
    """Chunk's number and whether it is the last: none can be left out at the end, or exchanged."""
    return index.to_bytes(11, "big") + bytes([is_last])


def _key_id(key: bytes) -> bytes:
    """Tells keys apart and nothing about them."""
    return hmac.digest(key, b"epsilond key id", "sha256")[:_ID_BYTES]


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
