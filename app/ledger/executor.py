"""Carry out commands of the ledger under idempotency keys: commands that arrive together share one transaction.

The effect, its entry and the stored answer commit together. If another process keeps a budget locked for long, each
command of the group continues alone, so that only those that need the lock wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from app.context import Context
from app.db.database import Database
from app.db.failures import DATABASE_FAILURES, busy_is_a_problem
from app.idempotency.once import Decision, Keyed, answer_once, decide_once, once_more
from app.idempotency.records import Answer
from app.kit import spans
from app.ledger import repository
from app.ledger.amounts import amounts_in_words
from app.ledger.commands import AskLimit, BudgetCommand, LimitDecision, Reserve
from app.ledger.denials import Denial, DenialCode
from app.ledger.journal import Instruction, NoTarget, Transaction
from app.ledger.states import Path
from app.ledger.transitions import Transition
from app.problems import Problem, ProblemItem, not_found


@dataclass(frozen=True)
class Request:
    """An instruction with its idempotency key.

    Attributes:
        keyed: The key, and what is asked.
        instruction: What to do, with its price.
        answer: Makes the answer of the transition.
    """

    keyed: Keyed
    instruction: Instruction
    answer: Callable[[Transition], Answer]


class Exceeded(Exception):
    """A reservation does not fit. The denial is not stored yet, because computing what would fit takes time.

    Attributes:
        denial: The denial, which names the budget without room.
        path: The states of the budgets when it was decided.
        command: What was asked.
        room_can_be_made: Whether expired holds took up room at that time.
    """

    def __init__(self, denial: Denial, path: Path, command: Reserve, *, room_can_be_made: bool) -> None:
        super().__init__(denial.detail)
        self.denial = denial
        self.path = path
        self.command = command
        self.room_can_be_made = room_can_be_made


class PriceOutdated(Exception):
    """The events of a reservation have changed since they were priced, so they must be priced again."""


def execute(
    context: Context, keyed: Keyed, instruct: Callable[[], Instruction], answer: Callable[[Transition], Answer]
) -> Answer:
    """Carry out a command at most once for its key; a repetition gets the stored answer again.

    Args:
        context: The process's context.
        keyed: The key, and what is asked.
        instruct: Makes the instruction. It may compute a price, and runs before any lock is taken. It runs again if
            another command has meanwhile changed what it priced.
        answer: Makes the answer of the transition.

    Raises:
        Problem: as `app.idempotency.once.answer_once`; 404; the denial.
        Exceeded: the budget has no room.
    """

    def decide() -> Decision:
        return decide_soon(context, Request(keyed, instruct(), answer)).result()

    while True:
        with suppress(PriceOutdated):
            return answer_once(context, keyed, decide)


def decide_soon(context: Context, request: Request) -> Future[Decision]:
    """Decide a request together with those that arrive at the same time. Nobody else in this process may use its key
    meanwhile."""
    commits = context.ledger_commits
    # The transaction runs in a thread of its own and serves all requests that came together; this request waits for it.
    end = spans.begin_part("ledger commit")
    decision = commits.submit(request, partial(_decide_all, context), partial(_decide_alone, context))
    decision.add_done_callback(end)
    return decision


def carry_out_one(session: Session, context: Context, instruction: Instruction) -> Transition:
    """Carry out an instruction as a part of the caller's transaction.

    Raises:
        Problem: 404; the denial. Nothing was written.
        Exceeded: the budget has no room. Nothing was written.
        PriceOutdated: the price is of other events. Nothing was written.
    """
    transaction = Transaction(session.connection(), context.database, context.clock())
    transaction.lock([instruction])
    transition = _decide(transaction, instruction)
    transaction.write()
    return transition


def _decide_alone(context: Context, request: Request, failure: BaseException) -> Decision:
    """Decide a request alone if its group failed, perhaps because of another request.

    If nothing that it needs is locked, this happens at once; otherwise the request waits for one of the few places that
    may wait long.
    """
    if not _may_succeed_alone(context, failure):
        raise failure
    with busy_is_a_problem(context.database):
        try:
            return _decide_one(context, request, patiently=context.database.is_sqlite)
        except DBAPIError as error:
            # SQLite has a single lock, and this command has waited for it as long as is allowed.
            if context.database.is_sqlite or not context.database.is_lock_timeout(error):
                raise
            if not context.patience.acquire(blocking=False):
                raise
        try:
            return _decide_one(context, request, patiently=True)
        finally:
            context.patience.release()


def _may_succeed_alone(context: Context, error: BaseException) -> bool:
    """Return whether some commands of a failed group may succeed alone. This is the case if another command's budget
    was locked for long, its key was taken after it was looked up, or it met a bug. Nothing was written.
    """
    if isinstance(error, DATABASE_FAILURES):
        return isinstance(error, IntegrityError) or (
            isinstance(error, DBAPIError) and context.database.is_lock_timeout(error)
        )
    return True


def _decide_one(context: Context, request: Request, *, patiently: bool) -> Decision:
    return once_more(lambda: _decide_all(context, [request], patiently=patiently)[0])


def _decide_all(context: Context, requests: Sequence[Request], *, patiently: bool = False) -> list[Decision]:
    """Decide the requests in one transaction; all decisions are durable when this returns."""
    with _connection(context.database, patiently=patiently) as connection:
        transaction = Transaction(connection, context.database, context.clock())
        transaction.lock([request.instruction for request in requests])
        decisions = decide_once(connection, requests, partial(_decide_each, transaction), transaction.now)
        transaction.write()
    return decisions


def _decide_each(transaction: Transaction, requests: Sequence[Request]) -> list[Decision]:
    decisions: list[Decision] = []
    for request in requests:
        try:
            decisions.append(request.answer(_decide(transaction, request.instruction)))
        except (Problem, Exceeded, PriceOutdated) as refusal:
            decisions.append(refusal)
    return decisions


def _decide(transaction: Transaction, instruction: Instruction) -> Transition:
    outcome = transaction.decide(instruction)
    if isinstance(outcome, Transition):
        return outcome
    if isinstance(outcome, Problem):
        raise outcome
    if isinstance(outcome, NoTarget):
        raise not_found(_kind_of_target(instruction), instruction.target_id)
    if isinstance(instruction.command, Reserve):
        path = transaction.path(instruction.target_id)
        raise Exceeded(outcome, path, instruction.command, room_can_be_made=_holds_are_due(transaction, outcome, path))
    if outcome.code is DenialCode.PRICE_OUTDATED:
        raise PriceOutdated
    problem = _problem_of(outcome)
    if outcome.code is DenialCode.LIMIT_BELOW_USE:
        budget = transaction.path(instruction.target_id)[0]
        problem.members["used"] = amounts_in_words(budget.filter, budget.used)
    raise problem


def _kind_of_target(instruction: Instruction) -> str:
    if isinstance(instruction.command, BudgetCommand | AskLimit):
        return "budget"
    return "limit request" if isinstance(instruction.command, LimitDecision) else "reservation"


@contextmanager
def _connection(database: Database, *, patiently: bool) -> Iterator[Connection]:
    if patiently:
        with database.write() as session:
            yield session.connection()
    else:
        with database.write_briefly() as connection:
            yield connection


def _holds_are_due(transaction: Transaction, denial: Denial, path: Path) -> bool:
    """Return whether the budget without room, or one under it, has holds that may be released."""
    ids = [level.id for level in path]
    assert denial.budget_id is not None, "some budget stands in the way"
    from_the_root = "/".join(reversed(ids[ids.index(denial.budget_id) :]))
    with Session(transaction.connection) as session:
        return bool(repository.due_holds(session, from_the_root, transaction.now, 1))


def _problem_of(denial: Denial) -> Problem:
    """Return the denial as an answer; for a malformed command (422) it points at the fault."""
    errors = []
    if denial.status == 422:
        errors = [ProblemItem(pointer="/events", code=str(denial.code), detail=denial.detail)]
    members = {} if denial.state is None else {"state": str(denial.state)}
    return Problem(denial.status, str(denial.code), denial.detail, errors=errors, members=members)
