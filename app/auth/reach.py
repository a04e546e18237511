"""The budgets that a key reaches, and what belongs to them, by one rule for named objects and lists.

A key with budgets reaches those and every budget below them. Anything else does not exist for it: requests get the same
answer as for an unknown id, found by the same statement.

    a budget, a reservation, an entry   is reached with its budget
    a request for a limit, a webhook    with its budget
    a run, a sweep of runs              with the budget that pays for it; without one, by the key that made it
    an audit                            with its run; without one, by the key that made it
    a data set                          if it is public, or a budget of the key is in the tree of its root budget
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, false, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.auth import local_token
from app.auth.principal import ANYBODY, Principal
from app.context import Context
from app.problems import Problem, not_found
from app.tables.datasets import Dataset
from app.tables.ledger import Budget, Entry, LimitRequest, Reservation, under
from app.tables.runs import Audit, Run, RunSweep
from app.tables.webhooks import Webhook

Condition = ColumnElement[bool]


def budgets(principal: Principal) -> Condition:
    """Return the condition on `Budget` for those that the principal reaches."""
    if principal.budgets is None:
        return true()
    return or_(false(), *(under(path) for path in principal.budgets))


def reservations(principal: Principal) -> Condition:
    """Return the condition on `Reservation` for those that the principal reaches."""
    return _of_reached_budget(principal, Reservation.budget_id)


def entries(principal: Principal) -> Condition:
    """Return the condition on `Entry` for those that the principal reaches."""
    return _of_reached_budget(principal, Entry.budget_id)


def limit_requests(principal: Principal) -> Condition:
    """Return the condition on `LimitRequest` for those that the principal reaches."""
    return _of_reached_budget(principal, LimitRequest.budget_id)


def webhooks(principal: Principal) -> Condition:
    """Return the condition on `Webhook` for those that the principal reaches."""
    return _of_reached_budget(principal, Webhook.budget_id)


def runs(principal: Principal) -> Condition:
    """Return the condition on `Run` for those that the principal reaches."""
    return _paid_or_own(principal, Run.budget_id, Run.principal_id)


def run_sweeps(principal: Principal) -> Condition:
    """Return the condition on `RunSweep` for those that the principal reaches."""
    return _paid_or_own(principal, RunSweep.budget_id, RunSweep.principal_id)


def audits(principal: Principal) -> Condition:
    """Return the condition on `Audit` for those that the principal reaches."""
    if principal.budgets is None:
        return true()
    of_reached_run = Audit.run_id.in_(select(Run.id).where(runs(principal)))
    return of_reached_run | (Audit.run_id.is_(None) & (Audit.principal_id == principal.id))


def datasets(principal: Principal) -> Condition:
    """Return the condition on `Dataset` for those that the principal reaches."""
    if principal.budgets is None:
        return true()
    return Dataset.is_public | Dataset.budget_id.in_({path.partition("/")[0] for path in principal.budgets})


def _of_reached_budget(principal: Principal, budget_id: InstrumentedAttribute[str]) -> Condition:
    if principal.budgets is None:
        return true()
    return budget_id.in_(select(Budget.id).where(budgets(principal)))


def _paid_or_own(
    principal: Principal, budget_id: InstrumentedAttribute[str | None], made_by: InstrumentedAttribute[str]
) -> Condition:
    if principal.budgets is None:
        return true()
    is_paid = budget_id.in_(select(Budget.id).where(budgets(principal)))
    return is_paid | (budget_id.is_(None) & (made_by == principal.id))


@dataclass(frozen=True)
class _Kind:
    """The kind of object that an identifier of this name refers to."""

    word: str
    column: InstrumentedAttribute[str]
    condition: Callable[[Principal], Condition]

    def is_reached(self, session: Session, principal: Principal, identifier: str) -> bool:
        statement = select(self.column).where(self.column == identifier, self.condition(principal))
        return session.scalar(statement) is not None


#: The kinds of stored things, by the name of the parameter that holds an id, in paths and in bodies alike.
KINDS: Mapping[str, _Kind] = {
    "budget_id": _Kind("budget", Budget.id, budgets),
    "reservation_id": _Kind("reservation", Reservation.id, reservations),
    "limit_request_id": _Kind("limit request", LimitRequest.id, limit_requests),
    "webhook_id": _Kind("webhook", Webhook.id, webhooks),
    "entry_id": _Kind("entry", Entry.id, entries),
    "run_id": _Kind("run", Run.id, runs),
    "sweep_id": _Kind("run sweep", RunSweep.id, run_sweeps),
    "audit_id": _Kind("audit", Audit.id, audits),
    "dataset_id": _Kind("data set", Dataset.id, datasets),
}


def is_reached(session: Session, principal: Principal, name: str, identifier: str) -> bool:
    """Return whether the principal reaches the object of an identifier.

    Args:
        session: A session.
        principal: The principal who asks.
        name: The name of the kind, as in `KINDS`.
        identifier: The id of an object, which need not exist. Only a principal that reaches everything reaches an
            object that does not exist.
    """
    return principal.budgets is None or KINDS[name].is_reached(session, principal, identifier)


def check(session: Session, principal: Principal, name: str, identifier: str | None) -> None:
    """Answer 404 if the principal does not reach the object, as if the object did not exist; an id of None always
    passes.

    Raises:
        Problem: 404; 401 for a request without credentials to a server without keys.
    """
    if identifier is not None and principal == ANYBODY:
        raise local_token.needed()
    if identifier is not None and not is_reached(session, principal, name, identifier):
        raise not_found(KINDS[name].word, identifier)


def check_path(context: Context, principal: Principal, parameters: Mapping[str, str]) -> None:
    """Check every parameter of a path; `app.auth.rights` calls this before each route that has a principal.

    Raises:
        Problem: 404.
    """
    named = [name for name in parameters if name in KINDS]
    if principal.budgets is None or not named:
        return
    with context.database.read() as session:
        for name in named:
            check(session, principal, name, parameters[name])


def hide_budget_above(session: Session, principal: Principal, denial: Problem) -> None:
    """Let a denial name the budget without room only if the principal reaches it; otherwise null."""
    in_the_way = denial.members.get("budget_id")
    if isinstance(in_the_way, str) and not is_reached(session, principal, "budget_id", in_the_way):
        denial.members["budget_id"] = None


def beyond(detail: str) -> Problem:
    """Return a problem with status 403 for a call that concerns more than the budgets of the key."""
    return Problem(403, "beyond_your_budgets", f"This key reaches some budgets only: {detail}.")
