"""The records of commands: one per principal and key, written in the transaction of the effect."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Table, bindparam, insert, select

from app.db.database import Database
from app.db.lists import among, as_list
from app.problems import Problem, ProblemItem
from app.tables.idempotency import IdempotencyRecord

REPLAYED = {"Idempotency-Replayed": "true"}


_RECORDS = cast(Table, IdempotencyRecord.__table__)
_INSERT = insert(_RECORDS).inline()
_FIND = {
    dialect: select(_RECORDS.c.key, _RECORDS.c.fingerprint, _RECORDS.c.status, _RECORDS.c.answer).where(
        _RECORDS.c.principal_id == bindparam("principal"), among(dialect, _RECORDS.c.key, "keys")
    )
    for dialect in ("sqlite", "postgresql")
}


@dataclass(frozen=True)
class Answer:
    """The answer of a command.

    Attributes:
        status: HTTP status code, 2xx.
        body: JSON document; it is stored and replayed unchanged.
        headers: Response headers; they are stored and replayed, too.
        shown_once: Members of the first answer's body that are never stored, such as a fresh API key.
    """

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    shown_once: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A record that has its answer."""

    fingerprint: str
    status: int
    answer: dict[str, Any]

    def replay(self, fingerprint: str) -> Answer:
        """Return the first answer again.

        Raises:
            Problem: the denial again; 422 ``idempotency_key_reused`` if another request had the key.
        """
        if self.fingerprint != fingerprint:
            code = "idempotency_key_reused"
            detail = "This Idempotency-Key was used for another request; a new request needs a new key."
            item = ProblemItem(pointer="/header/Idempotency-Key", code=code, detail=detail)
            raise Problem(422, code, detail, errors=[item])
        if self.status == 409:
            raise _problem_from_json(self.answer)
        return Answer(self.status, self.answer["body"], {**self.answer["headers"], **REPLAYED})


Key = tuple[str, str]


def find(connection: Connection, keys: Sequence[Key]) -> dict[Key, Stored]:
    """Return the committed records of these principals and keys."""
    dialect = connection.dialect.name
    found: dict[Key, Stored] = {}
    for principal in {principal for principal, _ in keys}:
        texts = [key for owner, key in keys if owner == principal]
        rows = connection.execute(_FIND[dialect], {"principal": principal, "keys": as_list(dialect, texts)})
        found |= {(principal, row[0]): Stored(row[1], row[2], row[3]) for row in rows}
    return found


def find_one(database: Database, key: Key) -> Stored | None:
    """Return the record of this principal and key, read in a separate session. The fence then has all that it
    acknowledges."""
    with database.read() as session:
        stored = find(session.connection(), [key]).get(key)
    if stored is not None:
        catch_up(database)
    return stored


def catch_up(database: Database) -> None:
    """Bring everything that a record acknowledges into the fence. Another process may have committed it without moving
    the fence yet."""
    if database.witness is not None:
        database.witness.catch_up()


def values(key: Key, fingerprint: str, outcome: Answer | Problem, now: datetime) -> dict[str, Any]:
    """Return the columns of the record of ``outcome``, which is an answer or a denial (409)."""
    if isinstance(outcome, Answer):
        answer: dict[str, Any] = {"body": outcome.body, "headers": outcome.headers}
    else:
        answer = _problem_to_json(outcome)
    return {
        "principal_id": key[0],
        "key": key[1],
        "fingerprint": fingerprint,
        "status": outcome.status,
        "answer": answer,
        "recorded_at": now,
    }


def insert_all(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Write records.

    Raises:
        IntegrityError: a key was taken since it was looked for; nothing of the transaction can stay.
    """
    if rows:
        connection.execute(_INSERT, list(rows))


# The requests that this process is carrying out. The primary key of the records keeps other processes out; this set
# keeps a second copy of a request from repeating slow work, and from waiting for the first one.
_RUNNING: WeakKeyDictionary[Database, set[Key]] = WeakKeyDictionary()
_RUNNING_LOCK = threading.Lock()


@contextmanager
def in_flight(database: Database, key: Key) -> Iterator[bool]:
    """Yield whether this thread holds the principal's key. If it does, other threads are kept out until the block
    ends."""
    with _RUNNING_LOCK:
        running = _RUNNING.setdefault(database, set())
        is_first = key not in running
        running.add(key)
    try:
        yield is_first
    finally:
        if is_first:
            with _RUNNING_LOCK:
                running.remove(key)


def still_running() -> Problem:
    """Return a 409 for a request while an equal one is still running."""
    return Problem(409, "request_in_progress", "A request with this Idempotency-Key is still running; ask again later.")


def _problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "detail": problem.detail,
        "errors": [item.model_dump() for item in problem.errors],
        "members": problem.members,
    }


def _problem_from_json(stored: dict[str, Any]) -> Problem:
    errors = [ProblemItem.model_validate(item) for item in stored["errors"]]
    return Problem(409, stored["code"], stored["detail"], errors=errors, members=stored["members"], headers=REPLAYED)
