"""Commands over HTTP: each with an idempotency key, all that come at once in one transaction.

The effect, its entry and the stored answer commit together. Where another process keeps a budget locked for long, each
command of the group goes on alone, so that only those wait that must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from app.db.database import Database
from app.db.failures import DATABASE_FAILURES
from app.kit import idempotency_records as records
from app.kit.context import Context
from app.kit.idempotency import busy_is_a_problem, fingerprint_hash
from app.kit.idempotency_records import Answer, Key, Stored
from app.kit.moments import format_moment
from app.ledger import repository
from app.ledger.amounts import amounts_in_words
from app.ledger.commands import Reserve
from app.ledger.denials import Denial, DenialCode
from app.ledger.journal import Instruction, NoTarget, Transaction
from app.ledger.states import Path
from app.ledger.transitions import Transition
from app.problems import Problem, ProblemItem, json_pointer, not_found


@dataclass(frozen=True)
class Request:
    """An instruction with its idempotency key.

    Attributes:
        instruction: What to do, with its price.
        key: The principal and the key.
        fingerprint: Keyed hash of what is asked.
        answer: Makes the answer of a transition.
        target: What the instruction's target is called, for 404.
    """

    instruction: Instruction
    key: Key
    fingerprint: str
    answer: Callable[[Transition], Answer]
    target: str


@dataclass(frozen=True)
class Exceeded:
    """A reservation that does not fit; not remembered yet, because what would fit takes numerics.

    Attributes:
        denial: With the budget that stands in the way.
        path: As it was when that was decided.
        command: What was asked.
        room_can_be_made: Whether holds were due, then, that stood in the way.
    """

    denial: Denial
    path: Path
    command: Reserve
    room_can_be_made: bool


Decision = Answer | Stored | Problem | Exceeded


def execute(
    context: Context,
    *,
    principal_id: str,
    key: str,
    fingerprint: bytes,
    instruct: Callable[[], Instruction],
    answer: Callable[[Transition], Answer],
    target: str,
) -> Answer | Exceeded:
    """Carry out a command at most once for this principal and key; a repetition gets the stored answer again.

    Args:
        context: The process's context.
        principal_id: Whose key it is.
        key: The idempotency key.
        fingerprint: What the request asks (`request_fingerprint`).
        instruct: Makes the instruction; it may take numerics, and runs before any lock is taken.
        answer: Makes the answer of the transition.
        target: "budget" or "reservation", for 404.

    Raises:
        Problem: as `app.kit.idempotency.run_once`; 404; the denial.
    """
    digest, record_key = fingerprint_hash(context, fingerprint), (principal_id, key)
    with records.in_flight(context.database, record_key) as is_first:
        if not is_first:
            stored = records.find_one(context.database, record_key)
            if stored is None:
                raise records.still_running()
            return stored.replay(digest)
        try:
            instruction = instruct()
        except Problem:
            # Another process may have answered meanwhile, and what it did may be what stands in the way here.
            stored = records.find_one(context.database, record_key)
            if stored is None:
                raise
            return stored.replay(digest)
        request = Request(instruction, record_key, digest, answer, target)
        return _settled(_decide(context, request), request)


async def execute_soon(context: Context, request: Request) -> Answer | Exceeded | None:
    """`execute` for a coroutine, of an instruction that needs no numerics; None for a twin of a running request.

    Raises:
        Problem: as `execute`.
    """
    with records.in_flight(context.database, request.key) as is_first:
        if not is_first:
            return None
        try:
            decision: Decision = await context.ledger_commits.submit_soon(request, partial(_decide_all, context))
        except Exception as error:
            if not _may_succeed_alone(context, error):
                raise
            decision = await run_in_threadpool(_decide_alone, context, request)
        return _settled(decision, request)


def _decide(context: Context, request: Request) -> Decision:
    try:
        decision: Decision = context.ledger_commits.submit(request, partial(_decide_all, context))
        return decision
    except Exception as error:
        if not _may_succeed_alone(context, error):
            raise
    return _decide_alone(context, request)


def _may_succeed_alone(context: Context, error: Exception) -> bool:
    """Whether a group that failed may hold commands that are not to blame: another's budget was locked for long, its
    key was taken between being looked for and being written, or it met a fault of ours. Nothing was written.
    """
    if isinstance(error, DATABASE_FAILURES):
        return isinstance(error, IntegrityError) or (
            isinstance(error, DBAPIError) and context.database.is_lock_timeout(error)
        )
    return True


def _decide_alone(context: Context, request: Request) -> Decision:
    """At once, if nothing that it needs is locked; else after a wait, among the few that may wait long."""
    with busy_is_a_problem(context.database):
        try:
            return _decide_one_alone(context, request, patiently=context.database.is_sqlite)
        except DBAPIError as error:
            # On SQLite there is one lock, and it was waited for as long as anyone may.
            if context.database.is_sqlite or not context.database.is_lock_timeout(error):
                raise
            if not context.patience.acquire(blocking=False):
                raise
        try:
            return _decide_one_alone(context, request, patiently=True)
        finally:
            context.patience.release()


def _decide_one_alone(context: Context, request: Request, *, patiently: bool) -> Decision:
    try:
        return _decide_all(context, [request], patiently=patiently)[0]
    except IntegrityError:
        # Now it was this request's own key; whoever has taken it is done, so that its answer is found.
        return _decide_all(context, [request], patiently=patiently)[0]


def _settled(decision: Decision, request: Request) -> Answer | Exceeded:
    if isinstance(decision, Stored):
        return decision.replay(request.fingerprint)
    if isinstance(decision, Problem):
        raise decision
    return decision


def _decide_all(context: Context, requests: Sequence[Request], *, patiently: bool = False) -> list[Decision]:
    """Decide the requests in one transaction; all that is decided is durable when this returns."""
    now = context.clock()
    decisions: list[Decision] = []
    remembered = []
    with _connection(context.database, patiently=patiently) as connection:
        transaction = Transaction(connection, context.database, now)
        transaction.lock([request.instruction for request in requests])
        # After the locks: who had them before has committed its records, too.
        stored = records.find(connection, [request.key for request in requests])
        for request in requests:
            if request.key in stored:
                decisions.append(stored[request.key])
                continue
            decision = _decide_one(transaction, request)
            decisions.append(decision)
            if isinstance(decision, Answer) or (isinstance(decision, Problem) and decision.status == 409):
                if isinstance(decision, Problem):
                    decision.members.setdefault("decided_at", format_moment(now))
                remembered.append(records.values(request.key, request.fingerprint, decision, now))
        transaction.write()
        records.insert_all(connection, remembered)
    return decisions


@contextmanager
def _connection(database: Database, *, patiently: bool) -> Iterator[Connection]:
    if patiently:
        with database.write() as session:
            yield session.connection()
    else:
        with database.write_briefly() as connection:
            yield connection


def _decide_one(transaction: Transaction, request: Request) -> Decision:
    outcome = transaction.decide(request.instruction)
    if isinstance(outcome, Transition):
        return request.answer(outcome)
    if isinstance(outcome, NoTarget):
        return not_found(request.target, request.instruction.target_id)
    if outcome.code is DenialCode.BUDGET_EXCEEDED:
        command = request.instruction.command
        assert isinstance(command, Reserve), "nothing else can exceed a budget"
        path = transaction.path(request.instruction.target_id)
        return Exceeded(outcome, path, command, _holds_are_due(transaction.connection, outcome, path, transaction.now))
    problem = problem_of(outcome)
    if outcome.code is DenialCode.LIMIT_BELOW_USE:
        budget = transaction.path(request.instruction.target_id)[0]
        problem.members["used"] = amounts_in_words(budget.filter, budget.used)
    return problem


def _holds_are_due(connection: Connection, denial: Denial, path: Path, now: datetime) -> bool:
    """Whether the budget that stands in the way, or one under it, holds what may be released."""
    ids = [level.id for level in path]
    assert denial.budget_id is not None, "some budget stands in the way"
    from_the_root = "/".join(reversed(ids[ids.index(denial.budget_id) :]))
    with Session(connection) as session:
        return bool(repository.due_holds(session, from_the_root, now, 1))


def problem_of(denial: Denial, *pointer: str) -> Problem:
    """The denial as an answer; ``pointer`` leads to the field that a malformed command (422) got wrong."""
    errors = []
    if denial.status == 422:
        where = json_pointer(pointer or ("events",))
        errors = [ProblemItem(pointer=where, code=str(denial.code), detail=denial.detail)]
    members = {} if denial.state is None else {"state": str(denial.state)}
    return Problem(denial.status, str(denial.code), denial.detail, errors=errors, members=members)
