"""The fence as a file: a log of the heads of chains, with one record for each group of commands.

A record is appended and synced to disk before its commands are acknowledged. Processes take turns by locking the file.
Each reads what the others have appended before it appends. A record ends with a checksum. A crash can leave only the
last record half written. Its commands were never acknowledged, and the next append cuts it off. When the log has grown
long, a new log with one record for each budget replaces it in one step.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.fence.marks import Head, Kept, Move
from app.kit.private_files import replace_private, write_private_once

_VERSION = "epsilond-fence-1"
#: A log is rewritten once it has at least this size, and this many times the bytes that its budgets need.
COMPACTED_FROM_BYTES = 4 * 2**20
_GROWTH = 8
_BYTES_OF_BUDGET = 120


class DamagedFence(Exception):
    """The file is not in the form in which this service wrote it."""


class FileStore:
    """The fence in a file. Several threads may share one instance, and several processes may share the file."""

    _ledger_id: str
    _life: str
    _heads: dict[str, Head]
    _end: int

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._forget()

    def read(self, ids: Collection[str] | None = None) -> Kept | None:
        """Return the content of the fence, with the heads of some budgets or of all; None if there is no fence.

        Raises:
            DamagedFence: the file is not in the form in which this service wrote it.
            OSError: the file cannot be read.
        """
        with self._lock, self._locked(fcntl.LOCK_SH) as is_there:
            if not is_there:
                return None
            heads = self._heads
            if ids is not None:
                heads = {budget_id: heads[budget_id] for budget_id in ids if budget_id in heads}
            return Kept(self._ledger_id, self._life, dict(heads))

    def create(self, kept: Kept) -> None:
        """Create the fence unless it exists. If two processes begin at once, only one creates it."""
        write_private_once(self._path, _content(kept))

    def replace(self, kept: Kept) -> None:
        """Replace the whole content of the fence."""
        with self._lock:
            try:
                with self._locked(fcntl.LOCK_EX):
                    replace_private(self._path, _content(kept))
            except DamagedFence:
                replace_private(self._path, _content(kept))
            self._close()

    def advance(self, moves: Sequence[Move]) -> bool:
        """Update the head of each chain whose ``base`` is its head in the fence. Return whether all were updated
        (`Store.advance`)."""
        with self._lock, self._locked(fcntl.LOCK_EX) as is_there:
            if not is_there:
                return False
            next_heads = {move.budget_id: move.head for move in moves if self._heads.get(move.budget_id) == move.base}
            if next_heads:
                self._append(next_heads)
            return len(next_heads) == len(moves)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._lock:
            self._close()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[bool]:
        """Yield whether there is a fence; if so, it is open, locked, and read to its end."""
        while True:
            if self._descriptor is None:
                try:
                    self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                except FileNotFoundError:
                    yield False
                    return
                self._forget()
            descriptor = self._descriptor
            fcntl.flock(descriptor, kind)
            if self._is_current(descriptor):
                break
            self._close()  # the file was rewritten or removed before the lock was granted
        try:
            self._catch_up(descriptor)
            yield True
        except BaseException:
            # The file is read again from its beginning.
            self._close()
            raise
        finally:
            if self._descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        opened = os.fstat(descriptor)
        # A file that is now shorter than the part that was read has been overwritten with a copy.
        return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino) and opened.st_size >= self._end

    def _catch_up(self, descriptor: int) -> None:
        """Read the records that were appended since the last read."""
        size = os.fstat(descriptor).st_size
        data = b""
        while len(data) < size - self._end:
            part = os.pread(descriptor, size - self._end - len(data), self._end + len(data))
            if not part:
                break
            data += part
        lines = data.split(b"\n")
        # The text after the last line end is empty, or an incomplete record.
        for number, line in enumerate(lines[:-1]):
            fields = _fields(line)
            if fields is None:
                if number == len(lines) - 2 and not lines[-1] and self._ledger_id:
                    return  # the last record was only half written
                raise DamagedFence(f"the record at byte {self._end} was changed")
            self._take(fields)
            self._end += len(line) + 1
        if not self._ledger_id:
            raise DamagedFence("the file has no first record")

    def _take(self, fields: list[str]) -> None:
        if not self._ledger_id:
            if len(fields) != 3 or fields[0] != _VERSION:
                raise DamagedFence("the file does not begin like a fence of this version")
            _, self._ledger_id, self._life = fields
            return
        self._heads.update(
            (fields[place], Head(int(fields[place + 1]), fields[place + 2])) for place in range(0, len(fields), 3)
        )

    def _append(self, heads: Mapping[str, Head]) -> None:
        """Write one record and sync it to disk. It replaces a record that was left half written."""
        assert self._descriptor is not None, "it is locked"
        if self._end >= max(COMPACTED_FROM_BYTES, _GROWTH * _BYTES_OF_BUDGET * len(self._heads)):
            replace_private(self._path, _content(Kept(self._ledger_id, self._life, self._heads | dict(heads))))
            self._close()
            return
        record = _record(_of_heads(heads))
        if os.fstat(self._descriptor).st_size > self._end:
            os.ftruncate(self._descriptor, self._end)
        written = 0
        while written < len(record):
            written += os.pwrite(self._descriptor, record[written:], self._end + written)
        os.fdatasync(self._descriptor)
        self._heads.update(heads)
        self._end += len(record)

    def _forget(self) -> None:
        self._ledger_id, self._life, self._end = "", "", 0
        self._heads = {}

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._forget()


def _content(kept: Kept) -> bytes:
    """Return the content of a whole file."""
    records = [_record([_VERSION, kept.ledger_id, kept.life])]
    records += [_record(_of_heads({budget_id: head})) for budget_id, head in kept.heads.items()]
    return b"".join(records)


def _of_heads(heads: Mapping[str, Head]) -> list[str]:
    return [field for budget_id, head in heads.items() for field in (budget_id, str(head.sequence), head.hash)]


def _record(fields: list[str]) -> bytes:
    text = " ".join(fields).encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))


def _fields(line: bytes) -> list[str] | None:
    """Return the fields of a record; None if its checksum does not match."""
    text, _, checksum = line.rpartition(b" ")
    return text.decode().split(" ") if b"%08x" % zlib.crc32(text) == checksum else None
