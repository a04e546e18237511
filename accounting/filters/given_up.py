"""Finds the worth of steps that a plan will never take: the largest Gaussian below them, up to a small failure.

A plan that is stopped early has paid for its tail, too. Let R be the product of the pairs of the steps that were not
taken. Let d be a probability, and let m be such that in *each* direction, for every e >= 0,

    delta_G(e; m) <= d + (1 - d) H(R; e).                                                                      (2)

Then R and a failure of d together dominate G_m. So the tail may be given up for m of mu squared, and d of the failures
is spent. A price is proved by the upper bounds of the larger direction; (2) is proved by the lower bounds of the
smaller one. A positive d is needed, because the loss of a sampled step is bounded on one side.

**Between nodes.** In x = exp(e) one direction's H is convex and decreasing. So to the left of two nodes it is above the
line through them, drawn from the lower end of the left node to the upper end of the right one. delta_G is convex, too:
if it is below that line at both ends of a segment, it is below it inside. Beyond the last node, delta_G must be at most
d.

**Which pairs.** R must be made of the pairs that the price was proved for. Poisson steps stand in for truncated Poisson
steps here, because truncated steps are worth at least as much: see `docs/concepts/gaussian_filter.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from accounting.composition.composition import Composition, compose
from accounting.composition.gaussian_dp import delta_of_gaussian, epsilon_of_gaussian, mu_of_gaussian
from accounting.composition.one_direction import deltas_in
from accounting.enclosure import enclosure
from accounting.events import (
    Event,
    FullBatch,
    Gaussian,
    GaussianMixture,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.events.schedules import resolve_schedules
from accounting.losses.privacy_loss import Direction
from accounting.losses.rules import sampling_rules_of
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, MAX_LIMIT, NANO

#: Steps with one known pair each, independent of all others given the history.
_MECHANISMS = (Gaussian, GaussianMixture)
_SAMPLINGS = (FullBatch, Poisson, WithoutReplacement, WithReplacement, TruncatedPoisson)
#: The number of nodes to begin with and the most that are added at once, and the pieces of a divided segment.
_FIRST_NODES, _MOST_NODES, _MOST_PIECES = 24, 800, 8
#: The most points that are bounded one by one if no shared line bounds them; each takes up to a second.
_MOST_ALONE = 8
#: The relative amount by which the result may be below the largest m that the nodes allow.
_TOLERANCE = 2e-4
#: The rarest branches of mixtures, which together are taken less often than this share of the failure, are left out.
_RARE_SHARE = 1e-3
#: Relative errors of an m that a node allows, and of sums and products of a few floats.
_ROUNDING, _SLACK = 1e-9, 1e-14


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of a tail, in nano-units of mu squared.

    Attributes:
        least: The largest number for which (2) is proved.
        most: A number above which (2) fails.
        failure: The failure probability d, in atto-units; 0 if none is needed.
    """

    least: int
    most: int
    failure: int


def tail_of(events: Sequence[Event], kept: Sequence[Event]) -> tuple[Event, ...]:
    """Return the steps of a list that were not taken and that may be worth something.

    Args:
        events: The whole list.
        kept: The same list with counts reduced and later events dropped.

    >>> from accounting.events import ZcDp
    >>> training = Event(Gaussian(1.0), Poisson(0.1), 10)
    >>> tail = tail_of([training, Event(ZcDp(0.1))], [Event(Gaussian(1.0), Poisson(0.1), 4)])
    >>> [(event.mechanism.kind, event.count) for event in tail]
    [('gaussian', 6)]
    """
    counts = [event.count for event in kept] + [0] * (len(events) - len(kept))
    return tuple(
        Event(event.mechanism, event.sampling, event.count - count)
        for event, count in zip(events, counts, strict=True)
        if event.count > count and isinstance(event.mechanism, _MECHANISMS) and isinstance(event.sampling, _SAMPLINGS)
    )


def worth_of(tail: Sequence[Event], relation: NeighboringRelation, failure: int) -> Worth:
    """Find the largest m with (2), up to a few ten-thousandths.

    Args:
        tail: The steps that `tail_of` returns, with the pairs for which the cover was proved.
        relation: The neighbouring relation.
        failure: The d that may be spent, in atto-units.

    Guarantees:
        is_proved: (2) holds at ``least``, in both directions.
        nothing_above_holds: (2) fails above ``most``.

    Source: this project, `docs/concepts/gaussian_filter.md`.

    >>> found = worth_of([Event(Gaussian(4.0), Poisson(0.01), 10_000)], NeighboringRelation.ADD_OR_REMOVE_ONE, 10**11)
    >>> 0.06 < found.least / NANO <= found.most / NANO < 0.07
    True
    """
    if not tail:
        return Worth(0, 0, 0)
    stand_ins = [sampling_rules_of(e.sampling).stand_in(e, e.sampling)[0] for e in resolve_schedules(tail, relation)]
    composition = compose(stand_ins, relation)
    # If steps lie between two pairs, a price is proved for the pair that dominates.
    enclosed = enclosure(composition)
    composition = composition if enclosed is None else enclosed.above
    alone = composition.gaussian_only
    if alone is not None:
        squared = alone.mu * alone.mu
        return Worth(math.floor(squared * (1.0 - _ROUNDING) * NANO), math.ceil(squared * (1.0 + _ROUNDING) * NANO), 0)
    if failure < 1:
        return Worth(0, 0, 0)
    d = math.nextafter(failure / ATTO, 0.0)
    kept = composition.without_rare_branches(_RARE_SHARE * d)
    ends = [_search(kept, direction, d) for direction in kept.directions]
    least, most = min(least for least, _ in ends), min(most for _, most in ends)
    return Worth(least, max(least, most), failure)


def _search(composition: Composition, direction: Direction, d: float) -> tuple[int, int]:
    """Return an m for which (2) is proved in one direction, and an upper bound of every such m, in nano-units."""
    nodes = _nodes(composition, direction, d, [0.0])
    if not nodes or nodes[0].lower <= d:
        return 0, _most(nodes)
    mu = mu_of_gaussian(0.0, min(nodes[0].lower, 1.0 - 1e-12))
    last = epsilon_of_gaussian(mu, d, upward=True)
    first = min(0.02 * mu, 0.5 * last)
    asked = [first * (last / first) ** (index / (_FIRST_NODES - 1)) for index in range(_FIRST_NODES)]
    found = _nodes(composition, direction, d, asked)
    while found:
        nodes = sorted(nodes + found)
        asked = _divided(nodes, _most(nodes) / NANO)
        if len(asked) > _MOST_NODES:
            break
        found = _nodes(composition, direction, d, asked, one_by_one=False)
        if not found and len(asked) <= _MOST_ALONE:
            found = _nodes(composition, direction, d, asked)
    least = min((_asked_for(epsilon, delta) for epsilon, delta in _lines(nodes)), default=0.0)
    amount = math.floor(min(least, _asked_for(nodes[-1].epsilon, d)) * (1.0 - _ROUNDING) * NANO)
    return (amount if amount >= 1 and _is_proved(nodes, amount, d) else 0), _most(nodes)


class _Node(NamedTuple):
    """Both bounds of the right side of (2) at an epsilon."""

    epsilon: float
    lower: float
    upper: float


def _nodes(
    composition: Composition, direction: Direction, d: float, epsilons: Sequence[float], *, one_by_one: bool = True
) -> list[_Node]:
    off, found = composition.discrepancy.fixed, []
    answers = deltas_in(direction, composition, epsilons, one_by_one=one_by_one) if epsilons else []
    for epsilon, bounds in zip(epsilons, answers, strict=True):
        if bounds is None:
            continue
        lower, upper = max(0.0, bounds.lower - off), min(1.0, bounds.upper + off)
        found.append(_Node(epsilon, (d + (1.0 - d) * lower) * (1.0 - _SLACK), (d + (1.0 - d) * upper) * (1.0 + _SLACK)))
    return found


def _lines(nodes: Sequence[_Node]) -> Iterator[tuple[float, float]]:
    """Yield, for each segment, the two ends of a line below the right side of (2), each as an epsilon and a delta."""
    for index, (left, right) in enumerate(pairwise(nodes)):
        least = right.lower
        if index + 2 < len(nodes):
            beyond = nodes[index + 2]
            share = -math.expm1(left.epsilon - right.epsilon) / math.expm1(beyond.epsilon - right.epsilon)
            least += max(0.0, right.lower - beyond.upper) * share * (1.0 - _SLACK)
        yield left.epsilon, least
        yield right.epsilon, right.lower


def _asked_for(epsilon: float, delta: float) -> float:
    """Estimate the largest m with delta_G(epsilon; m) <= delta."""
    return mu_of_gaussian(epsilon, delta) ** 2 if delta < 1.0 else math.inf


def _most(nodes: Sequence[_Node]) -> int:
    """Return an upper bound of every m with (2), in nano-units: (2) must hold at every node."""
    found = min((_asked_for(node.epsilon, node.upper) for node in nodes), default=MAX_LIMIT)
    return math.ceil(min(found, MAX_LIMIT) * (1.0 + _ROUNDING) * NANO)


def _divided(nodes: Sequence[_Node], most: float) -> list[float]:
    """Return the epsilons that divide the segments that allow too little, in ascending order."""
    asked: list[float] = []
    lefts = list(_lines(nodes))[::2]
    for (left, right), (_, least) in zip(pairwise(nodes), lefts, strict=True):
        missing = 1.0 - _asked_for(left.epsilon, least) / most
        if missing <= _TOLERANCE or right.epsilon - left.epsilon <= _ROUNDING * right.epsilon:
            continue
        pieces = min(_MOST_PIECES, 1 + math.ceil(math.sqrt(missing / _TOLERANCE)))
        width = (right.epsilon - left.epsilon) / pieces
        asked += [left.epsilon + width * index for index in range(1, pieces)]
    return asked


def _is_proved(nodes: Sequence[_Node], amount: int, d: float) -> bool:
    mu = math.sqrt(amount / NANO) * (1.0 + _SLACK)
    if delta_of_gaussian(mu, nodes[-1].epsilon, upward=True) > d * (1.0 - _SLACK):
        return False
    return all(delta_of_gaussian(mu, epsilon, upward=True) <= delta for epsilon, delta in _lines(nodes))
