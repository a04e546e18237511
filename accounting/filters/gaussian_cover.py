"""Finds how large a Gaussian covers a list of events when it may fail: the price in approximate Gaussian DP.

G_m is the pair N(sqrt m, 1), N(0, 1). With probability d the *failing Gaussian* F(m, d) reveals which of the two
hypotheses holds; otherwise it shows a draw of G_m. Its profile is d + (1 - d) delta_G(e; m), in both orders. The rate r
is a delta per unit of mu squared. The *cover* of a list is the smallest m with

    H(e) <= d + (1 - d) delta_G(e; m),   d = r m,   for every e >= 0 and in both directions,                      (1)

where H is the profile of the list. If (1) holds for e >= 0 in both directions, it holds for every real e.

**Between nodes.** Upper bounds of H are known at some epsilons, the nodes. In x = exp(e), H is convex and decreasing.
So it is below the chord from one node to the next, and below the last node's bound beyond that node. The right side of
(1) is convex in x, too, and its derivative is -(1 - d) Phi(-e / mu - mu / 2). It comes nearest to the chord where this
derivative is the chord's slope, and it is above its tangent there. So one comparison proves a whole segment.

**Where the nodes are.** At every node, (1) requires a certain m, and no cover is smaller. Segments that require more
than the largest of these by two ten-thousandths are divided further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import scipy

from accounting.accountant import delta_for_epsilon, epsilons_for_deltas, estimate_epsilon
from accounting.composition.gaussian_dp import delta_of_gaussian, mu_of_gaussian
from accounting.events import Event
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED

#: The number of nodes to begin with and in all, and the pieces into which a segment is divided at once.
_FIRST_NODES, _MOST_NODES, _MOST_PIECES = 6, 400, 2
#: The relative amount by which a cover may exceed the largest m that a node requires.
TOLERANCE = 2e-4
#: The number of guesses, and a multiple. Each guess is the m that is required by a node whose delta is this multiple of
#: the delta of the cover.
_GUESSES, _GUESSED_SHARE = 6, 3.0
_LEAST_DELTA, _MOST_DELTA = 1e-30, 1.0 - 1e-13
_ULP = 2.0**-52
#: Relative errors of a chord, of its slope and of logarithms of probabilities.
_ROUNDING = 32.0 * _ULP
_NEWTON_STEPS = 30
#: The exponential of a number above this one could overflow.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Cover:
    """The cost of a list, in nano-units of mu squared.

    Attributes:
        least: No cover is smaller.
        most: (1) is proved for it, with the delta that `failure_of` gives.
    """

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class _Node:
    """Bound the profile: at most ``delta`` at ``epsilon``, and at least ``least_delta`` at ``least_epsilon``."""

    epsilon: float
    delta: float
    least_epsilon: float
    least_delta: float


def failure_of(amount: int, rate: Fraction) -> int:
    """Return the delta that goes with a cover, in atto-units, rounded down.

    Args:
        amount: mu squared in nano-units.
        rate: delta per unit of mu squared.

    >>> failure_of(2_000_000_000, Fraction(1, 10**7))
    200000000000
    """
    return amount * rate.numerator * (ATTO // NANO) // rate.denominator


def cover(events: Sequence[Event], relation: NeighboringRelation, rate: Fraction) -> Cover:
    """Find the cover of a list of events, up to `TOLERANCE`.

    Args:
        events: Events that are fixed before the first output is seen.
        relation: The neighbouring relation.
        rate: delta per unit of mu squared, positive.

    Returns:
        Both ends; ``most`` is `SATURATED` if none is proved.

    Guarantees:
        covers: (1) holds at ``most``.
        no_attained_pair_is_above: at ``least``, and so at every cover, (1) holds for what the list attains.

    Raises:
        Unsupported: If a scheme is not accounted under the relation.

    Source: this project, `docs/concepts/gaussian_filter.md`.

    >>> from accounting.events import Gaussian, Poisson
    >>> events = [Event(Gaussian(4.0), Poisson(0.01), 10_000)]
    >>> found = cover(events, NeighboringRelation.ADD_OR_REMOVE_ONE, Fraction(1, 10**5))
    >>> 0.06 < found.least / NANO <= found.most / NANO < 0.07
    True
    """
    top = delta_for_epsilon(events, relation, 0.0).value
    if top.upper == 0.0:
        return Cover(0, 0)
    if top.upper > _MOST_DELTA:
        return Cover(0, SATURATED)
    if top.upper * ATTO < failure_of(1, rate):
        return Cover(0, 1)
    nodes, least = _searched(events, relation, rate, top)
    attained = 0.0
    for node in nodes:
        attained = _asked_for(node.least_epsilon, node.least_delta, float(rate), attained)
    return Cover(math.floor(attained * (1.0 - 1e-9) * NANO), _proved(nodes, rate, least))


def nodes_of_cover(
    events: Sequence[Event], relation: NeighboringRelation, rate: Fraction, amount: int
) -> list[tuple[float, float]]:
    """Return the fewest epsilons, with bounds of the profile there, that prove a cover.

    Args:
        events, relation, rate: As `cover`.
        amount: The cover, in nano-units of mu squared.

    Returns:
        Pairs (epsilon, delta), from epsilon 0 on; empty if the search finds no proof.
    """
    top = delta_for_epsilon(events, relation, 0.0).value
    failure = _failure_below(amount, rate)
    if top.upper <= failure:
        return [(0.0, top.upper)]
    if not 0.0 < top.upper <= _MOST_DELTA or failure >= 1.0:
        return []
    nodes, _ = _searched(events, relation, rate, top)
    mu = _mu_below(amount)
    last = next((index for index, node in enumerate(nodes) if node.delta <= failure), None)
    if last is None:
        return []
    kept, at = [nodes[0]], 0
    while at < last:
        reached = (
            index
            for index in range(last, at, -1)
            if not math.isinf(nodes[index].epsilon) and _missing(nodes[at], nodes[index], failure, mu)[0] <= 0.0
        )
        found = next(reached, None)
        if found is None:
            return []
        at = found
        kept.append(nodes[at])
    return [(node.epsilon, node.delta) for node in kept]


def _searched(
    events: Sequence[Event], relation: NeighboringRelation, rate: Fraction, top: Interval
) -> tuple[list[_Node], float]:
    """Return nodes that prove a cover, and the largest m that one of them requires."""
    scale, least = float(rate), 0.0
    found = [_Node(0.0, top.upper, 0.0, top.lower)]
    nodes: list[_Node] = []
    settled: set[tuple[_Node, _Node]] = set()
    last = min(max(0.9 * scale * about(events, relation, rate), _LEAST_DELTA), 0.1 * top.upper)
    asked = [*_between(top.upper, last, _FIRST_NODES), last]
    while True:
        found += _at(events, relation, asked)
        nodes = _merged(nodes, found)
        for node in found:
            least = _asked_for(node.epsilon, node.delta, scale, least)
        if math.isinf(nodes[-1].epsilon):
            break
        asked, found = _divided(nodes, settled, scale, least), []
        if nodes[-1].delta > scale * least > 0.0:
            asked.append(0.99 * scale * least)
        if not asked or len(nodes) + len(asked) > _MOST_NODES:
            break
    return nodes, least


def about(events: Sequence[Event], relation: NeighboringRelation, rate: Fraction) -> float:
    """Estimate the cover of a list in units of mu squared, from a few estimates of epsilon. This is not a bound.

    Args:
        events, relation, rate: As `cover`.
    """
    delta, covered = 1e-6, 0.0
    for _ in range(_GUESSES):
        covered = _asked_for(estimate_epsilon(events, relation, delta), delta, float(rate), 0.0)
        wanted = min(max(_GUESSED_SHARE * float(rate) * covered, _LEAST_DELTA), 0.1)
        is_near = 0.9 < wanted / delta < 1.1
        delta = wanted
        if is_near:
            break
    return covered


def _between(high: float, low: float, pieces: int) -> list[float]:
    """Return deltas between two others, evenly spaced as quantiles of the normal law."""
    start, end = float(scipy.special.ndtri(high)), float(scipy.special.ndtri(low))
    found = [float(scipy.special.ndtr(start + (end - start) * index / pieces)) for index in range(1, pieces)]
    return [delta for delta in found if low < delta < high]


def _at(events: Sequence[Event], relation: NeighboringRelation, deltas: Sequence[float]) -> list[_Node]:
    answers = [answer.value for answer in epsilons_for_deltas(events, relation, deltas)]
    # A lower end of 0 proves nothing: the profile may be below delta everywhere.
    return [
        _Node(value.upper, delta, value.lower, delta if value.lower > 0.0 else 0.0)
        for value, delta in zip(answers, deltas, strict=True)
    ]


def _merged(nodes: list[_Node], found: list[_Node]) -> list[_Node]:
    """Return all nodes by epsilon, without those that an earlier one makes redundant."""
    kept: list[_Node] = []
    for node in sorted(nodes + found, key=lambda each: (each.epsilon, each.delta)):
        if not kept or node.delta < kept[-1].delta:
            kept.append(node)
    return kept


def _asked_for(epsilon: float, delta: float, rate: float, start: float) -> float:
    """Estimate the m that (1) requires if H is ``delta`` at ``epsilon``; return ``start`` if that is larger."""
    if not delta > 0.0 or math.isinf(epsilon) or (start > 0.0 and _right_side(epsilon, start, rate) >= delta):
        return start
    # Two upper bounds of m: the one with d = 0, and the one whose d is all of delta.
    most = min(mu_of_gaussian(epsilon, delta) ** 2, delta / rate)
    low, high = max(start, 0.0), most
    m = most
    for _ in range(_NEWTON_STEPS):
        value = _right_side(epsilon, m, rate)
        low, high = (m, high) if value < delta else (low, m)
        slope = _slope(epsilon, m, rate)
        before, m = m, m * math.exp(min(max((delta - value) / slope, -1.0), 1.0)) if slope > 0.0 else 0.5 * (low + high)
        if not low <= m <= high:
            m = 0.5 * (low + high)
        if abs(m - before) <= 1e-12 * before:
            break
    return max(start, m)


def _right_side(epsilon: float, m: float, rate: float) -> float:
    d = min(rate * m, 1.0)
    return d + (1.0 - d) * delta_of_gaussian(math.sqrt(m), epsilon, upward=False)


def _slope(epsilon: float, m: float, rate: float) -> float:
    """Return the derivative of (1)'s right side in log m."""
    mu, d = math.sqrt(m), rate * m
    a = epsilon / mu - 0.5 * mu
    return d * (1.0 - delta_of_gaussian(mu, epsilon, upward=False)) + (1.0 - d) * 0.5 * mu * math.exp(-0.5 * a * a) / (
        math.sqrt(2.0 * math.pi)
    )


def _divided(nodes: Sequence[_Node], settled: set[tuple[_Node, _Node]], rate: float, least: float) -> list[float]:
    """Return the deltas that divide the segments that require too much; the other segments are then settled."""
    m = max(least * (1.0 + 0.5 * TOLERANCE), math.ceil(least * NANO) / NANO)
    asked: list[float] = []
    for left, right in pairwise(nodes):
        if (left, right) in settled:
            continue
        missing, epsilon = _missing(left, right, min(rate * m, 1.0), math.sqrt(m))
        if missing <= 0.0:
            settled.add((left, right))
            continue
        excess = missing / max(_slope(epsilon, m, rate), 1e-300)
        pieces = min(_MOST_PIECES, 1 + math.ceil(math.sqrt(2.0 * excess / TOLERANCE)))
        asked += _between(left.delta, right.delta, pieces)
    return asked


def _missing(left: _Node, right: _Node, d: float, mu: float) -> tuple[float, float]:
    """Bound how far the chord is above (1)'s right side, and return where it is farthest, as an epsilon.

    Args:
        left, right: The ends of the chord.
        d, mu: The failing Gaussian's failure and mu, rounded down.
    """
    drop, width = left.delta - right.delta, right.epsilon - left.epsilon
    if width <= 0.0:
        return -1.0, left.epsilon
    # The slope of the chord in x, over 1 - d.
    log_slope = math.log(drop) - right.epsilon - math.log(-math.expm1(-width)) - math.log1p(-d) if d < 1.0 else 0.0
    nearest = -mu * (float(scipy.special.ndtri_exp(log_slope)) + 0.5 * mu) if log_slope < 0.0 else left.epsilon
    epsilon = min(max(nearest, left.epsilon), right.epsilon)
    part = math.exp(epsilon - right.epsilon) * (math.expm1(left.epsilon - epsilon) / math.expm1(-width))
    chord = left.delta - drop * part + _ROUNDING * left.delta
    value = (d + (1.0 - d) * delta_of_gaussian(mu, epsilon, upward=False)) * (1.0 - _ROUNDING)
    # How far the tangent of the difference falls inside the segment: 0 if its slope is exactly 0.
    place = -epsilon / mu - 0.5 * mu
    ratio = math.expm1(min(float(scipy.special.log_ndtr(place)) - log_slope, _LARGEST_EXPONENT))
    error = _ROUNDING * (1.0 + place * place + abs(log_slope))
    if epsilon == left.epsilon:
        falls = max(ratio, 0.0)
    elif epsilon == right.epsilon:
        falls = max(-ratio, 0.0)
    else:
        falls = abs(ratio)
    return chord - value + (falls + error) * drop, epsilon


def _proved(nodes: Sequence[_Node], rate: Fraction, start: float) -> int:
    """Return the first amount from ``start`` on, in growing steps, for which (1) is proved, in nano-units."""
    if math.isinf(nodes[-1].epsilon) or not start > 0.0:
        return SATURATED
    growth = 0.0
    while (amount := math.ceil(start * (1.0 + growth) * NANO)) < SATURATED:
        if _is_proved(nodes, amount, rate):
            return amount
        growth = max(0.1 * TOLERANCE, 2.0 * growth)
    return SATURATED


def _is_proved(nodes: Sequence[_Node], amount: int, rate: Fraction) -> bool:
    d, mu = _failure_below(amount, rate), _mu_below(amount)
    if d >= 1.0 or nodes[-1].delta > d:
        return False
    return all(_missing(left, right, d, mu)[0] <= 0.0 for left, right in pairwise(nodes))


def _failure_below(amount: int, rate: Fraction) -> float:
    failure = failure_of(amount, rate)
    return math.nextafter(failure / ATTO, 0.0) if failure else 0.0


def _mu_below(amount: int) -> float:
    return math.sqrt(amount / NANO) * (1.0 - 4.0 * _ULP)
