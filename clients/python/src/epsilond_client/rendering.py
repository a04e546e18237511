"""The display of answers: one line for `repr`, and a table for notebooks.

Tables escape all text, since names and purposes are typed by people. Neither form shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from html import escape
from typing import Any

#: Fields that only the answer that made them contains. No rendering shows them, since renderings end up in logs and
#: saved notebooks.
SECRET = frozenset({"token", "secret"})
INTERVAL = frozenset({"lower", "estimate", "upper"})

#: The limits on what a table shows of a text, of a list, and of nested documents.
_LONGEST_TEXT, _LONGEST_LIST, _DEEPEST = 300, 10, 3
#: The quantities in which a budget may state its limit; one of them has a value.
_QUANTITIES = ("epsilon", "rho", "mu")
#: The parts of a card that readers look for first; the rest is folded.
_FIRST_OF_A_CARD = ("achieved", "privacy_unit", "neighbors", "algorithm", "data", "scores", "charge", "plan_hash")


def line_of(kind: str, fields: Mapping[str, Any]) -> str:
    """Return the fields that fit a line: numbers, texts and intervals.

    >>> line_of("Answer", {"epsilon": {"lower": 1.0, "estimate": 1.1, "upper": 1.2}, "delta": 1e-5, "events": [{}]})
    'Answer(epsilon=[1.0, 1.2], delta=1e-05, events=<1>)'
    """
    return f"{kind}({', '.join(f'{name}={_brief(value)}' for name, value in _shown(fields).items())})"


def line_of_calibration(fields: Mapping[str, Any]) -> str:
    """Return a line with the solution, its certified guarantee, and the plan.

    >>> achieved = {"method": "m", "epsilon": {"lower": 2.9, "estimate": 2.95, "upper": 2.999}, "delta": 1e-5}
    >>> line_of_calibration({"solution": {"noise_multiplier": 0.8256}, "achieved": achieved, "plan_hash": "e1137eb7a0"})
    'Calibration(noise_multiplier=0.8256, epsilon <= 2.999 at delta 1e-05, plan e1137eb7...)'
    """
    try:
        parts = [f"{name}={_brief(value)}" for name, value in fields["solution"].items()]
        achieved = {name: value for name, value in fields["achieved"].items() if name not in ("method", "error_budget")}
        found = [name for name, value in achieved.items() if isinstance(value, Mapping)] or list(achieved)[:1]
        given = [f"{name} {value!r}" for name, value in achieved.items() if name not in found]
        parts.append(
            " and ".join(_bound(name, achieved[name]) for name in found) + "".join(f" at {each}" for each in given)
        )
        return f"Calibration({', '.join(parts)}, plan {fields['plan_hash'][:8]}...)"
    except (LookupError, TypeError, AttributeError):
        return line_of("Calibration", fields)


def _bound(name: str, value: Any) -> str:
    """Return the decisive end of a certified number: the lower end for a Bayes risk, otherwise the upper end."""
    if not isinstance(value, Mapping):
        return f"{name} <= {value!r}"
    return f"{name} >= {value['lower']!r}" if name == "bayes_risk" else f"{name} <= {value['upper']!r}"


def line_of_budget(fields: Mapping[str, Any]) -> str:
    """Return a line with the name of a budget and the use of its limit.

    >>> used = {"limit": 3.0, "spent": 1.2, "reserved": 0.3, "left": 1.5, "delta": 1e-5}
    >>> line_of_budget({"id": "bud_1", "name": "digits", "epsilon": used})
    "<Budget 'digits' (bud_1): epsilon 1.2 of 3 spent, 0.3 reserved, 1.5 left, at delta 1e-05>"
    """
    said = usage(fields)
    if said is None:
        return line_of("Budget", fields)
    return f"<Budget {fields.get('name')!r} ({fields.get('id')}): {said}>"


def usage(fields: Mapping[str, Any]) -> str | None:
    """Return in one clause what is spent, reserved and left of a budget; None if the answer does not say. What is left
    is rounded down, what is spent is rounded up."""
    for quantity in _QUANTITIES:
        used = fields.get(quantity)
        if used:
            delta = f", at delta {used['delta']:g}" if used.get("delta") else ""
            overdrawn = "; overdrawn: nothing more is admitted" if fields.get("overdrawn") else ""
            spent, reserved = (_short(used[part], ROUND_CEILING) for part in ("spent", "reserved"))
            limit, left = (_short(used[part], ROUND_FLOOR) for part in ("limit", "left"))
            return f"{quantity} {spent} of {limit} spent, {reserved} reserved, {left} left{delta}{overdrawn}"
    return None


def _short(amount: float, rounding: str) -> str:
    """Return an amount with six digits, rounded to the safe side.

    >>> _short(0.10000000001, ROUND_CEILING), _short(0.89999999999, ROUND_FLOOR)
    ('0.100001', '0.899999')
    """
    return f"{float(Context(prec=6, rounding=rounding).create_decimal(repr(amount))):.6g}"


def table_of(title: str, fields: Mapping[str, Any]) -> str:
    """Return an HTML table of all fields that have a value. Nested documents become tables, too."""
    return f"<table><caption>{escape(title)}</caption>{_rows(_shown(fields), 1)}</table>"


def page_of_card(fields: Mapping[str, Any]) -> str:
    """Return a privacy card as HTML: the statement, the most important facts, what is not covered, and the rest
    folded."""
    first = {name: fields[name] for name in _FIRST_OF_A_CARD if fields.get(name) is not None}
    rest = {
        name: value for name, value in _shown(fields).items() if name not in (*first, "statement", "caveats", "run_id")
    }
    title = f"Privacy card of {fields.get('run_id')}"
    caveats = "".join(f"<li>{escape(str(each))}</li>" for each in fields.get("caveats") or ())
    return (
        f"<p><strong>{escape(str(fields.get('statement', '')))}</strong></p>"
        f"{table_of(title, first)}"
        f"<p>What the guarantee does not cover:</p><ul>{caveats}</ul>"
        f"<details><summary>All other fields</summary>{table_of('', rest)}</details>"
    )


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in SECRET and value is not None}


def _brief(value: Any) -> str:
    """Return a value in a few characters: an interval by its ends, anything larger by its number of parts."""
    if isinstance(value, Mapping):
        return f"[{value['lower']}, {value['upper']}]" if value.keys() == INTERVAL else f"{{{len(value)}}}"
    return f"<{len(value)}>" if isinstance(value, list | tuple) else repr(value)


def _rows(fields: Mapping[str, Any], depth: int) -> str:
    return "".join(
        f'<tr><th style="text-align:left">{escape(str(name))}</th>'
        f'<td style="text-align:left">{_cell(value, depth)}</td></tr>'
        for name, value in fields.items()
    )


def _cell(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if value.keys() == INTERVAL:
            return escape(f"{value['lower']} to {value['upper']}")
        shown = _shown(value)
        return f"<table>{_rows(shown, depth + 1)}</table>" if depth < _DEEPEST else escape(f"{len(shown)} fields")
    if isinstance(value, list | tuple):
        return _items(value, depth)
    text = str(value)
    return escape(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ...")


def _items(values: Sequence[Any], depth: int) -> str:
    cells: Iterable[str] = (_cell(each, depth) for each in values[:_LONGEST_LIST])
    more = len(values) - _LONGEST_LIST
    return "<br>".join([*cells, *([f"... and {more} more"] if more > 0 else [])])
