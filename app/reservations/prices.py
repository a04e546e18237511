"""Explain a price: compared with the tight number, in budgets of other kinds, and in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.effort import is_quick
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters import PrivacyFilter
from accounting.filters.comparison import Alone, compare, price_alone
from accounting.units import Amounts, exact, from_nano, to_nano_down, to_nano_up
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.states import BudgetState, Path
from app.wire.answers import IntervalBody

#: The reason why a price exceeds the tight result, by the kind of filter.
_WHY: Mapping[str, str] = {
    "pure_dp": "The largest losses of all steps add up, with delta 0; the tight number uses the delta.",
    "approximate_dp": "The plan is priced tightly at the reservation's delta, which is less than the delta here.",
    "approximate_gaussian_dp": "The plan is charged as a Gaussian that covers its whole profile, not its epsilon at "
    "one delta. So the budget holds even if later plans are chosen by looking at outputs.",
    "zcdp": "Rho adds up. It leaves out details of the losses, so the tight number is smaller. Sampling does not lower "
    "rho.",
    "gaussian_dp": "Squares of mu add up; sampling does not lower them.",
    "renyi_dp": "Divergences add up at a few orders, each with its share of delta; the best one becomes an epsilon.",
}


#: The number of facts about plans that are remembered; beyond that, all are forgotten.
_MOST_KNOWN = 1024
_KNOWN: dict[tuple[Any, ...], Alone] = {}


def of_plan(
    context: Context, budget: BudgetState, report_delta: float | None, events: tuple[Event, ...], amounts: Amounts
) -> dict[str, Any] | None:
    """Return what a plan costs alone (`app.reservations.schemas.PlanPriceBody`); the result is remembered.

    Args:
        context: The process's context.
        budget: The budget that is charged.
        report_delta: The delta of the budget's reports, which is used if its filter has no delta.
        events: The plan.
        amounts: The budget's charge for the plan.

    Returns:
        None if nothing has a delta, or if the computation takes too long.
    """
    delta = delta_of(budget.filter, report_delta)
    if delta is None or not events:
        return None
    question = (budget.filter, amounts, events, budget.relation, delta)
    found = _KNOWN.get(question)
    if found is None:
        try:
            if is_quick(events):
                with context.numerics:
                    found = price_alone(*question)
            else:
                found = context.processes.run(price_alone, *question)
        except (AccountingError, JobFailed):
            return None
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[question] = found
    return plan_price(found, budget.filter.kind, delta)


def here(
    context: Context, path: Path, report_delta: float | None, events: tuple[Event, ...], amounts: Amounts
) -> dict[str, Any] | None:
    """Return what a plan costs alone and what it adds (`app.reservations.schemas.PriceHereBody`).

    Args:
        path: The budget that is charged, and those above it.
        context, report_delta, events, amounts: As `of_plan`.

    Returns:
        As `of_plan`.
    """
    alone = of_plan(context, path[0], report_delta, events, amounts)
    return None if alone is None else alone | room_for(path, amounts, alone["delta"])


def explained(
    context: Context,
    path: Path,
    report_delta: float | None,
    events: tuple[Event, ...],
    charge_delta: float | None,
    amounts: Amounts,
) -> dict[str, Any] | None:
    """Return what a plan costs in the budget and in others (`app.reservations.schemas.PriceBody`).

    Args:
        context, path, report_delta, events, amounts: As `here`.
        charge_delta: The delta at which an approximate_dp budget prices it.

    Returns:
        As `of_plan`.
    """
    price, budget = here(context, path, report_delta, events, amounts), path[0]
    if price is None:
        return None
    question = (budget.filter, events, budget.relation, price["delta"], charge_delta)
    try:
        if is_quick(events):
            with context.numerics:
                found = compare(*question)
        else:
            found = context.processes.run(compare, *question)
    except (AccountingError, JobFailed):
        return None
    return price | {
        "kinds": found.kinds,
        "after_a_quarter": found.after_a_quarter,
        "in_parts": [{"parts": parts, "epsilon": epsilon} for parts, epsilon in found.parts.items()],
    }


def plan_price(alone: Alone, kind: str, delta: float) -> dict[str, Any]:
    """Return the members of `app.reservations.schemas.PlanPriceBody`."""
    tight = IntervalBody.of(alone.tight).model_dump()
    return {"delta": delta, "tight": tight, "charged": alone.charged, "why": _WHY[kind]}


def room_for(path: Path, amounts: Amounts, delta: float) -> dict[str, Any]:
    """Return what a charge adds to the used epsilon, and how much epsilon is left, for the budget with the least room.

    Args:
        path: The budget and those above it. Each has its own numbers: a fuller budget has less left, and the same
            charge adds less to it.
        amounts: The charge.
        delta: The delta of epsilons if a filter has no delta of its own.
    """
    rooms = [_room(level, amounts, getattr(level.filter, "delta", delta)) for level in path]
    known = [(left - adds, adds, left) for adds, left in filter(None, rooms)]
    if len(known) < len(rooms):
        return {"adds": None, "left": None}
    _, adds, left = min(known)
    return {"adds": float(from_nano(adds)), "left": float(from_nano(left))}


def _room(budget: BudgetState, amounts: Amounts, delta: float) -> tuple[int, int] | None:
    """Return what is added and what is left, in nano-units; None if no finite epsilon follows."""
    totals = budget.used, budget.filter.add(budget.used, amounts)
    before, after = (budget.filter.epsilon_at(total, delta) for total in totals)
    limit = budget.filter.limit_epsilon_at(delta)
    if before is None or after is None or limit is None:
        return None
    used = to_nano_up(exact(before))
    return max(0, to_nano_up(exact(after)) - used), max(0, to_nano_down(exact(limit)) - used)


def delta_of(budget_filter: PrivacyFilter, report_delta: float | None) -> float | None:
    """Return the delta at which prices are stated: the filter's own, else that of the budget's reports."""
    return getattr(budget_filter, "delta", report_delta)
