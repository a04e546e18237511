"""Idempotent commands: a request that is sent again gets the first answer again, and has no second effect.

The claim of the key, the command's effect and the stored answer commit in one transaction, so an answer exists exactly
when its effect does. A second request with the same key is told that the first is still running; in another process it
waits for the first (the claim is a unique row) and replays.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import Depends, Header
from pydantic import BaseModel
from sqlalchemy import JSON, Integer, String, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Mapped, Session, mapped_column
from starlette.responses import JSONResponse

from app.db.base import Base, UtcDateTime
from app.db.database import Database
from app.kit.context import Context
from app.kit.moments import format_moment
from app.problems import Problem, ProblemItem

MAX_KEY_LENGTH = 200
REPLAYED = {"Idempotency-Replayed": "true"}


class IdempotencyRecord(Base):
    """The answer of one command. Without an answer only inside the transaction that is finding it."""

    __tablename__ = "idempotency_records"

    principal_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(MAX_KEY_LENGTH), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int | None] = mapped_column(Integer)
    answer: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)


@dataclass(frozen=True)
class Answer:
    """The answer of a command.

    Attributes:
        status: HTTP status code, 2xx.
        body: JSON document; stored, and replayed as it is.
        headers: Response headers; stored and replayed too.
        shown_once: Members of the first answer's body that are never stored, such as a fresh API key.
    """

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    shown_once: dict[str, Any] = field(default_factory=dict)


class UnfinishedProblem(Problem):
    """A problem with members that take numerics: a command raises it, and they are found when its locks are released.

    Args:
        missing_members: Finds them; called once, outside every transaction.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        members: Mapping[str, object],
        missing_members: Callable[[], Mapping[str, object]],
    ) -> None:
        super().__init__(status, code, detail, members=members)
        self._missing_members = missing_members

    def finished(self) -> Problem:
        """The problem with all its members."""
        members = {**self.members, **self._missing_members()}
        return Problem(self.status, self.code, self.detail, members=members)


def _check_key(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise _header_problem(
            "idempotency_key_invalid",
            f"The header Idempotency-Key takes 1 to {MAX_KEY_LENGTH} printable ASCII characters.",
        )
    return key


def _header_problem(code: str, detail: str) -> Problem:
    return Problem(400, code, detail, errors=[ProblemItem(pointer="/header/Idempotency-Key", code=code, detail=detail)])


KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description=f"Any text of 1 to {MAX_KEY_LENGTH} characters, new for each command: the same request sent again "
        "with the same key gets the same answer and has no second effect.",
    ),
]


def optional_idempotency_key(key: KeyHeader = None) -> str | None:
    """The key, where a request may come without one (a dry run)."""
    return None if key is None else _check_key(key)


def required_idempotency_key(key: KeyHeader = None) -> str:
    """The key; 400 where it is missing."""
    if key is None:
        raise missing_key()
    return _check_key(key)


def missing_key() -> Problem:
    """400, for a request that writes and came without a key."""
    return _header_problem(
        "idempotency_key_missing",
        "This request writes, so it needs the header Idempotency-Key: any new text per command.",
    )


IdempotencyKey = Annotated[str, Depends(required_idempotency_key)]
OptionalIdempotencyKey = Annotated[str | None, Depends(optional_idempotency_key)]


def request_fingerprint(operation: str, body: BaseModel | None = None) -> bytes:
    """What makes two requests the same: the operation with its path parameters, and the body after validation."""
    content = None if body is None else body.model_dump(mode="json")
    return json.dumps([operation, content], sort_keys=True, separators=(",", ":")).encode()


def run_once(
    context: Context,
    principal: str,
    key: str,
    fingerprint: bytes,
    command: Callable[[Session], Answer],
    prepare: Callable[[], None] | None = None,
) -> Answer:
    """Run ``command`` at most once for this principal and key, and answer a repetition from what is stored.

    Args:
        context: The process's context.
        principal: Whose key it is; another principal may use the same text.
        key: The request's idempotency key.
        fingerprint: What the request asks (`request_fingerprint`); stored as a keyed hash only.
        command: The effect, in the session (and transaction) that it is given.
        prepare: Slow work to do before the transaction opens; skipped when the answer is stored already. What it
            raises is never stored, and is not the answer when another process has stored one meanwhile.

    Returns:
        The command's answer, or the stored one with the header ``Idempotency-Replayed: true``.

    Raises:
        Problem: 409 that the command raised: its effects are rolled back and it is stored with ``decided_at``, so that
            a repetition gets the same denial even when the command would succeed by now; an `UnfinishedProblem` is
            finished in between, with no transaction open. Any other problem rolls back everything and stores nothing.
            422 ``idempotency_key_reused``: the key was used for another request. 409 ``request_in_progress``: another
            request with the key is running in this process, or did not finish in time in another one. 503
            ``database_busy``: the database gave no lock in time; nothing happened.
    """
    digest = context.keyed_hash("idempotency", fingerprint)
    with _in_flight(context, principal, key) as is_first:
        if not is_first or prepare is not None:
            stored = _stored(context, principal, key)
            if stored is not None:
                return _replay(stored, digest)
        if not is_first:
            raise _still_running()
        if prepare is not None:
            try:
                prepare()
            except Problem:
                # Another process may have answered meanwhile, and what it did may be what stands in the way here.
                stored = _stored(context, principal, key)
                if stored is None:
                    raise
                return _replay(stored, digest)
        try:
            return _decide(context, principal, key, digest, command)
        except UnfinishedProblem as problem:
            return _decide(context, principal, key, digest, partial(_refuse, problem.finished()))


def _decide(context: Context, principal: str, key: str, digest: str, command: Callable[[Session], Answer]) -> Answer:
    """Claim the key, run the command and store its answer, in one transaction."""
    denial: Problem | None = None
    answer = Answer(500, {})
    with _busy_is_a_problem(context), context.database.write() as session:
        if not _claim(session, context, principal, key, digest):
            stored = _find(session, principal, key)
            assert stored is not None, "a refused claim means that the row is there and committed"
            return _replay(stored, digest)
        try:
            with session.begin_nested():
                answer = command(session)
            status, content = answer.status, {"body": answer.body, "headers": answer.headers}
        except Problem as problem:
            if problem.status != 409:
                raise
            problem.members.setdefault("decided_at", format_moment(context.clock()))
            if isinstance(problem, UnfinishedProblem):
                raise
            denial = problem
            status, content = problem.status, _problem_to_json(problem)
        session.execute(
            update(IdempotencyRecord)
            .where(IdempotencyRecord.principal_id == principal, IdempotencyRecord.key == key)
            .values(status=status, answer=content),
            execution_options={"synchronize_session": False},
        )
    if denial is not None:
        raise denial
    return Answer(answer.status, {**answer.body, **answer.shown_once}, answer.headers)


def _refuse(problem: Problem, _: Session) -> Answer:
    raise problem


# Requests that this process is at. Other processes are kept out by the row that `_claim` inserts; this keeps a twin
# from doing the slow work of `prepare` a second time, and from waiting.
_RUNNING: WeakKeyDictionary[Database, set[tuple[str, str]]] = WeakKeyDictionary()
_RUNNING_LOCK = threading.Lock()


@contextmanager
def _in_flight(context: Context, principal: str, key: str) -> Iterator[bool]:
    """Whether no other thread is at this principal's key; if so, none will be until the block ends."""
    with _RUNNING_LOCK:
        running = _RUNNING.setdefault(context.database, set())
        is_first = (principal, key) not in running
        running.add((principal, key))
    try:
        yield is_first
    finally:
        if is_first:
            with _RUNNING_LOCK:
                running.remove((principal, key))


def _still_running() -> Problem:
    return Problem(409, "request_in_progress", "A request with this Idempotency-Key is still running; ask again later.")


def _claim(session: Session, context: Context, principal: str, key: str, digest: str) -> bool:
    """Whether this transaction is the one that finds the answer. Waits while another one with the key is at it."""
    row = {"principal_id": principal, "key": key, "fingerprint": digest, "recorded_at": context.clock()}
    dialect = sqlite if context.database.is_sqlite else postgresql
    statement = dialect.insert(IdempotencyRecord).values(row).on_conflict_do_nothing()
    try:
        return session.execute(statement.returning(IdempotencyRecord.key)).scalar_one_or_none() is not None
    except OperationalError as error:
        if context.database.is_lock_timeout(error) and not context.database.is_sqlite:
            raise _still_running() from error
        raise


def _find(session: Session, principal: str, key: str) -> IdempotencyRecord | None:
    return session.scalar(
        select(IdempotencyRecord).where(IdempotencyRecord.principal_id == principal, IdempotencyRecord.key == key)
    )


def _stored(context: Context, principal: str, key: str) -> IdempotencyRecord | None:
    with context.database.read() as session:
        return _find(session, principal, key)


def _replay(stored: IdempotencyRecord, digest: str) -> Answer:
    if stored.fingerprint != digest:
        code = "idempotency_key_reused"
        detail = "This Idempotency-Key was used for another request; a new request needs a new key."
        item = ProblemItem(pointer="/header/Idempotency-Key", code=code, detail=detail)
        raise Problem(422, code, detail, errors=[item])
    assert stored.status is not None, "committed records have their answer"
    assert stored.answer is not None, "committed records have their answer"
    if stored.status == 409:
        raise _problem_from_json(stored.answer)
    return Answer(stored.status, stored.answer["body"], {**stored.answer["headers"], **REPLAYED})


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


def to_response(answer: Answer) -> JSONResponse:
    """The HTTP response of an answer."""
    return JSONResponse(answer.body, answer.status, headers=answer.headers)


@contextmanager
def _busy_is_a_problem(context: Context) -> Iterator[None]:
    """A lock that was not given in time: everything is rolled back, and the caller may simply ask again."""
    try:
        yield
    except OperationalError as error:
        if not context.database.is_lock_timeout(error):
            raise
        detail = "The database is busy and gave no lock in time. Nothing was changed; send the same request again."
        raise Problem(503, "database_busy", detail, headers={"Retry-After": "1"}) from error
