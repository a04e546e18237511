"""Use cases of budgets: open one, look at it, change its limit by hand, correct a charge."""

from __future__ import annotations

from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters import PrivacyFilter, filter_from_json
from app.auth import reach
from app.auth.principal import Principal
from app.budgets import repository
from app.budgets.schemas import MAX_DEPTH, BudgetRequest, FilterSchema
from app.context import Context
from app.kit.ids import new_id
from app.ledger import journal, rows
from app.ledger.commands import Correct
from app.ledger.states import Path
from app.problems import Problem, from_accounting, not_found, unprocessable
from app.reservations import quotes
from app.reservations import service as reservations
from app.tables.ledger import Budget


def create_budget(session: Session, context: Context, request: BudgetRequest, principal_id: str) -> Budget:
    """Open a budget with nothing spent.

    Raises:
        Problem: 422 when the filter has no room at any order, or the budget does not fit under its parent.
    """
    parent = None if request.parent_id is None else _parent(session, request, request.parent_id)
    budget_filter = _filter(request.filter, None if parent is None else parent.filter)
    budget_id = new_id("bud")
    budget = Budget(
        id=budget_id,
        name=request.name,
        neighboring_relation=str(request.neighboring_relation),
        privacy_unit=_privacy_unit(request, parent),
        filter=budget_filter,
        report_delta=None if request.report_delta is None else repr(request.report_delta),
        labels=dict(request.labels),
        principal_id=principal_id,
        created_at=context.clock(),
        parent_id=request.parent_id,
        path=budget_id if parent is None else f"{parent.path}/{budget_id}",
    )
    journal.open_budget(session, budget)
    return budget


def check_place(session: Session, principal: Principal, parent_id: str | None) -> None:
    """Check that a principal may open a budget at this place.

    Raises:
        Problem: 403 if a key of some budgets opens a root; 422 ``unknown_budget`` if the parent is not one of them.
    """
    if principal.budgets is None:
        return
    if parent_id is None:
        raise reach.beyond("a budget that this key opens needs one of those budgets as parent_id")
    if not reach.is_reached(session, principal, "budget_id", parent_id):
        raise _unknown_parent(parent_id)


def changed_filter(budget: Budget, given: FilterSchema) -> PrivacyFilter:
    """Return the budget's filter with another limit.

    Raises:
        Problem: 422 when the kind or its price terms differ.
    """
    return _filter(given, budget.filter)


def correction(
    context: Context,
    reservation_id: str,
    *,
    events: tuple[Event, ...] | None,
    charge_delta: float | None,
    reason: str,
    may_lower: bool,
) -> Correct:
    """Return the command that corrects a reservation, with its price.

    Args:
        context: The process's context.
        reservation_id: The reservation.
        events: The events that happened; None prices again what was charged.
        charge_delta: The delta for an approximate_dp budget; None takes the reservation's own.
        reason: The reason.
        may_lower: Whether the charge may become smaller.

    Raises:
        Problem: 404; 422 if there is no price.
    """
    with context.database.read() as session:
        state = rows.reservation_state(reservations.get_reservation(session, reservation_id))
    if events is None and charge_delta is None:
        return Correct(quotes.quote_again(context, state), reason, None, may_lower, None, state.priced_events)
    priced = state.priced_events if events is None else events
    delta = state.charge_delta if charge_delta is None else charge_delta
    quote = quotes.quote(context, state.budget_id, priced, charge_delta=delta)
    return Correct(quote, reason, events, may_lower, None if events is None else charge_delta, priced)


def _parent(session: Session, request: BudgetRequest, parent_id: str) -> Budget:
    parent = repository.find(session, parent_id)
    if parent is None:
        raise _unknown_parent(parent_id)
    if parent.neighboring_relation != request.neighboring_relation:
        raise unprocessable(
            "relation_mismatch",
            f"the parent uses the relation {parent.neighboring_relation}; every charge of this budget is charged "
            "to the parent, too, so both must use the same relation",
            "neighboring_relation",
        )
    if request.privacy_unit not in (None, parent.privacy_unit):
        raise unprocessable(
            "privacy_unit_mismatch",
            f"the parent protects the unit {parent.privacy_unit!r}; leave privacy_unit out to use the parent's",
            "privacy_unit",
        )
    if parent.path.count("/") + 2 > MAX_DEPTH:
        raise unprocessable(
            "tree_too_deep", f"a tree has at most {MAX_DEPTH} levels of budgets, the root included", "parent_id"
        )
    return parent


def _unknown_parent(parent_id: str) -> Problem:
    return unprocessable("unknown_budget", f"there is no budget with the id {parent_id!r}", "parent_id")


def _privacy_unit(request: BudgetRequest, parent: Budget | None) -> str:
    if request.privacy_unit is not None:
        return request.privacy_unit
    return "record" if parent is None else parent.privacy_unit


def _filter(given: FilterSchema, parent: PrivacyFilter | None) -> PrivacyFilter:
    """Return the given limit as a filter, of the parent's kind and price terms if there is a parent."""
    try:
        if parent is None:
            return filter_from_json(given.description())
        # A request without a kind takes the parent's kind if that kind has the given fields.
        fields = given.description(of_another=True)
        return parent.with_limit(fields if fields.keys() <= parent.to_json().keys() else given.description())
    except AccountingError as error:
        raise from_accounting(error, "filter") from None


def path(session: Session, budget_id: str) -> Path:
    """Return the amounts of a budget and of those above it.

    Raises:
        Problem: 404.
    """
    found = journal.path_of(session, budget_id)
    if found is None:
        raise not_found("budget", budget_id)
    return found
