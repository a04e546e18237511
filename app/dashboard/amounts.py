"""The amounts of a budget as pages show them: one number in words, and shares of the limit for a bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.dashboard.wording import at_least, at_most

#: The field of an amount that people read, by the kind of filter.
READ = {
    "pure_dp": "epsilon",
    "approximate_dp": "epsilon",
    "approximate_gaussian_dp": "epsilon",
    "zcdp": "rho",
    "gaussian_dp": "mu",
    "renyi_dp": "epsilon",
}


#: The fields that add up, where these are others; each must stay within its limit.
_ADDED = {
    "gaussian_dp": ("mu_squared",),
    "approximate_dp": ("epsilon", "delta"),
    "approximate_gaussian_dp": ("mu_squared", "failure_delta"),
}


@dataclass(frozen=True)
class Shares:
    """What became of a limit, each as a part of it; together they may be more than one where it is overdrawn.

    Attributes:
        spent: Committed.
        started: Held, and noise may have been drawn.
        pending: Held by what has not begun.
    """

    spent: float
    started: float
    pending: float

    @property
    def used(self) -> float:
        """All three."""
        return self.spent + self.started + self.pending

    @property
    def segments(self) -> list[tuple[str, float, float]]:
        """Name, beginning and width in per cent of each part of the bar, which ends at the limit."""
        found, begins = [], 0.0
        for name, share in (("spent", self.spent), ("started", self.started), ("pending", self.pending)):
            width = min(share, 1.0 - begins)
            found.append((name, round(100 * begins, 2), round(100 * width, 2)))
            begins += width
        return found


def used_in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any]) -> str:
    """An amount that is spent, held or allowed, rounded up.

    >>> used_in_words({"kind": "zcdp", "rho": 1.0}, {"rho": 0.0400000001})
    'rho 0.0400001'
    >>> used_in_words({"kind": "renyi_dp", "epsilon": 8, "delta": 1e-6}, {"epsilon": 2.25, "orders": []})
    'epsilon 2.25 at delta 1e-6'
    """
    return _in_words(filter_, amount, at_most)


def left_in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any]) -> str:
    """What is left, rounded down.

    >>> left_in_words({"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6}, {"epsilon": 1.20466477, "delta": 7e-7})
    'epsilon 1.20466, delta 7e-7'
    """
    return _in_words(filter_, amount, at_least)


def shares(budget: Mapping[str, Any]) -> Shares:
    """The parts of a budget's own limit. Of several amounts, the one of which the largest part is used.

    A Rényi filter admits what fits at one of its orders: the one with the most room counts. So does the pure epsilon of
    an approximate Gaussian filter, where it has more room than the other two amounts.
    """
    amounts = [budget[name] for name in ("limit", "spent", "started", "reserved", "remaining")]
    kind = budget["filter"]["kind"]
    if kind == "renyi_dp":
        room = amounts[-1]["epsilons"]
        best = max(range(len(room)), key=room.__getitem__)
        return _of(*(amount["epsilons"][best] for amount in amounts[:-1]))
    fields = _ADDED.get(kind, (READ[kind],))
    found = max((_of(*(amount[field] for amount in amounts[:-1])) for field in fields), key=lambda each: each.used)
    pure = [amount.get("pure_epsilon") for amount in amounts[:-1]]
    if kind != "approximate_gaussian_dp" or None in pure:
        return found
    return min(found, _of(*pure), key=lambda each: each.used)


def _of(limit: float, spent: float, started: float, reserved: float) -> Shares:
    if limit <= 0.0:
        return Shares(1.0, 0.0, 0.0)
    return Shares(spent / limit, started / limit, max(0.0, reserved - started) / limit)


def _in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any], write: Callable[[float | None], str]) -> str:
    kind = filter_["kind"]
    field = READ[kind]
    said = f"{field} {write(amount[field])}"
    if kind in ("renyi_dp", "approximate_gaussian_dp"):
        return f"{said} at delta {at_most(filter_['delta'])}"
    if kind == "approximate_dp":
        return f"{said}, delta {write(amount['delta'])}"
    return said


FILTERS = {"used_in_words": used_in_words, "left_in_words": left_in_words}
