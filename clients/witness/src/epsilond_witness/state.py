"""The folder of a witness: its key, and the newest checkpoint of each log that it has cosigned.

A witness that forgot what it has cosigned could cosign a second history. So the state is made once, together with the
key, and a key whose state is missing is refused. SQLite brings each change to the disk before anything is answered.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from epsilond_witness.notes import Key, Kind
from epsilond_witness.trees import EMPTY_ROOT

#: For each log, the earliest contradictions are kept: at most this many with proof, and this many without.
MOST_CONFLICTS = 100
_PATIENCE_S = 5.0
_TABLES = (
    "CREATE TABLE witness (one INTEGER PRIMARY KEY CHECK (one = 1), public_key TEXT NOT NULL)",
    "CREATE TABLE logs (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, note TEXT NOT NULL)",
    "CREATE TABLE conflicts (number INTEGER PRIMARY KEY, origin TEXT NOT NULL, seen_at INTEGER NOT NULL, "
    "known TEXT NOT NULL, offered TEXT NOT NULL, is_proof INTEGER NOT NULL, UNIQUE (origin, known, offered))",
)


class Unusable(Exception):
    """The folder does not belong to a witness, or must not be used; the message says why."""


@dataclass(frozen=True)
class Known:
    """The newest cosigned checkpoint of a log, and the note with the cosignature; at first, the empty tree."""

    size: int = 0
    root: bytes = EMPTY_ROOT
    note: str = ""


@dataclass(frozen=True)
class Conflict:
    """Two notes that the key of a log has signed and that contradict each other.

    Attributes:
        origin: The name of the log.
        seen_at: The time of the contradiction, in seconds since 1970.
        known: The note that was cosigned before.
        offered: The note that was offered for cosigning.
        is_proof: Whether the two have the same size and different roots, which no honest log signs. Otherwise the proof
            of consistency between them failed, and the sender may have sent a wrong proof.
    """

    origin: str
    seen_at: int
    known: str
    offered: str
    is_proof: bool


class State:
    """The state in a folder. Threads and processes take turns to use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def changing(self) -> Iterator[Records]:
        """Yield the records for reading and changing. After the block all changes are on the disk; if the block
        raises an error, none of the changes is kept."""
        with closing(self._connection()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Records(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def reading(self) -> Iterator[Records]:
        """Yield the records for reading only."""
        with closing(self._connection()) as connection:
            yield Records(connection)

    def _connection(self) -> sqlite3.Connection:
        # With mode=rw, SQLite does not create a file that is missing.
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_S, isolation_level=None
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection


class Records:
    """The records that one connection reads and writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def public_key(self) -> str:
        """Return the key that the state belongs to."""
        [(found,)] = self._connection.execute("SELECT public_key FROM witness")
        return str(found)

    def known(self, origin: str) -> Known:
        """Return the newest cosigned checkpoint of a log."""
        found = self._connection.execute("SELECT size, root, note FROM logs WHERE origin = ?", (origin,)).fetchone()
        return Known() if found is None else Known(*found)

    def keep(self, origin: str, known: Known) -> None:
        """Store a cosigned checkpoint of a log in place of the one before."""
        self._connection.execute(
            "INSERT INTO logs (origin, size, root, note) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (origin) DO UPDATE SET size = excluded.size, root = excluded.root, note = excluded.note",
            (origin, known.size, known.root, known.note),
        )

    def add_conflict(self, conflict: Conflict) -> None:
        """Keep a contradiction, unless it is kept already or the log has too many of them."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM conflicts WHERE origin = ? AND is_proof = ?", (conflict.origin, conflict.is_proof)
        ).fetchone()
        if count < MOST_CONFLICTS:
            self._connection.execute(
                "INSERT OR IGNORE INTO conflicts (origin, seen_at, known, offered, is_proof) VALUES (?, ?, ?, ?, ?)",
                (conflict.origin, conflict.seen_at, conflict.known, conflict.offered, conflict.is_proof),
            )

    def conflicts(self) -> list[Conflict]:
        """Return the kept contradictions, oldest first."""
        columns = "origin, seen_at, known, offered, is_proof"
        rows = self._connection.execute(f"SELECT {columns} FROM conflicts ORDER BY number")  # noqa: S608  # no input
        return [Conflict(origin, at, known, offered, bool(is_proof)) for origin, at, known, offered, is_proof in rows]


def make(folder: Path, name: str) -> Key:
    """Make the key and the empty state of a witness in a folder that only this user can read; return the public key.

    Raises:
        Unusable: there is a witness in the folder already.
        Malformed: the name is not valid for a witness.
    """
    private = Ed25519PrivateKey.generate()
    key = Key.of(private, name, Kind.COSIGNER)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_file, key_file = _files(folder)
    if state_file.exists() or key_file.exists():
        raise Unusable(f"{folder} already contains a witness; make the new one in another folder")
    with closing(_new(state_file)) as state:
        state.execute("PRAGMA synchronous = EXTRA")
        state.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            state.execute(statement)
        state.execute("INSERT INTO witness VALUES (1, ?)", (str(key),))
        state.commit()
    # The key is written last: if the making of the folder is interrupted, the folder has no key and signs nothing.
    with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    return key


def open_folder(folder: Path) -> tuple[Ed25519PrivateKey, Key, State]:
    """Return the key of a witness and its state.

    Raises:
        Unusable: the key or the state is missing, others can read the key, or the two do not belong together.
    """
    state_file, key_file = _files(folder)
    try:
        about = key_file.stat()
        if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Unusable(
                f"users other than its owner may read {key_file}: restrict it with chmod 600, or make a new witness"
            )
        private = load_pem_private_key(key_file.read_bytes(), None)
        with State(state_file).reading() as records:
            key = Key.parse(records.public_key(), Kind.COSIGNER)
    except FileNotFoundError:
        raise Unusable(f"the file {key_file} does not exist; `epsilond-witness init` makes a witness") from None
    except (OSError, ValueError, TypeError) as error:
        raise Unusable(f"{key_file} cannot be read as a key ({type(error).__name__})") from None
    except sqlite3.Error:
        raise Unusable(
            f"{state_file} cannot be read. A witness that has lost its state must not go on, as it could cosign a "
            "second history: make a new one with a key of its own"
        ) from None
    if not isinstance(private, Ed25519PrivateKey) or private.public_key().public_bytes_raw() != key.public:
        raise Unusable(f"{key_file} is not the key that {state_file} belongs to")
    return private, key, State(state_file)


def now() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / "state.sqlite3", folder / "key.pem"


def _new(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return sqlite3.connect(path, isolation_level=None)


def sync(folder: Path) -> None:
    """Bring the names of the files in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
