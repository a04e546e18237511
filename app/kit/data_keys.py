"""The keys that private files are encrypted with: the newest encrypts, and all of them decrypt.

The operator keeps them apart from the files: in a setting, or in a key file with one key a line, the newest first. The
key file is read again after every change, so that keys can be rotated while the service runs.

A key has an id, a keyed hash of a constant, which reveals nothing about the key. Every encrypted file names this id in
its header.
"""

from __future__ import annotations

import binascii
import fcntl
import hmac
import os
import re
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.kit.private_files import replace_private

KEY_BYTES = 32
KEY_ID_BYTES = 16

Keys = tuple[bytes, ...]

_SEPARATORS = re.compile(r"[\s,]+")
_SHOWN_DIGITS = 12


class NotRotated(Exception):
    """The keys were not changed. The message says why, and what to do instead."""


def key_id(key: bytes) -> bytes:
    """Return the id of a key. It distinguishes keys, and reveals nothing about them."""
    return hmac.digest(key, b"epsilond key id", "sha256")[:KEY_ID_BYTES]


def shown(identity: bytes) -> str:
    """Return the beginning of a key's id, in hexadecimal; operators name a key by it."""
    return identity.hex()[:_SHOWN_DIGITS]


def parse_keys(text: str) -> Keys:
    """Read keys that are separated by blanks, lines or commas; each is hexadecimal or base64.

    Raises:
        ValueError: There is no key, a text is no key, or a key is repeated. The message does not show the text.
    """
    keys = tuple(_parse_key(each) for each in _SEPARATORS.split(text.strip(" \t\r\n,")))
    if len(set(keys)) < len(keys):
        raise ValueError("the list must not have the same key twice")
    return keys


def _parse_key(text: str) -> bytes:
    for decode in (bytes.fromhex, lambda given: b64decode(given, validate=True)):
        try:
            key = decode(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    raise ValueError("a key must be 32 bytes, as 64 hexadecimal digits or in base64; `openssl rand -hex 32` makes one")


class DataKeys:
    """The data keys of one process, the newest first; without any, nothing is encrypted."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def current(self) -> Keys:
        """Return the present keys."""
        return self._keys

    def ids(self) -> tuple[bytes, ...]:
        """Return the ids of the keys, in the same order."""
        return tuple(key_id(key) for key in self.current())


class KeyFile(DataKeys):
    """Data keys in a file, which is checked for changes whenever they are asked for.

    While the file cannot be read or is malformed, the keys are those that it had before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _state(path)
        super().__init__(*_read(path))

    def current(self) -> Keys:
        try:
            state = _state(self.path)
            if state != self._seen:
                # The order matters: a change between the two steps is noticed at the next look.
                self._keys = _read(self.path)
                self._seen = state
        except (OSError, ValueError):
            pass
        return self._keys

    def rotate(self) -> bytes:
        """Draw a key and put it before the others. Everybody who reads the file encrypts with it from then on.

        Returns:
            The id of the new key.

        Raises:
            NotRotated: The file does not hold keys.
            OSError: The file cannot be replaced while keeping its owner and its mode.
        """
        key = secrets.token_bytes(KEY_BYTES)
        with self._alone():
            self._write((key, *self._kept()))
        return key_id(key)

    def drop(self, identity: str, holds: Callable[[bytes], int]) -> None:
        """Take an older key out of the file, unless files are still encrypted with it.

        A process that is writing a file with this key notices, when the file gets its name, that another key is the
        newest, and encrypts the file again (`app.kit.encryption`). After the key was taken out, files under it are
        counted once more; if one is found, the key is put back.

        Args:
            identity: The key's name, as `shown` returns it.
            holds: Counts the files that are encrypted with the key of a given id.

        Raises:
            NotRotated: There is no such key, it is the newest, or files are encrypted with it; also as for `rotate`.
            OSError: As for `rotate`.
        """
        with self._alone():
            before = self._kept()
            dropped = next((key for key in before if shown(key_id(key)) == identity), None)
            if dropped is None:
                raise NotRotated(f"{self.path} has no data key {identity}; `epsilond data-key list` shows them.")
            if dropped == before[0]:
                raise NotRotated("This key encrypts new files. Rotate first, which makes it an older key.")
            self._refuse_if_held(holds(key_id(dropped)))
            self._write(tuple(key for key in before if key != dropped))
            held = holds(key_id(dropped))
            if held:
                self._write(before)
            self._refuse_if_held(held)

    def _refuse_if_held(self, files: int) -> None:
        if files:
            raise NotRotated(
                f"The key is kept: {files} file(s) are still encrypted with it. `epsilond data-key re-encrypt` "
                "gives them the newest one."
            )

    def _kept(self) -> Keys:
        """Read the file now. Unlike `current`, this never returns earlier keys."""
        try:
            return _read(self.path)
        except ValueError as error:
            raise NotRotated(f"{self.path} is damaged, and was left as it is: {error}.") from None

    def _write(self, keys: Keys) -> None:
        lines = "".join(f"{key.hex()}\n" for key in keys)
        replace_private(self.path.resolve(), lines.encode(), keeps_owner=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one command at a time change the file."""
        folder = os.open(self.path.resolve().parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _read(path: Path) -> Keys:
    return parse_keys(path.read_text(encoding="ascii"))


def _state(path: Path) -> tuple[int, int, int]:
    """Return numbers that change if the file is replaced or written to."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
