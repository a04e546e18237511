"""Wording of numbers and times on pages. Privacy losses are rounded up, remaining amounts down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

_DIGITS = 6
_KINDS = {
    "exact": "as the paper has it",
    "derived": "proved here, in the paper's order",
    "order": "known up to a constant, for which 1 is put",
}
#: Names that the literature spells differently from the service's identifiers.
_NAMES = {
    "pure_dp": "pure DP",
    "approximate_dp": "approximate DP",
    "zcdp": "zCDP",
    "gaussian_dp": "Gaussian DP",
    "approximate_gaussian_dp": "approximate Gaussian DP",
    "renyi_dp": "Rényi DP",
    "poisson": "Poisson batches",
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "auc": "AUC",
    "r_squared": "R²",
}


def at_most(value: float | None) -> str:
    """Return an upper bound with six digits.

    >>> at_most(0.94686680012), at_most(8), at_most(1e-05), at_most(None)
    ('0.946867', '8', '1e-5', 'unbounded')
    """
    return "unbounded" if value is None else _rounded(value, ROUND_CEILING)


def at_least(value: float | None) -> str:
    """Return a lower bound with six digits.

    >>> at_least(0.94686680012), at_least(None)
    ('0.946866', 'unbounded')
    """
    return "unbounded" if value is None else _rounded(value, ROUND_FLOOR)


def percent(share: float) -> str:
    """Return a used share, rounded up.

    >>> percent(0.48), percent(0.9993001), percent(0.0)
    ('48 %', '99.94 %', '0 %')
    """
    return f"{_rounded(100 * share, ROUND_CEILING, digits=4)} %"


def moment(text: str | None) -> str:
    """Return a moment as people read it.

    >>> moment("2026-01-02T03:04:05Z"), moment(None)
    ('2026-01-02 03:04:05 UTC', '')
    """
    return "" if text is None else text.replace("T", " ").replace("Z", " UTC")


def words(name: str) -> str:
    """Return the name of a field or of a kind as words.

    >>> words("noise_multiplier"), words("renyi_dp")
    ('noise multiplier', 'Rényi DP')
    """
    return _NAMES.get(name) or name.replace("_", " ")


def told_apart(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return names by ids. If several share a name, the end of the id is added to each.

    >>> told_apart([{"id": "bud_0001", "name": "a"}, {"id": "bud_0002", "name": "b"}, {"id": "bud_0003", "name": "a"}])
    {'bud_0001': 'a (…0001)', 'bud_0002': 'b', 'bud_0003': 'a (…0003)'}
    """
    names = {each["id"]: each["name"] for each in items}
    common = Counter(names.values())
    return {id: name if common[name] == 1 else f"{name} (…{id[-4:]})" for id, name in names.items()}


def number(value: float | list[float] | None, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return a number that is no bound, or the ends of a list of such numbers.

    >>> number(0.1 + 0.2), number([1.0, 0.5, 0.25]), number([2.0, 2.0]), number(None)
    ('0.3', '1 … 0.25 (3 values)', '2 (2 values)', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, list):
        ends = dict.fromkeys(number(each, rounding) for each in (value[0], value[-1])) if value else {"none": None}
        return f"{' … '.join(ends)} ({len(value)} values)"
    return _rounded(value, rounding)


def recommended(item: Mapping[str, Any]) -> str:
    """Return the value of a recommended number. Noise and bounds are rounded up, so that it is safe to copy them.

    >>> recommended({"name": "noise_multiplier", "value": 0.12345611})
    '0.123457'
    """
    is_up = item["name"].startswith("noise") or item["name"].endswith("_bound")
    return number(item["value"], ROUND_CEILING if is_up else ROUND_HALF_EVEN)


def kind_of_formula(kind: str) -> str:
    """Return in words how a formula is known.

    >>> kind_of_formula("exact")
    'as the paper has it'
    """
    return _KINDS[kind]


def _rounded(value: float, rounding: str, digits: int = _DIGITS) -> str:
    rounded = Context(prec=digits, rounding=rounding).create_decimal(Decimal(str(value))).normalize()
    exponent = rounded.adjusted()
    if rounded and not -4 <= exponent <= 6:
        return f"{rounded:E}".replace("E+", "e").replace("E", "e")
    return f"{rounded:f}"


FILTERS = {
    "at_most": at_most,
    "at_least": at_least,
    "moment": moment,
    "percent": percent,
    "words": words,
    "number": number,
    "recommended": recommended,
    "kind_of_formula": kind_of_formula,
}
