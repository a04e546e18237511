"""Curves of `/v1/account`: epsilon over delta, or delta over epsilon, around the requested value; and the trade-off
curve."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.trade_off import false_positive_rates, largest_useful_epsilon, trade_off
from app.evaluation import Evaluation
from app.privacy.account import CurveBody, DeltaAtEpsilon, EpsilonAtDelta, TradeOffPoint
from app.wire.answers import IntervalBody

#: A curve reaches from the requested delta divided by this factor to the requested delta times this factor.
REACH = 1000.0
SMALLEST_DELTA, LARGEST_DELTA = 1e-30, 0.5
#: The range of deltas that is shown if delta 0 is requested, since a logarithmic scale cannot show 0.
DELTAS_WITHOUT_A_CENTRE = (1e-12, 1e-2)
#: With fewer nodes, a trade-off curve of few points would be loose.
FEWEST_NODES = 33
#: Epsilons at which delta is smaller than this hardly matter to the trade-off curve.
NEGLIGIBLE_DELTA = 1e-10

_PLACE = ("curve", "points")


def curve(evaluation: Evaluation, field: str, asked: Sequence[float], points: int) -> CurveBody:
    """Return the curves around the values ``asked`` of ``field`` ("delta" or "epsilon"), with ``points`` points
    each."""
    rates = _trade_off(evaluation, points)
    if field == "delta":
        deltas = deltas_around(asked, points)
        answers = evaluation.epsilons(deltas, *_PLACE)
        epsilons = [
            EpsilonAtDelta(delta=delta, epsilon=IntervalBody.of(found.value))
            for delta, found in zip(deltas, answers, strict=True)
        ]
        return CurveBody(epsilon_over_delta=epsilons, trade_off=rates)
    places = epsilons_around(asked, points)
    found_deltas = evaluation.deltas(places, *_PLACE)
    return CurveBody(
        delta_over_epsilon=[
            DeltaAtEpsilon(epsilon=epsilon, delta=IntervalBody.of(found.value))
            for epsilon, found in zip(places, found_deltas, strict=True)
        ],
        trade_off=rates,
    )


def deltas_around(asked: Sequence[float], points: int) -> list[float]:
    """Return deltas around the requested ones, at equal ratios.

    >>> [float(f"{delta:.3g}") for delta in deltas_around([1e-5], 3)]
    [1e-08, 1e-05, 0.01]
    """
    positive = [delta for delta in asked if delta > 0.0]
    low, high = DELTAS_WITHOUT_A_CENTRE
    if positive:
        low = max(min(positive) / REACH, SMALLEST_DELTA)
        high = max(min(max(positive) * REACH, LARGEST_DELTA), 2.0 * low)
    step = math.log(high / low) / (points - 1)
    return [min(low * math.exp(k * step), LARGEST_DELTA) for k in range(points)]


def epsilons_around(asked: Sequence[float], points: int) -> list[float]:
    """Return epsilons around the requested ones, at equal distances.

    >>> epsilons_around([1.0], 3)
    [0.0, 1.0, 2.0]
    """
    largest = 2.0 * max(asked) or 1.0
    return [largest * k / (points - 1) for k in range(points)]


def _trade_off(evaluation: Evaluation, points: int) -> list[TradeOffPoint]:
    [reach] = evaluation.epsilons([NEGLIGIBLE_DELTA], *_PLACE)
    largest = min(max(reach.value.upper, 1e-9), largest_useful_epsilon())
    nodes = max(points, FEWEST_NODES)
    epsilons = [largest * k / (nodes - 1) for k in range(nodes)]
    deltas = [found.value for found in evaluation.deltas(epsilons, *_PLACE)]
    rates = false_positive_rates(points)
    return [
        TradeOffPoint(false_positive_rate=rate, false_negative_rate=IntervalBody.of(found))
        for rate, found in zip(rates, trade_off(epsilons, deltas, rates), strict=True)
    ]
