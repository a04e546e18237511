"""This module computes the laws of the numbers of shuffled messages: of clones, which bound a round, and of randomisers
that attain lower bounds.

Numerics. Fewer clones give a bound, because further clones can be added afterwards. So if there are many, numbers of
clones are grouped, and each group counts as its smallest number; numbers with a total probability below 1e-59 count as
no clone at all. Outcomes are put on some thousands of losses: the P-mass and the Q-mass of each are kept and split
between two neighbouring losses ("connect the dots"), which only adds to the profile. Both cost about 1e-4 of epsilon.
From below, neighbouring numbers of ones are seen as one outcome, a post-processing; numbers less likely than 1e-59 are
left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: The total probability of all numbers of clones and messages that are left out.
LEFT_OUT = 1e-59
#: The number of nats at which tails are cut, so that the numbers beyond have at most this total probability.
_TAIL = 140.0
#: The range of the numbers of clones in one group, relative to these numbers.
_GROUP = 2e-4
#: The number of losses per standard deviation, the distance up to which they are evenly spaced, and the factor by which
#: their spacing grows beyond.
_FINENESS, _FINE_REACH, _GROWTH = 64.0, 20.0, 1.01
#: For lower bounds, numbers of ones within this many standard deviations are merged into one outcome.
_CELL = 1.0 / 64.0
#: Beyond this local epsilon, fewer than one user in 1e13 gives a false answer, so outcomes are not merged.
HARDLY_RANDOM = 30.0


@dataclass(frozen=True, slots=True)
class ClonesLoss(AtomicLoss):
    """The loss of the pair of the numbers of clones, which dominates a round.

    Attributes:
        local_epsilon: The local epsilon e0, above 0.
        num_users: The number n of users.

    Guarantees: profile_is_above_the_pair_of_the_theorem_and_close: within 1e-3 of its epsilon.
    """

    on_lattice = False
    local_epsilon: float
    num_users: int

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return self.local_epsilon

    def find_atoms(self) -> Atoms:
        return _clones(self.local_epsilon, self.num_users)


@dataclass(frozen=True, slots=True)
class ResponsesLoss(AtomicLoss):
    """The attained loss of randomised response by n users, of whom all but one certainly have a 0.

    Attributes:
        local_epsilon: The local epsilon e0, above 0.
        num_users: The number n of users.

    Guarantees: profile_is_below_what_randomised_response_attains_and_close.
    """

    on_lattice = False
    local_epsilon: float
    num_users: int

    symmetric = False

    @property
    def pure_epsilon(self) -> float:
        return self.local_epsilon

    def find_atoms(self) -> Atoms:
        return _numbers_of_ones(self.local_epsilon, self.num_users)


@dataclass(frozen=True, slots=True)
class ThreeCategoriesLoss(AtomicLoss):
    """The attained loss of randomised response on three categories by n users, of whom all but one certainly have the
    third.

    Attributes:
        local_epsilon: The local epsilon e0, above 0 and below `HARDLY_RANDOM`.
        num_users: The number n of users.

    Guarantees: profile_is_below_what_three_categories_attain_and_close.
    """

    on_lattice = False
    local_epsilon: float
    num_users: int

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return self.local_epsilon

    def find_atoms(self) -> Atoms:
        return _differences(self.local_epsilon, self.num_users)


def _numbers_of_ones(local_epsilon: float, num_users: int) -> Atoms:
    """Return the atoms of the number of ones without user 1's one against the number with it."""
    odds = math.exp(-local_epsilon)
    chance = odds / (1.0 + odds)
    mean = num_users * chance
    reach = math.sqrt(2.0 * _TAIL * mean)
    low, high = max(0, math.floor(mean - reach)), min(num_users, math.ceil(mean + reach + _TAIL))
    ones = np.arange(low, high + 1, dtype=np.float64)
    logs = _log_law(np.log(num_users - ones[:-1]) - np.log(ones[1:]) - local_epsilon)
    if local_epsilon > HARDLY_RANDOM:
        with np.errstate(divide="ignore"):
            losses = -np.logaddexp(
                np.log1p(-ones / num_users) - local_epsilon, np.log(ones / num_users) + local_epsilon
            )
        return Atoms(logs[::-1], losses[::-1])
    # The ratio of Q-mass to P-mass, less 1.
    lean = ((num_users - ones) * math.expm1(-local_epsilon) + ones * math.expm1(local_epsilon)) / num_users
    starts = np.arange(0, ones.size, max(1, int(_CELL * math.sqrt(mean * (1.0 - chance)))))
    cells = np.logaddexp.reduceat(logs, starts)
    shares = np.exp(logs - np.repeat(cells, np.diff(np.append(starts, ones.size))))
    losses = -np.log1p(np.add.reduceat(shares * lean, starts) / np.add.reduceat(shares, starts))
    return Atoms(cells[::-1], losses[::-1])


def _differences(local_epsilon: float, num_users: int) -> Atoms:
    """Return the atoms of the number of answers 1 less the number of answers 2. User 1 has category 1 under P and
    category 2 under Q.
    """
    odds, others = math.exp(-local_epsilon), num_users - 1
    chance = odds / (1.0 + 2.0 * odds)
    reach = math.ceil(math.sqrt(4.0 * _TAIL * others * chance) + _TAIL)
    last = min(others, reach)
    # The ratios b(d - 1) / b(d) for d = -last .. 0, where b is the law of the others' difference. b is even.
    falls = (
        1.0 / _trinomial_ratios(others, math.exp(local_epsilon), min(others, reach + reach // 2))[-last:]
        if last
        else np.ones(0)
    )
    logs = _log_law(np.concatenate([-np.log(falls), np.log(falls[::-1])]))
    law = np.exp(logs)
    padded = np.concatenate([np.zeros(2), law, np.zeros(2)])
    lower, same, upper = padded[:-2], padded[1:-1], padded[2:]
    p = (lower + odds * upper + odds * same) / (1.0 + 2.0 * odds)
    # The shift is Q's mass less P's, computed such that no small number is a difference of two sums.
    shift = math.expm1(-local_epsilon) * (lower - upper) / (1.0 + 2.0 * odds)
    deviation = math.sqrt(2.0 * others * chance)
    half = np.arange(p.size // 2 + 1, p.size, max(1, int(_CELL * deviation)))
    starts = np.concatenate([[0], p.size - half[::-1], [p.size // 2], half])
    starts = np.unique(starts)
    p, shift = np.add.reduceat(p, starts), np.add.reduceat(shift, starts)
    kept = p > 0.0
    return Atoms(np.log(p[kept]), -np.log1p(shift[kept] / p[kept]))


def _trinomial_ratios(steps: int, weight: float, length: int) -> Array:
    """Return a_(k+1) / a_k for the last ``length`` k < steps, where a_k are the coefficients of (1 + weight z +
    z^2)^steps.

    From the recurrence (k + 1) a_(k+1) = weight (steps - k) a_k + (2 steps - k + 1) a_(k-1), whose terms are positive.
    If it does not begin at k = 0, the effect of its start vanishes within the first third.
    """
    return _ratios(float(steps), weight, length)


@compiled
def _ratios(steps: float, weight: float, length: int) -> Array:
    ratios = np.empty(length)
    first = steps - length
    ratio = 0.0
    for index in range(length):
        k = first + index
        grown = weight * (steps - k)
        if index == 0:
            ratio = grown / (k + 1.0) + (math.sqrt((2.0 * steps - k + 1.0) / (k + 1.0)) if k > 0.0 else 0.0)
        else:
            ratio = (grown + (2.0 * steps - k + 1.0) / ratio) / (k + 1.0)
        ratios[index] = ratio
    return ratios


def _clones(local_epsilon: float, num_users: int) -> Atoms:
    kept = math.exp(-local_epsilon)
    clones, weights = _groups(num_users - 1, 2.0 * kept / (1.0 + kept))
    nodes = _nodes(local_epsilon, float(clones @ weights))
    # The numbers that are left out count as no clone at all, for which the loss is e0 or -e0.
    masses = np.zeros(nodes.size)
    masses[-1], masses[0] = LEFT_OUT / (1.0 + kept), LEFT_OUT * kept / (1.0 + kept)
    gaps = np.diff(nodes)
    for number, weight in zip(clones.tolist(), weights.tolist(), strict=True):
        losses, law = _messages(int(number), kept, local_epsilon)
        place = np.clip(np.searchsorted(nodes, losses, side="right") - 1, 0, nodes.size - 2)
        above = np.clip(losses - nodes[place], 0.0, gaps[place])
        upper = law * np.expm1(-above) / np.expm1(-gaps[place])
        lower = law * np.exp(-above) * np.expm1(above - gaps[place]) / np.expm1(-gaps[place])
        masses += weight * np.bincount(place, weights=lower, minlength=nodes.size)
        masses += weight * np.bincount(place + 1, weights=upper, minlength=nodes.size)
    occupied = masses > 0.0
    return Atoms(np.log(masses[occupied]), nodes[occupied])


def _groups(others: int, chance: float) -> tuple[Array, Array]:
    """Return numbers of clones and their probabilities. The law is Bin(others, chance), and each group counts as its
    smallest number.
    """
    mean = others * chance
    low = max(0, math.floor(mean - math.sqrt(2.0 * _TAIL * mean)))
    high = min(others, math.ceil(mean + math.sqrt(2.0 * _TAIL * mean) + _TAIL))
    numbers = np.arange(low, high + 1, dtype=np.float64)
    if high == low:
        return numbers, np.ones(1)
    odds = math.log(chance) - math.log1p(-chance) if chance < 1.0 else math.inf
    law = _normalised((np.log(others - numbers[:-1]) - np.log(numbers[1:])) + odds)
    edges = [low]
    while edges[-1] <= high:
        edges.append(edges[-1] + max(1, int(_GROUP * edges[-1])))
    starts = np.array(edges[:-1], dtype=np.int64)
    return starts.astype(np.float64), np.add.reduceat(law, starts - low)


def _messages(clones: int, kept: float, local_epsilon: float) -> tuple[Array, Array]:
    """Return losses and P-masses of the numbers of messages from Q0, given the number of clones."""
    reach = math.ceil(math.sqrt(0.5 * _TAIL * clones))
    low, high = max(0, clones // 2 - reach), min(clones, -(-clones // 2) + reach)
    zeros = np.arange(low, high + 1, dtype=np.float64)
    law = _normalised(np.log(clones - zeros[:-1]) - np.log(zeros[1:])) if zeros.size > 1 else np.ones(1)
    first = np.arange(low, high + 2, dtype=np.float64)
    second = clones + 1.0 - first
    masses = (np.append(0.0, law) + kept * np.append(law, 0.0)) / (1.0 + kept)
    ratio = (first - second) * -math.expm1(-local_epsilon) / (second + first * kept)
    with np.errstate(divide="ignore"):
        losses = np.where(second > 0.0, np.log1p(np.maximum(ratio, -1.0)), local_epsilon)
    return np.where(first > 0.0, losses, -local_epsilon), masses


def _normalised(log_ratios: Array) -> Array:
    """Return a law, given the logarithms of the ratios of neighbouring masses. It is relatively accurate around its
    mode.
    """
    law: Array = np.exp(_log_law(log_ratios))
    return law


def _log_law(log_ratios: Array) -> Array:
    """Return the logarithms of a law's masses, given the logarithms of the ratios of neighbouring masses."""
    logs = np.append(0.0, np.cumsum(log_ratios))
    mode = int(np.argmax(logs))
    # Sums start at the mode, so each side carries only its own rounding.
    right = np.append(0.0, np.cumsum(log_ratios[mode:]))
    left = -np.cumsum(log_ratios[:mode][::-1])[::-1]
    outward = np.concatenate([left, right])
    log_law: Array = outward - math.log(float(np.exp(outward).sum()))
    return log_law


def _nodes(local_epsilon: float, clones: float) -> Array:
    """Return losses from -e0 to e0, fine in the middle."""
    deviation = 2.0 * math.tanh(0.5 * local_epsilon) / math.sqrt(clones + 1.0)
    fine = deviation / _FINENESS
    inner = np.arange(0.0, min(_FINE_REACH * deviation, local_epsilon), fine)
    levels = max(0.0, math.log(local_epsilon / inner[-1]) / math.log(_GROWTH))
    outer = inner[-1] * _GROWTH ** np.arange(1.0, 1.0 + levels)
    positive = np.concatenate([inner[1:], outer[outer < local_epsilon * (1.0 - 1e-9)], [local_epsilon]])
    return np.concatenate([-positive[::-1], [0.0], positive])
