"""The charts of a calibration: what its steps cost, what other targets need, and what an attacker can still do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from app.dashboard.asking import ask
from app.dashboard.axes import Scale
from app.dashboard.charts import Axis, Chart, Level, Mark, Series, line_chart
from app.dashboard.wording import at_least, at_most, words

#: The delta at which epsilon is shown if the target has no delta.
DELTA = 1e-5
_POINTS_OF_STEPS = 12
_POINTS_OF_TRADE_OFF = 25
#: The factors by which the target is multiplied to get the other targets of a chart.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: The fields that may be varied; the first of them that a target has is varied.
_VARIED = ("epsilon", "rho", "mu", "advantage", "tpr", "bayes_risk")
#: The largest meaningful value of these fields: a target above it promises nothing.
_MOST = {"advantage": 1.0, "tpr": 1.0, "bayes_risk": 0.5}

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A chart with facts beside it, or the reason why there is no chart."""

    chart: Chart | None
    reason: str = ""
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Kind:
    """A chart by its name in addresses: its title while it is being drawn, and the function that draws it."""

    title: str
    draw: Callable[[Request, Body, Body], Awaitable[Drawn]]


def error_over_bands(answer: Body) -> Chart | None:
    """Draw how the error depends on the number of bands; None if the noise is independent or was given."""
    rows = answer.get("alternatives", [])
    if len(rows) < 2:
        return None
    kinds = list(dict.fromkeys(row["sampling"] for row in rows))
    chosen = next(row for row in rows if row["is_chosen"])
    than = "" if chosen["ratio"] is None else f", {at_most(chosen['ratio'])} times that of independent noise"
    return line_chart(
        "Error over bands",
        "The error of the sums that training follows, with the least noise for the target. With "
        f"{chosen['bands']} bands it is {at_most(chosen['error'])} contribution bounds{than}.",
        Axis("bands", Scale.LOGARITHMIC),
        Axis("error, in contribution bounds", Scale.LOGARITHMIC),
        [
            Series(words(kind), [(row["bands"], row["error"]) for row in rows if row["sampling"] == kind])
            for kind in kinds
        ],
        marks=[Mark("chosen", chosen["bands"], chosen["error"])],
    )


async def epsilon_over_steps(request: Request, body: Body, answer: Body) -> Drawn:
    """Draw the cost of the first steps of the plan against the number of these steps."""
    events = answer["events"]
    total = sum(event["count"] for event in events)
    if total < 2:
        return Drawn(None, "The plan is charged as one event, so no part of the plan has a cost by itself.")
    delta = answer["achieved"].get("delta")
    delta = delta if isinstance(delta, float) else body["target"].get("delta", DELTA)
    places = sorted({max(1, round(total * k / _POINTS_OF_STEPS)) for k in range(1, _POINTS_OF_STEPS + 1)})
    points: list[tuple[float, float | None]] = [(0, 0.0)]
    for place in places:
        found = await ask(
            request,
            "POST",
            "/v1/account",
            body={
                "events": first_steps(events, place),
                "neighboring_relation": answer["convention"]["neighboring_relation"],
                "delta": delta,
            },
        )
        if not found.is_good:
            return Drawn(None, f"No chart: {found.body['detail']}")
        points.append((place, found.body["epsilon"]["upper"]))
    target = body["target"].get("epsilon")
    last = points[-1][1]
    cost = "has no finite bound" if last is None else f"costs at most {at_most(last)}"
    chart = line_chart(
        "Epsilon over steps",
        f"Epsilon at delta {at_most(delta)} of the first steps of the plan; all {total} steps: it {cost}.",
        Axis("steps", from_zero=True),
        Axis(f"epsilon at delta {at_most(delta)}", from_zero=True),
        [Series("epsilon", points)],
        levels=[Level(f"target {at_most(target)}", target)] if isinstance(target, int | float) else [],
    )
    return Drawn(chart)


async def solution_over_target(request: Request, body: Body, answer: Body) -> Drawn:
    """Draw the solution for other targets, or the epsilon or delta of other noise."""
    solved_for = next(iter(answer["solution"]))
    target = body["target"]
    if solved_for in ("epsilon", "delta"):
        name, now, changed = "noise multiplier", body["noise_multiplier"], "noise_multiplier"
    else:
        changed = next(each for each in _VARIED if each in target)
        name, now = words(changed), target[changed]
    values = [now * factor for factor in _FACTORS if now * factor < _MOST.get(changed, float("inf"))]
    varied = {changed: values} if changed == "noise_multiplier" else {"target": {**target, changed: values}}
    found = await ask(request, "POST", "/v1/sweep", body={**body, **varied})
    if not found.is_good:
        return Drawn(None, f"No chart: {found.body['detail']}")
    points = [(row["value"], _number(row["solution"])) for row in found.body["rows"]]
    here = _number(answer["solution"])
    if sum(value is not None for _, value in points) < 2 or here is None:
        return Drawn(None, "No chart: other values of the target have no answer.")
    what = words(solved_for)
    at = f" at delta {at_most(target['delta'])}" if changed == "epsilon" and "delta" in target else ""
    chart = line_chart(
        f"{what.capitalize()} over {name}",
        f"The {what} that is found for other values of {name}{at}; {at_most(here)} at {at_most(now)}.",
        Axis(f"{name}{at}", Scale.LOGARITHMIC),
        Axis(what, Scale.LOGARITHMIC),
        [Series(what, points)],
        marks=[Mark("here", float(now), here)],
    )
    return Drawn(chart)


async def trade_off(request: Request, body: Body, answer: Body) -> Drawn:
    """Draw the errors that a test for one record must make."""
    asked = {
        "events": answer["events"],
        "neighboring_relation": answer["convention"]["neighboring_relation"],
        "delta": body["target"].get("delta", DELTA),
        "curve": {"points": _POINTS_OF_TRADE_OFF},
        "attack_risk": {"fpr": [0.01], "prior": [0.5]},
    }
    found = await ask(request, "POST", "/v1/account", body=asked)
    if not found.is_good:
        return Drawn(None, f"No chart: {found.body['detail']}")
    rates = found.body["curve"]["trade_off"]
    points = [(each["false_positive_rate"], each["false_negative_rate"]["lower"]) for each in rates]
    chart = line_chart(
        "What an attacker is left with",
        "The least false negative rate of any test whether a record is in the data, whatever the test knows.",
        Axis("false positive rate", written=at_least),
        Axis("false negative rate, at least", from_zero=True, written=at_least),
        [Series("this plan", points), Series("guessing", [(0.0, 1.0), (1.0, 0.0)])],
    )
    return Drawn(chart, facts=_risks(found.body["attack_risk"]))


def _risks(risk: Body) -> tuple[tuple[str, str], ...]:
    """Describe in words the success of the best attack on one record."""
    [at_one_percent], [even] = risk["true_positive_rates"], risk["bayes_risks"]
    advantage, right = risk["advantage"]["upper"], even["success_probability"]["upper"]
    return (
        ("true positive rate minus false positive rate (the advantage)", f"at most {at_most(advantage)}"),
        ("members found, where 1 % of others are taken for members", _percent(at_one_percent["tpr"]["upper"])),
        ("right guesses, where a record is in the data with probability one half", _percent(right)),
    )


def _percent(rate: float) -> str:
    return f"at most {at_most(min(100.0, 100.0 * rate))} %"


def first_steps(events: Sequence[Body], count: int) -> list[Body]:
    """Return the first steps of a plan.

    >>> first_steps([{"mechanism": 1, "count": 3}, {"mechanism": 2, "count": 4}], 5)
    [{'mechanism': 1, 'count': 3}, {'mechanism': 2, 'count': 2}]
    """
    taken: list[Body] = []
    for event in events:
        if count <= 0:
            break
        taken.append({**event, "count": min(event["count"], count)})
        count -= event["count"]
    return taken


def _number(solution: Body | None) -> float | None:
    """Return the solved number; if there are several noise scales, the largest."""
    if solution is None:
        return None
    value = next(iter(solution.values()))
    return float(max(value)) if isinstance(value, list) else float(value)


#: The charts, by their names in addresses.
CHARTS: Mapping[str, Kind] = {
    "steps": Kind("Epsilon over steps", epsilon_over_steps),
    "targets": Kind("Other targets", solution_over_target),
    "trade-off": Kind("What an attacker is left with", trade_off),
}
