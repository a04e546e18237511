"""What a limit means for the people who are protected, and doubts about it, to show before a budget is opened for good.

Nothing is refused, because a limit that proves nothing may be right for invented rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from accounting.best_guess import under_epsilon, under_mu, under_rho

#: An attacker whose advantage is at least this much distinguishes nearly always, so such a limit means nothing in
#: practice. Epsilon reaches it at 9.2, mu at 7.4 and rho at 7.8.
_NOTHING_IS_PROVED = 0.9999
#: One record in a thousand.
_LARGE_DELTA = 1e-3


def best_guess(limit: Mapping[str, object], unit: str = "unit") -> str | None:
    """Return a sentence about what a limit lets an attacker guess; None if its amounts are not numbers yet.

    Args:
        limit: The amounts of a filter, numbers or decimals as text.
        unit: The privacy unit of the budget.

    >>> best_guess({"epsilon": "2", "delta": "1e-5"}, "person")[-72:]
    'guesses right in at most 88.1 % of cases. Before any release it is 50 %.'
    """
    share = _share(limit)
    if share is None:
        return None
    return (
        f"Once this limit is used up: somebody who knows everything in the data except whether one {unit} took part, "
        f"and finds both equally likely, guesses right in at most {in_per_cent(share)} of cases. Before any release it "
        "is 50 %."
    )


def doubts(limit: Mapping[str, object]) -> list[str]:
    """Return doubts about a limit as sentences; none if there are none.

    Args:
        limit: The amounts of a filter, numbers or decimals as text; what is not a number is left to the service.

    >>> [each.partition(":")[0] for each in doubts({"epsilon": 500, "delta": "0.01"})]
    ['With epsilon 500 the limit proves nothing', 'A delta of 0.01 is large']
    >>> doubts({"rho": "0.5"})
    []
    """
    found = []
    share = _share(limit)
    if share is not None and share >= _NOTHING_IS_PROVED:
        name = next(each for each in ("epsilon", "mu", "rho") if _amount(limit, each) is not None)
        found.append(
            f"With {name} {limit[name]} the limit proves nothing: an attacker may be right every time about who took "
            f"part."
        )
    delta = _amount(limit, "delta")
    if delta is not None and _LARGE_DELTA <= delta <= 1:
        found.append(
            f"A delta of {limit['delta']} is large: one record in {int(1 / delta)} may be published as it is. "
            "Choose far less than one over the number of records."
        )
    return found


def right_guesses(limit: Mapping[str, object]) -> str | None:
    """Return the share of cases in which an attacker may guess membership correctly, once the limit is used up; None if
    its amounts are not numbers.

    >>> right_guesses({"epsilon": "2", "delta": "1e-5"})
    '88.1 %'
    """
    share = _share(limit)
    return None if share is None else in_per_cent(share)


def same_name(name: str) -> str:
    """Return the doubt about a second budget of the same name."""
    return f"There is a budget with the name {name} already. Commands that use this name will ask for an id."


def in_per_cent(share: float) -> str:
    """Return a share in per cent, rounded up to a tenth.

    >>> in_per_cent(0.95257), in_per_cent(0.5), in_per_cent(1.0)
    ('95.3 %', '50.0 %', '100.0 %')
    """
    return f"{Decimal(100 * share).quantize(Decimal('0.1'), ROUND_CEILING)} %"


def _share(limit: Mapping[str, object]) -> float | None:
    epsilon, mu, rho = (_amount(limit, name) for name in ("epsilon", "mu", "rho"))
    if epsilon is not None:
        return under_epsilon(epsilon, min(1.0, _amount(limit, "delta") or 0.0))
    if mu is not None:
        return under_mu(mu)
    return None if rho is None else under_rho(rho)


def _amount(limit: Mapping[str, object], name: str) -> float | None:
    """Return the amount if it is a finite number that is not negative."""
    try:
        value = float(str(limit.get(name)))
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
