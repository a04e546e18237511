"""A price is explained: beside the tight number, in budgets of other kinds, and in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.effort import is_quick
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters.comparison import Comparison, compare
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.states import BudgetState
from app.wire.answers import IntervalBody

#: Why a price is more than the tight number, by the kind of filter.
_WHY: Mapping[str, str] = {
    "pure_dp": "The largest losses of all steps add up, with delta 0; the tight number uses the delta.",
    "approximate_dp": "The plan is priced tightly at the reservation's delta, which is less than the delta here.",
    "approximate_gaussian_dp": "The plan is charged as a Gaussian that covers its whole profile, not its epsilon at "
    "one delta: so the budget holds although later plans are chosen by looking at outputs.",
    "zcdp": "Rho adds up, and does not say how losses lie beyond it; sampling does not lower it.",
    "gaussian_dp": "Squares of mu add up; sampling does not lower them.",
    "renyi_dp": "Divergences add up at a few orders, each with its share of delta; the best one becomes an epsilon.",
}


def explained(
    context: Context,
    budget: BudgetState,
    report_delta: float | None,
    events: tuple[Event, ...],
    charge_delta: float | None,
) -> dict[str, Any] | None:
    """Say what a plan costs in the budget and in others (`app.reservations.schemas.PriceBody`).

    Args:
        context: The process's context.
        budget: Where it is to be charged.
        report_delta: At which the budget's reports are stated; read where its filter has no delta.
        events: The plan.
        charge_delta: The delta at which an approximate_dp budget prices it.

    Returns:
        None where nothing has a delta, or where that takes too long.
    """
    delta: float | None = getattr(budget.filter, "delta", report_delta)
    if delta is None or not events:
        return None
    question = (budget.filter, events, budget.relation, delta, charge_delta)
    try:
        if is_quick(events):
            with context.numerics:
                return _body(compare(*question), budget.filter.kind)
        return _body(context.processes.run(compare, *question), budget.filter.kind)
    except (AccountingError, JobFailed):
        return None


def _body(found: Comparison, kind: str) -> dict[str, Any]:
    return {
        "delta": found.delta,
        "tight": IntervalBody.of(found.tight).model_dump(),
        "charged": found.charged,
        "why": _WHY[kind],
        "kinds": found.kinds,
        "after_a_quarter": found.after_a_quarter,
        "in_parts": [{"parts": parts, "epsilon": epsilon} for parts, epsilon in found.parts.items()],
    }
