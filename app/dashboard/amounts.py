"""The amounts of a budget as pages show them: one number in words, and the parts of a bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.dashboard.wording import at_least, at_most

#: The quantity in which each kind of filter states its limit, and which people therefore read.
READ = {
    "pure_dp": "epsilon",
    "approximate_dp": "epsilon",
    "approximate_gaussian_dp": "epsilon",
    "zcdp": "rho",
    "gaussian_dp": "mu",
    "renyi_dp": "epsilon",
}


def of_limit(budget: Mapping[str, Any], part: str) -> str:
    """Describe the use of a budget's limit in words; what is left is rounded down, the rest up.

    Args:
        budget: The budget, as the HTTP interface returns it.
        part: ``limit``, ``spent``, ``reserved`` or ``left``.

    >>> use = {"limit": 1.0, "spent": 0.1500000001, "reserved": 0.0, "left": 0.8499999999}
    >>> budget = {"filter": {"kind": "zcdp", "rho": 1.0}, "rho": use}
    >>> of_limit(budget, "spent"), of_limit(budget, "left")
    ('rho 0.150001', 'rho 0.849999')
    """
    kind = budget["filter"]["kind"]
    # For approximate_dp, the amounts in the budget's currency are shown beside epsilon.
    beside = budget["amounts"]["remaining" if part == "left" else part] if kind == "approximate_dp" else {}
    said = {**beside, READ[kind]: budget[READ[kind]][part]}
    return _in_words(budget["filter"], said, at_least if part == "left" else at_most)


def used_in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any]) -> str:
    """Return an amount that is charged, held or allowed in words, rounded up.

    >>> used_in_words({"kind": "zcdp", "rho": 1.0}, {"rho": 0.0400000001})
    'rho 0.0400001'
    >>> used_in_words({"kind": "renyi_dp", "epsilon": 8, "delta": 1e-6}, {"epsilon": 2.25, "orders": []})
    'epsilon 2.25 at delta 1e-6'
    """
    return _in_words(filter_, amount, at_most)


def left_in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any]) -> str:
    """Return the remaining amount in words, rounded down.

    >>> left_in_words({"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6}, {"epsilon": 1.20466477, "delta": 7e-7})
    'epsilon 1.20466, delta 7e-7'
    """
    return _in_words(filter_, amount, at_least)


def back_in_words(back: Mapping[str, float]) -> str:
    """Describe the amount that came back for steps never taken, rounded down, and the cost of returning it, rounded up.

    >>> back_in_words({"mu_squared": 0.03321456789, "failure_delta": 1e-8})
    'mu squared 0.0332145 came back, for delta 1e-8'
    """
    spent = f", for delta {at_most(back['failure_delta'])}" if back["failure_delta"] else ""
    return f"mu squared {at_least(back['mu_squared'])} came back{spent}"


def segments(share: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return the name, the beginning and the width in per cent of each part of a bar, which ends at the limit.

    Args:
        share: The shares of a budget, as the HTTP interface returns them.

    >>> segments({"used": 1.25, "spent": 0.5, "started": 0.25, "pending": 0.5})
    [('spent', 0.0, 50.0), ('started', 50.0, 25.0), ('pending', 75.0, 25.0)]
    """
    found, begins = [], 0.0
    for name in ("spent", "started", "pending"):
        width = min(share[name], 1.0 - begins)
        found.append((name, round(100 * begins, 2), round(100 * width, 2)))
        begins += width
    return found


def _in_words(filter_: Mapping[str, Any], amount: Mapping[str, Any], write: Callable[[float | None], str]) -> str:
    kind = filter_["kind"]
    field = READ[kind]
    said = f"{field} {write(amount[field])}"
    if kind in ("renyi_dp", "approximate_gaussian_dp"):
        return f"{said} at delta {at_most(filter_['delta'])}"
    if kind == "approximate_dp":
        return f"{said}, delta {write(amount['delta'])}"
    return said


FILTERS = {
    "of_limit": of_limit,
    "used_in_words": used_in_words,
    "left_in_words": left_in_words,
    "back_in_words": back_in_words,
    "segments": segments,
}
