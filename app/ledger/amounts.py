"""Amounts as the HTTP contract writes them: in the filter's own fields."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

from accounting.filters import PrivacyFilter
from accounting.units import from_nano
from app.ledger.states import BudgetState, Path, ReservationState, minus
from app.tables.states import Amounts

#: The share that is shown in place of an infinite one, when an amount is beyond what the filter counts.
MOST_SHARE = 1e9
#: Fields of a filter that are not numbers.
_WORDS = ("kind", "conversion")
#: The amounts that a filter counts, field by field.
FilterAmounts = dict[str, Any]


@lru_cache(maxsize=1024)
def _words(budget_filter: PrivacyFilter, amounts: Amounts) -> dict[str, Any]:
    return numbers(budget_filter.describe(amounts))


def amounts_in_words(budget_filter: PrivacyFilter, amounts: Amounts) -> dict[str, Any]:
    """Return the amounts in the filter's own fields, as numbers.

    >>> from accounting.filters import ZcdpFilter
    >>> amounts_in_words(ZcdpFilter(1.0), (250_000_000,))
    {'rho': 0.25}
    """
    return _words(budget_filter, amounts)


def given_back_in_words(budget_filter: PrivacyFilter, reservation: ReservationState) -> dict[str, Any] | None:
    """Describe what a commit gave back for an abandoned tail, and what that cost; None if it gave nothing back."""
    is_part = reservation.charged_events not in (None, reservation.events) and not reservation.corrected
    if reservation.charged is None or not is_part:
        return None
    back = minus(reservation.cost, reservation.charged)
    return (
        numbers(budget_filter.describe_given_back(back))
        if budget_filter.may_give_back(reservation.cost, back)
        else None
    )


def in_short(amount: Mapping[str, Any] | None) -> str:
    """Return an amount in words on one line; for a Renyi budget, the epsilon that it amounts to, without its orders.

    >>> in_short({"epsilon": 0.5, "orders": [2.0, 4.0], "epsilons": [0.25, 0.5]}), in_short(None)
    ('epsilon 0.5', '')
    """
    return ", ".join(f"{name} {value}" for name, value in (amount or {}).items() if not isinstance(value, list))


def remaining_in_words(path: Path) -> dict[str, Any]:
    """Describe what is left: the least over the budget and those above it, field by field and order by order."""
    if len(path) == 1:
        return numbers(path[0].filter.describe_remaining(path[0].used))
    described = [numbers(level.filter.describe_remaining(level.used)) for level in path]
    return {field: _least([each[field] for each in described]) for field in described[0]}


def limit_in_words(budget_filter: PrivacyFilter) -> dict[str, Any]:
    """Return the limit in the filter's own fields."""
    return numbers(budget_filter.describe_limit())


def used_of_limit(path: Path) -> dict[str, float]:
    """Return the use of a budget's limit, in the unit that it is stated in: the members of `UsedOfLimit`.

    The sum of ``spent`` and ``reserved`` is rounded up. ``left`` is rounded down, and is that of a budget above if less
    is left there.
    """
    budget = path[0]
    stated = budget.filter.stated
    spent, exposed, used = (stated(amounts) for amounts in (budget.spent, budget.exposed, budget.used))
    nano = {
        "limit": budget.filter.stated_limit,
        "spent": spent,
        "started": max(0, exposed - spent),
        "reserved": max(0, used - spent),
        "left": min(level.filter.left(level.used) for level in path),
    }
    return {name: float(from_nano(amount)) for name, amount in nano.items()}


def shares_of_limit(state: BudgetState) -> dict[str, float]:
    """Return which shares of a budget are spent and reserved: the members of `ShareBody`."""
    ends = [share_used(state.filter, amounts) for amounts in (state.spent, state.exposed, state.used)]
    spent, started, pending = (max(0.0, end - begins) for begins, end in pairwise([0.0, *ends]))
    return {"used": ends[-1], "spent": spent, "started": started, "pending": pending}


def share_used(budget_filter: PrivacyFilter, used: Amounts) -> float:
    """Return how full a budget is, as `PrivacyFilter.share_used`; `MOST_SHARE` where no amount is known.

    >>> from accounting.filters import ZcdpFilter
    >>> share_used(ZcdpFilter(1.0), (250_000_000,))
    0.25
    """
    return min(budget_filter.share_used(used), MOST_SHARE)


def numbers(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter's fields with its exact decimal strings as JSON numbers, at the top level and in lists."""
    return {key: value if key in _WORDS else _number(value) for key, value in amounts.items()}


def _number(value: Any) -> Any:
    if isinstance(value, str | Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return list(map(float, value))
    return value


def _least(values: list[Any]) -> Any:
    if isinstance(values[0], list):
        return [min(position) for position in zip(*values, strict=True)]
    return min(values)
