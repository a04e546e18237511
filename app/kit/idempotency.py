"""Idempotent commands: a request that is sent again gets the first answer again, and has no second effect.

The claim of the key, the command's effect and the stored answer commit in one transaction, so an answer exists exactly
when its effect does. A second request with the same key is told that the first is still running; in another process it
waits for the first (the claim is a unique row) and replays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Header
from pydantic import BaseModel
from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse

from app.db.database import Database
from app.kit.context import Context
from app.kit.idempotency_records import (
    MAX_KEY_LENGTH,
    Answer,
    IdempotencyRecord,
    Key,
    find,
    find_one,
    in_flight,
    still_running,
    values,
)
from app.kit.moments import format_moment
from app.problems import Problem, ProblemItem


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


async def optional_idempotency_key(key: KeyHeader = None) -> str | None:
    """The key, where a request may come without one (a dry run)."""
    return None if key is None else _check_key(key)


async def required_idempotency_key(key: KeyHeader = None) -> str:
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
    digest = fingerprint_hash(context, fingerprint)
    record_key = (principal, key)
    with in_flight(context.database, record_key) as is_first:
        if not is_first or prepare is not None:
            stored = find_one(context.database, record_key)
            if stored is not None:
                return stored.replay(digest)
        if not is_first:
            raise still_running()
        if prepare is not None:
            try:
                prepare()
            except Problem:
                # Another process may have answered meanwhile, and what it did may be what stands in the way here.
                stored = find_one(context.database, record_key)
                if stored is None:
                    raise
                return stored.replay(digest)
        try:
            return _decide(context, record_key, digest, command)
        except UnfinishedProblem as problem:
            return refuse(context, record_key, digest, problem.finished())


def refuse(context: Context, key: Key, digest: str, denial: Problem) -> Answer:
    """Remember a denial (409) that was decided, and raise it; or replay what another process has stored meanwhile."""

    def raise_denial(_: Session) -> Answer:
        raise denial

    return _decide(context, key, digest, raise_denial)


def fingerprint_hash(context: Context, fingerprint: bytes) -> str:
    """What is stored in place of a request."""
    return context.keyed_hash("idempotency", fingerprint)


def _decide(context: Context, key: Key, digest: str, command: Callable[[Session], Answer]) -> Answer:
    """Claim the key, run the command and store its answer, in one transaction."""
    denial: Problem | None = None
    answer = Answer(500, {})
    with busy_is_a_problem(context.database), context.database.write() as session:
        if not _claim(session, context, key, digest):
            return find(session.connection(), [key])[key].replay(digest)
        try:
            with session.begin_nested():
                answer = command(session)
            outcome: Answer | Problem = answer
        except Problem as problem:
            if problem.status != 409:
                raise
            problem.members.setdefault("decided_at", format_moment(context.clock()))
            if isinstance(problem, UnfinishedProblem):
                raise
            outcome = denial = problem
        row = values(key, digest, outcome, context.clock())
        session.execute(
            update(IdempotencyRecord)
            .where(IdempotencyRecord.principal_id == key[0], IdempotencyRecord.key == key[1])
            .values(status=row["status"], answer=row["answer"]),
            execution_options={"synchronize_session": False},
        )
    if denial is not None:
        raise denial
    return Answer(answer.status, {**answer.body, **answer.shown_once}, answer.headers)


def _claim(session: Session, context: Context, key: Key, digest: str) -> bool:
    """Whether this transaction is the one that finds the answer. Waits while another one with the key is at it."""
    row = {"principal_id": key[0], "key": key[1], "fingerprint": digest, "recorded_at": context.clock()}
    dialect = sqlite if context.database.is_sqlite else postgresql
    statement = dialect.insert(IdempotencyRecord).values(row).on_conflict_do_nothing()
    try:
        return session.execute(statement.returning(IdempotencyRecord.key)).scalar_one_or_none() is not None
    except OperationalError as error:
        if context.database.is_lock_timeout(error) and not context.database.is_sqlite:
            raise still_running() from error
        raise


def to_response(answer: Answer) -> JSONResponse:
    """The HTTP response of an answer."""
    return JSONResponse(answer.body, answer.status, headers=answer.headers)


@contextmanager
def busy_is_a_problem(database: Database) -> Iterator[None]:
    """A lock that was not given in time: everything is rolled back, and the caller may simply ask again."""
    try:
        yield
    except OperationalError as error:
        if not database.is_lock_timeout(error):
            raise
        detail = "The database is busy and gave no lock in time. Nothing was changed; send the same request again."
        raise Problem(503, "database_busy", detail, headers={"Retry-After": "1"}) from error


__all__ = [
    "Answer",
    "IdempotencyKey",
    "IdempotencyRecord",
    "OptionalIdempotencyKey",
    "UnfinishedProblem",
    "busy_is_a_problem",
    "fingerprint_hash",
    "missing_key",
    "refuse",
    "request_fingerprint",
    "run_once",
    "to_response",
]
