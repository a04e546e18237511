"""Bounds on the cost of the best of K runs, by the order in which a score puts the outcomes.

As in `selection`: one run has the laws Q and Q' and the loss L = log dQ/dQ'; u and v are the probabilities under Q and
Q' of the outcomes that the score prefers to a given one; and the selection has the densities g(u) and g(v) with respect
to Q and Q', where g(u) = f'(1 - u). So

    delta_A(x) = integral of (g(u) dQ - e^x g(v) dQ')_+ .

* **From above**, with R the region of all (u, v) that tests of one run reach (v <= e^eps u + delta(eps) for the profile
  delta of Q' against Q), and Psi(z) the largest g(u) - z g(v) over R, delta_A(x) <= E_Q Psi(e^(x - L)). Psi falls, is
  convex, and is 0 from e^c on. A chord is above it, so between nodes 0 = z_0 < ... < z_n = e^c it is at most a sum of
  terms w_j (1 - z / z_j)_+, whence

      delta_A(x) <= sum of w_j delta(x - log z_j),

  delta being that of Q against Q'. (With the nodes 0 and e^c alone this is `selection_profile`.)
* **From below**, a score that prefers first the outcomes of S_0 = {L < -l_0}, then those of S_1 = {L > l_1}, or parts
  of these sets that a coin decides. A run of the selection that is in S_1 has u between u_0 = Q(S_0) and u_0 + p,
  p = Q(S_1), and v between v_0 and v_0 + p', so that

      delta_A(x) >= p g(u_0 + p) - e^x p' g(v_0).

  Preferring S_0 makes g(v_0) smaller than g(u_0), because S_0 tells the neighbours apart in the other direction. p =
  delta(l_1) + e^l_1 p', where -p' is the slope of delta in e^eps at l_1, which chords on either side bound; and
  likewise for v_0, u_0 and the other direction's profile.

The first bound gives each outcome the pair of R that is worst for it; the second uses one pair for all of S_1. If delta
is small, S_1 is small, and the two bounds are close.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.composition.basic import pure_epsilon
from accounting.composition.composition import Composition
from accounting.composition.one_direction import deltas_in
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction
from accounting.tuning.trials import RandomTrials

Array = NDArray[np.float64]

#: The number of cells of u in which Psi is bounded, the end of the smallest cell, the number of times that relevant
#: cells are divided, and the number of parts.
_CELLS, _LEAST_U, _DIVISIONS, _PARTS = 1000, 1e-12, 3, 24
#: The number of nodes of Psi, and the distance of the nearest one from c.
_NODES, _NEAREST = 40, 2e-3
#: An allowance for the rounding of sums of a few terms.
_ALLOWANCE = 1e-12
#: The distance in epsilon between the places between which slopes are bounded.
_APART = 2e-3
#: The number of places of S_0 and S_1 that are tried, and of cells of p' and of u_0.
_SETS_BEFORE, _SETS, _FEW = 120, 40, 10
#: With more pairs of sets than this, fewer cells are used.
_MANY = 10_000
_PARTS_OF_SETS = 0.4 ** np.arange(20.0)


def weights_of_shifts(trials: RandomTrials, slopes: Array, deltas: Array, log_ratio: float) -> tuple[Array, Array]:
    """Return (c_j, w_j) such that delta_A(x) <= sum of w_j delta(x - c_j).

    Args:
        trials: The law of K.
        slopes, deltas: Lines v <= slope u + delta above the region of tests.
        log_ratio: The number c.
    """
    if log_ratio <= 0.0:
        return np.zeros(1), np.array([trials.expected_trials * (1.0 + _ALLOWANCE)])
    places = log_ratio - np.geomspace(_NEAREST * min(1.0, log_ratio), max(40.0, 2.0 * log_ratio), _NODES)[::-1]
    z = np.concatenate([[0.0], np.exp(places), [math.exp(log_ratio)]])
    edge = _Edge(slopes, deltas)
    inner = [_largest(trials, edge, each) for each in z[1:-1].tolist()]
    values = np.array([trials.expected_trials * (1.0 + _ALLOWANCE), *inner, 0.0])
    corners = _convex_minorant(z, values)
    z, values = z[corners], values[corners]
    falls = np.append(-np.diff(values) / np.diff(z), 0.0)
    weights = np.maximum(-np.diff(falls), 0.0) * z[1:]
    return np.log(z[1:]), weights * (1.0 + _ALLOWANCE)


def _largest(trials: RandomTrials, edge: _Edge, z: float) -> float:
    """Return Psi(z), from above: cells of u that may hold the largest value are divided."""
    left = np.concatenate([[0.0], np.geomspace(_LEAST_U, 1.0, _CELLS)])
    left, right = left[:-1], left[1:]
    for _ in range(_DIVISIONS):
        taken = z * trials.density(edge(right))
        bounds = trials.density(left) - taken
        reached = float(np.max(trials.density(right) - taken))
        kept = bounds > reached
        lengths = (right[kept] - left[kept]) / _PARTS
        starts = left[kept, None] + lengths[:, None] * np.arange(_PARTS)
        left, right = starts.ravel(), np.append(starts[:, 1:], right[kept, None], axis=1).ravel()
    most = trials.density(left) * (1.0 + _ALLOWANCE)
    bounds = most - z * trials.density(edge(right)) * (1.0 - _ALLOWANCE)
    return max(0.0, reached + _ALLOWANCE * trials.expected_trials, float(bounds.max(initial=0.0)))


class _Edge:
    """The edge of the region below all lines v <= slope u + delta, as the lines that are lowest somewhere.

    They are the corners of the convex minorant of the points (slope, delta). Each of them is above the region, so that
    rounding a place at which two of them cross costs tightness and no more.
    """

    def __init__(self, slopes: Array, deltas: Array) -> None:
        order = np.lexsort((deltas, slopes))
        order = order[np.isfinite(slopes[order])]
        _, first = np.unique(slopes[order], return_index=True)
        order = order[first]
        # The steepest line is the lowest one where u is small.
        lowest = order[_convex_minorant(slopes[order], deltas[order])][::-1]
        self._slopes, self._deltas = slopes[lowest], deltas[lowest]
        self._crossings = np.diff(self._deltas) / -np.diff(self._slopes)

    def __call__(self, u: Array) -> Array:
        """Return the largest v of the region at each u, or more."""
        line = np.searchsorted(self._crossings, u)
        edge: Array = np.minimum(self._slopes[line] * u + self._deltas[line], 1.0)
        return edge


def _convex_minorant(x: Array, y: Array) -> NDArray[np.int64]:
    """Return corners of the largest convex function below the points."""
    corners: list[int] = []
    for i in range(x.size):
        while len(corners) > 1:
            j, k = corners[-2:]
            if (y[k] - y[j]) * (x[i] - x[j]) < (y[i] - y[j]) * (x[k] - x[j]):
                break
            corners.pop()
        corners.append(i)
    return np.array(corners)


def delta_of_shifts(shifts: tuple[Array, Array], epsilons: Array, deltas: Array, x: float) -> float:
    """Bound the sum of w_j delta(x - c_j) from upper bounds of delta at some epsilons: delta is convex in e^eps.

    Args:
        shifts: The shifts and weights that `weights_of_shifts` returns.
        epsilons: Numbers from 0 on, in ascending order.
        deltas: Bounds of delta at these epsilons, for either direction.
        x: The point at which the sum is taken; at most the last epsilon plus the smallest shift.
    """
    places, weights = x - shifts[0], shifts[1]
    inside = np.clip(places, epsilons[0], epsilons[-1])
    after = np.clip(np.searchsorted(epsilons, inside), 1, epsilons.size - 1)
    gap = np.expm1(epsilons[after] - epsilons[after - 1])
    share = np.expm1(inside - epsilons[after - 1]) / gap
    found = deltas[after - 1] + share * (deltas[after] - deltas[after - 1])
    # 1 - e^eps + e^eps delta(-eps) of the other direction, where eps < 0.
    found = np.where(places < 0.0, 1.0 - np.exp(np.minimum(places, 0.0)) * (1.0 - deltas[0]), found)
    return min(1.0, float(weights @ found) * (1.0 + _ALLOWANCE))


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets {L > l} of one direction, with their probabilities under P and Q.

    Attributes:
        places: The numbers e^l.
        deltas: Lower bounds of delta(l).
        least, most: Bounds of their probabilities under Q.
    """

    places: Array
    deltas: Array
    least: Array
    most: Array

    @classmethod
    def of(cls, composition: Composition, direction: Direction, epsilons: Array) -> _Sets:
        """Return the sets at these losses, without those with unknown probabilities."""
        asked = np.concatenate([epsilons - _APART, epsilons, epsilons + _APART])
        order = np.argsort(asked)
        bounds = deltas_by_direction(composition, direction, asked[order])
        lower, upper = np.empty(asked.size), np.empty(asked.size)
        lower[order] = [0.0 if each is None else each.lower for each in bounds]
        upper[order] = [1.0 if each is None else each.upper for each in bounds]
        n, z = epsilons.size, np.exp(epsilons)
        gap = z * -math.expm1(-_APART)
        most = np.minimum((upper[:n] - lower[n : 2 * n]) / gap * (1.0 + _ALLOWANCE), 1.0)
        least = np.maximum((lower[n : 2 * n] - upper[2 * n :]) / (z * math.expm1(_APART)) * (1.0 - _ALLOWANCE), 0.0)
        kept = (lower[n : 2 * n] > 0.0) & (least <= most)
        return cls(z[kept], lower[n : 2 * n][kept], least[kept], most[kept])

    def parts(self, shares: Array) -> _Sets:
        """Return parts of the sets, decided by a coin. This is needed with atoms, since no whole set may be small
        enough."""
        return _Sets(
            np.repeat(self.places, shares.size),
            *((each[:, None] * shares).ravel() for each in (self.deltas, self.least, self.most)),
        )


def deltas_by_direction(composition: Composition, direction: Direction, epsilons: Array) -> Sequence[Bounds | None]:
    """Bound one run's delta in one direction at ascending epsilons; return None without bounds of that direction
    alone."""
    if composition.failure.upper or composition.discrepancy:
        return [None] * epsilons.size
    if any(loss.is_enclosed or not loss.has_pair for loss, _ in composition.steps):
        return [None] * epsilons.size
    return deltas_in(direction, composition, epsilons.tolist(), one_by_one=False)


def attained_epsilon(
    composition: Composition, trials: RandomTrials, delta: float, largest: float, before: float
) -> float:
    """Return an epsilon that the selection costs with some score that prefers S_0, then S_1; 0 if none is found.

    Args:
        composition: The composition of one run.
        trials: The law of K.
        delta: The delta of the selection.
        largest: About the epsilon of one run at delta / E[K]: S_1 is searched at losses up to this one.
        before: The largest l_0 that is tried.
    """
    if largest <= 3.0 * _APART:
        return 0.0
    pure = pure_epsilon(composition)
    few = 4 if math.isfinite(pure) else 1
    places = np.linspace(max(2.0 * _APART, 0.6 * largest), largest, _SETS // few)
    earlier = np.linspace(2.0 * _APART, min(max(before, 4.0 * _APART), pure), _SETS_BEFORE // few)
    best = 0.0
    for direction in composition.directions:
        other = direction if len(composition.directions) == 1 else _other(direction)
        last, first = _Sets.of(composition, direction, places), _Sets.of(composition, other, earlier)
        if few > 1:
            last, first = last.parts(_PARTS_OF_SETS), first.parts(_PARTS_OF_SETS[: _PARTS_OF_SETS.size // 2])
        best = max(best, _best(first, last, trials, delta))
    return best


def _best(first: _Sets, last: _Sets, trials: RandomTrials, delta: float) -> float:
    """Return the maximum, over all S_0 and S_1, of the minimum over the probabilities that they may have."""
    shares = np.linspace(0.0, 1.0, (_FEW if first.places.size * last.places.size < _MANY else _FEW // 3) + 1)

    def cells(sets: _Sets) -> tuple[Array, Array]:
        ends = sets.least[:, None] + (sets.most - sets.least)[:, None] * shares
        return ends[:, :-1], ends[:, 1:]

    # Axes: S_0, u_0, S_1, p'.
    low_u, high_u = (ends[:, :, None, None] for ends in cells(first))
    low_p, high_p = (ends[None, None] for ends in cells(last))
    v = np.minimum(first.deltas[:, None, None, None] + first.places[:, None, None, None] * low_u, 1.0)
    p = last.deltas[:, None] + last.places[:, None] * low_p[0, 0]
    gained = p * trials.density(np.minimum(high_u + p, 1.0)) * (1.0 - _ALLOWANCE)
    lost = np.maximum(high_p * trials.density(v), 1e-300) * (1.0 + _ALLOWANCE)
    ratio = (gained - delta) / lost
    smallest = float(ratio.min(axis=(1, 3)).max()) if ratio.size else 0.0
    return math.log(smallest) * (1.0 - _ALLOWANCE) if smallest > 1.0 else 0.0


def _other(direction: Direction) -> Direction:
    return Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
