"""This module computes how many of k records a batch of a fixed size holds, and the pairs for k replaced records.

A batch holds h of the k records with probability w_h. The law of h is hypergeometric without replacement, and binomial
with replacement. Batches can be drawn as follows. Fill the batch with other records. Put all its places and the k
records into independent random orders. Let the first h places hold the first h of the k records (with replacement: h
draws of them). Then h does not depend on the orders. Given the orders and the sum of the batch without any of the k
records, the two laws are

    P = sum_h w_h N(U_h),    Q = sum_h w_h N(V_h),    U_0 = V_0 = 0,

and U_h, V_h, U_h - V_h have a length of 2h at most, as each of the first h places gains one contribution and loses
another. Other orders average out by joint convexity. Now let pi_h >= w_h, h >= 1, add up to 1. With eta_h = w_h / pi_h,

    P = sum_h pi_h [(1 - eta_h) N(0) + eta_h N(U_h)],    Q = sum_h pi_h [(1 - eta_h) N(0) + eta_h N(V_h)],

because the excess of the pi_h over the w_h adds up to w_0. By joint convexity again the hockey stick is at most the sum
of pi_h times that of branch h, which is one record that is sampled with probability eta_h and moves the sum h times as
far. So the mixture of these pairs, whose branch is seen, dominates. (Balle, Barthe & Gaboardi 2018, Theorem
10, has all eta_h alike.) If w_0 = 0, then pi_h = w_h, and each branch is a full batch.

Every choice of pi is sound. If pi_h is proportional to h w_h, every branch moves the mean equally, and the bound is
almost exact if a step reveals little. If the noise is not large against h contributions, rare h need larger pi_h. The
chi-square divergence is least at pi_h in proportion to w_h (e^(m_h^2) - 1)^(1/2), with m_h the distance 2h over the
noise. Higher moments need still more, which a factor t of m_h^2 gives.

No choice makes the bound exact. Even for one step, other data sets cost slightly more than data sets whose records
agree. If all others contribute c instead of -1, a group that goes from 1 to -1 has U_h = (1 - c) h, V_h = -(1 + c) h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The largest total probability of the numbers of hits that get no weight of their own.
_NEGLIGIBLE = 1e-60
#: The largest numbers of hits, if their total probability is at most this, share one branch.
_SELDOM = 1e-20
#: The largest relative error of a weight.
WEIGHT_ERROR = 1e-11
#: Numbers of hits up to this one each have a branch; larger numbers are rounded up by at most 2 %.
_EACH, _RATIO = 50, 1.02
#: The values of t that are tried, the largest first; and the excess, 2 %, that the branches after the first may have in
#: all over their shares in proportion to h w_h. If every t exceeds it, the shares in proportion to h w_h are used.
_STEEPNESS, _MORE = tuple(np.geomspace(6.0, 0.25, 9).tolist()), 0.02
#: Numbers of hits that are less likely than this keep their share in proportion to h w_h.
_RARE = 1e-25
#: An eta_h this close to 1 counts as 1.
_FULL = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Hits:
    """The law of the number of some records in a batch.

    Attributes:
        first: The smallest number.
        weights: Probabilities of ``first`` and the numbers after it.
        most: The largest number.
        beyond: A bound of the probability of all numbers that have no weight.

    Guarantees: hits_have_their_law; tail_is_bounded.
    """

    first: int
    weights: tuple[float, ...]
    most: int
    beyond: float

    @property
    def numbers(self) -> Array:
        """The numbers that have a weight."""
        return self.first + np.arange(len(self.weights), dtype=np.float64)


class Branch(NamedTuple):
    """One branch of the mixture.

    Attributes:
        hits: The number h of hits.
        share: The share pi_h of the branch.
        probability: The probability eta_h; 1 for a full batch.
    """

    hits: int
    share: float
    probability: float


def hits_without_replacement(batch_size: int, dataset_size: int, group_size: int) -> Hits:
    """Return the law of the number of ``group_size`` records in a batch of distinct records.

    >>> hits_without_replacement(1, 4, 2).weights
    (0.5, 0.5)
    """
    b, n = batch_size, dataset_size
    k = min(group_size, n)
    least, most = max(0, b + k - n), min(k, b)
    mode = min(max((k + 1) * (b + 1) // (n + 2), least), most)
    return _law(mode, least, most, lambda h: (k - h) / (h + 1.0) * ((b - h) / (n - k - b + h + 1.0)))


def hits_with_replacement(batch_size: int, dataset_size: int, group_size: int) -> Hits:
    """Return the law of the number of draws of ``group_size`` records.

    >>> hits_with_replacement(2, 2, 1).weights
    (0.25, 0.5, 0.25)
    """
    b, k = batch_size, min(group_size, dataset_size)
    if k == dataset_size:
        return Hits(b, (1.0,), b, 0.0)
    odds = k / (dataset_size - k)
    mode = min((b + 1) * k // dataset_size, b)
    return _law(mode, 0, b, lambda h: (b - h) / (h + 1.0) * odds)


def _law(mode: int, least: int, most: int, ratio: Callable[[int], float]) -> Hits:
    """Return the law whose weights have w_(h+1) / w_h = ratio(h), which falls with h."""
    below, above, weight, beyond = [], [1.0], 1.0, 0.0
    for h in range(mode, least, -1):
        weight /= ratio(h - 1)
        below.append(weight)
    weight = 1.0
    for h in range(mode, most):
        next_ratio = ratio(h)
        # From here on, a geometric series bounds the rest.
        if next_ratio < 0.5 and 2.0 * weight * next_ratio <= _NEGLIGIBLE:
            beyond = 2.0 * weight * next_ratio
            break
        weight *= next_ratio
        above.append(weight)
    weights = [*reversed(below), *above]
    total = math.fsum(weights)
    return Hits(least, tuple(each / total for each in weights), most, beyond)


@lru_cache(maxsize=1024)
def branches(hits: Hits, distance: float, *, bounded: bool = False) -> tuple[Branch, ...]:
    """Return the branches of a mixture that dominates, with h >= 1; their shares add up to 1.

    Args:
        distance: m_1, the distance by which one hit moves the sum, over the noise.
        bounded: Whether losses grow with the distance as they do for Laplace noise, and not with its square.

    Guarantees: shares_make_the_law: pi_h eta_h is at least w_h; steps_that_show_little_lose_nothing.
    """
    numbers, weights = _together(hits)
    weights = weights * (1.0 + WEIGHT_ERROR)
    shares = weights / weights.sum()
    if hits.first == 0 and weights.sum() < 1.0:
        shares = _shares(weights, _wanted(numbers, weights, distance, bounded=bounded))
    return tuple(
        Branch(int(h), float(share), 1.0 if weight >= _FULL * share else float(weight / share))
        for h, weight, share in zip(numbers, weights, shares, strict=True)
        if share > 0.0
    )


def _together(hits: Hits) -> tuple[Array, Array]:
    """Return the numbers of hits above 0 and their weights. If there are many, neighbouring numbers are merged into
    the largest of them.
    """
    weights = np.array(hits.weights)
    # The smallest numbers, whose total probability is negligible, count as the next number.
    up_to = np.cumsum(weights)
    kept = int(np.searchsorted(up_to, _NEGLIGIBLE))
    numbers, weights = hits.numbers[kept:], np.concatenate([up_to[kept : kept + 1], weights[kept + 1 :]])
    some = numbers > 0.0
    numbers, weights = numbers[some], weights[some]
    # The largest numbers share one branch, as the largest number that has a weight, because each branch takes time.
    from_here = np.cumsum(weights[::-1])[::-1]
    last = max(1, int(np.count_nonzero(from_here > _SELDOM)))
    if last < numbers.size:
        numbers = np.append(numbers[:last], numbers[-1])
        weights = np.append(weights[:last], from_here[last])
    if hits.beyond > 0.0:
        numbers, weights = np.append(numbers, hits.most), np.append(weights, hits.beyond)
    coarse = np.ceil(np.log(np.maximum(numbers / _EACH, 1.0)) / math.log(_RATIO))
    cells = np.where(numbers <= _EACH, numbers, _EACH + coarse)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(cells) > 0.0]))
    ends = np.concatenate([starts[1:], [numbers.size]]) - 1
    return numbers[ends], np.add.reduceat(weights, starts)


def _wanted(numbers: Array, weights: Array, distance: float, *, bounded: bool) -> Array:
    """Return the numbers to which the shares pi_h of the branches should be about proportional."""
    biased: Array = numbers * weights / float(numbers @ weights)
    usual, likely = float(biased[1:].sum()), weights > _RARE
    moved = distance * numbers[likely]
    losses = np.minimum(moved, moved * moved) if bounded else moved * moved
    for steepness in _STEEPNESS if likely.any() else ():
        steep: Array = weights[likely] * np.sqrt(np.expm1(np.minimum(steepness * losses, 600.0)))
        steep = steep / float(steep.sum())
        if float(steep[1:].sum()) <= usual + _MORE:
            wanted = biased.copy()
            wanted[likely] = steep
            return wanted
    return biased


def _shares(weights: Array, wanted: Array) -> Array:
    """Return shares that add up to 1. Each share is the larger of its weight and a common multiple of its wanted
    number.
    """
    low, high = 0.0, 1.0 / float(wanted.sum())
    for _ in range(100):
        middle = 0.5 * (low + high)
        if float(np.maximum(weights, middle * wanted).sum()) > 1.0:
            high = middle
        else:
            low = middle
    shares: Array = np.maximum(weights, low * wanted)
    return shares / float(shares.sum())
