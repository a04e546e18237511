"""Commands that take effect once per key. A command that is sent again gets the first answer again.

The command's effect and the record with its answer commit in one transaction, so an answer exists exactly when its
effect does. The record's primary key is unique: if two processes work on one key, the second one to write its record is
rolled back, and replays the answer. Within one process, the second request gets the answer that the first is still
running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.context import Context
from app.db.failures import busy_is_a_problem
from app.idempotency.records import (
    Answer,
    Key,
    Stored,
    catch_up,
    find,
    find_one,
    in_flight,
    insert_all,
    still_running,
    values,
)
from app.kit.timestamps import format_moment
from app.problems import Problem

Result = TypeVar("Result")


@dataclass(frozen=True)
class Keyed:
    """The identity of a request: two requests with equal fields are the same.

    Attributes:
        key: The principal and the text of the key; another principal may use the same text.
        fingerprint: Keyed hash of the request's content.
    """

    key: Key
    fingerprint: str

    @classmethod
    def of(cls, context: Context, principal_id: str, key: str, fingerprint: bytes) -> Keyed:
        """Return the identity of a request whose content has this fingerprint (`request_fingerprint`)."""
        return cls((principal_id, key), context.keyed_hash("idempotency", fingerprint))


class HasKey(Protocol):
    """A request that is made under an idempotency key."""

    @property
    def keyed(self) -> Keyed: ...


Asked = TypeVar("Asked", bound=HasKey)
#: The decision on a command. `Stored` and `Answer` answer it; an exception refuses it.
Decision = Answer | Stored | Exception


def decide_once(
    connection: Connection,
    asked: Sequence[Asked],
    decide: Callable[[Sequence[Asked]], Sequence[Decision]],
    now: datetime,
) -> list[Decision]:
    """Decide the requests without a record, and record the decisions, in the caller's transaction.

    Args:
        connection: The connection of the transaction. Rows that the effects change may be locked already: the previous
            holder of the locks has committed its records, too.
        asked: The requests, all with different keys.
        decide: Carries out the requests without a record, and returns one decision for each. Answers and denials (409)
            are recorded.
        now: The time of the decisions.

    Raises:
        IntegrityError: a key was taken after the search for its record; the transaction must be rolled back.
    """
    stored = find(connection, [each.keyed.key for each in asked])
    new = [each for each in asked if each.keyed.key not in stored]
    decided = {each.keyed.key: decision for each, decision in zip(new, decide(new), strict=True)}
    records = []
    for each in new:
        outcome = decided[each.keyed.key]
        if isinstance(outcome, Problem) and outcome.status == 409:
            outcome.members.setdefault("decided_at", format_moment(now))
        elif not isinstance(outcome, Answer):
            continue
        records.append(values(each.keyed.key, each.keyed.fingerprint, outcome, now))
    insert_all(connection, records)
    return [stored.get(each.keyed.key) or decided[each.keyed.key] for each in asked]


def answer_once(context: Context, keyed: Keyed, decide: Callable[[], Decision], *, looks_first: bool = False) -> Answer:
    """Return the answer of a command, which this process decides at most once at a time.

    Args:
        context: The process's context.
        keyed: The request.
        decide: Carries out the command by `decide_once`, in a separate transaction.
        looks_first: Whether ``decide`` begins with slow work, which a repetition must not do again.

    Returns:
        The command's answer, or the stored one with the header ``Idempotency-Replayed: true``.

    Raises:
        Problem: what ``decide`` returned or raised, if nobody else has answered. 422 ``idempotency_key_reused``: the
            key was used for another request. 409 ``request_in_progress``: another request with the key is running in
            this process.
    """
    with in_flight(context.database, keyed.key) as is_first:
        if not is_first or looks_first:
            stored = find_one(context.database, keyed.key)
            if stored is not None:
                return stored.replay(keyed.fingerprint)
        if not is_first:
            raise still_running()
        try:
            decision = decide()
        except Problem:
            # Another process may have answered the request meanwhile, and this refusal may be due to what it did.
            stored = find_one(context.database, keyed.key)
            if stored is None:
                raise
            decision = stored
        return settled(decision, keyed)


def settled(decision: Decision, keyed: Keyed) -> Answer:
    """Return the answer that was decided.

    Raises:
        Exception: the refusal that was decided.
    """
    if isinstance(decision, Exception):
        raise decision
    if isinstance(decision, Stored):
        return decision.replay(keyed.fingerprint)
    return replace(decision, body={**decision.body, **decision.shown_once}) if decision.shown_once else decision


def run_once(
    context: Context,
    keyed: Keyed,
    command: Callable[[Session], Answer],
    prepare: Callable[[], None] | None = None,
) -> Answer:
    """Run ``command`` at most once for its key, and answer a repetition from the stored record.

    Args:
        context: The process's context.
        keyed: The identity of the request.
        command: Carries out the effect in the given session and its transaction. It may be called a second time, after
            the first transaction was rolled back.
        prepare: Slow work before the transaction opens. It is skipped if the answer is already stored. Its exceptions
            are never stored.

    Raises:
        Problem: as for `answer_once`. A 409 that the command raised is stored with ``decided_at``, so that a repetition
            gets the same denial, even if the command would now succeed. Any other problem stores nothing. In both cases
            the effects are rolled back. 503 ``database_busy``: a lock was not free in time.
    """

    def decide() -> Decision:
        if prepare is not None:
            prepare()
        try:
            return _decide(context, keyed, command)
        except Problem as denial:
            if denial.status != 409:
                raise
            return _deny(context, keyed, denial)

    return answer_once(context, keyed, decide, looks_first=prepare is not None)


def refuse(context: Context, keyed: Keyed, denial: Problem, also: Callable[[Session], None] = lambda _: None) -> Answer:
    """Record a denial (409) and raise it; or replay the answer that another process has stored meanwhile.

    Args:
        context: The process's context.
        keyed: The request.
        denial: The answer.
        also: Writes more in the transaction that records the denial. It is not called for a replay.
    """

    def record(session: Session) -> Decision:
        also(session)
        return denial

    return settled(_decide(context, keyed, record), keyed)


def _deny(context: Context, keyed: Keyed, denial: Problem) -> Decision:
    return _decide(context, keyed, lambda _: denial)


@dataclass(frozen=True)
class _One:
    keyed: Keyed


def _decide(context: Context, keyed: Keyed, command: Callable[[Session], Decision]) -> Decision:
    """Decide a command in a separate transaction."""

    def decide() -> Decision:
        with busy_is_a_problem(context.database), context.database.write() as session:
            return decide_once(
                session.connection(), [_One(keyed)], lambda new: [command(session) for _ in new], context.clock()
            )[0]

    decision = once_more(decide)
    if isinstance(decision, Stored):
        catch_up(context.database)
    return decision


def once_more(decide: Callable[[], Result]) -> Result:
    """Decide again if a key was taken between the search and the writing of its record. The second time, the answer is
    found."""
    try:
        return decide()
    except IntegrityError:
        return decide()
