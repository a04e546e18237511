"""The shuffle model: n users randomise locally, and only the multiset of their messages is seen.

REQUIRED: all users of a round apply the SAME randomiser R, which may depend on what earlier rounds have shown, and on
nothing else (or: records are shuffled first, and the i-th of them given to an i-th randomiser). Users with randomisers
of their own, each e-DP, are not covered: where their messages have no symbol in common, each message tells whose it
is, shuffling hides nothing, and a round costs e.

Let R be e-DP, e = ``local_epsilon``, E = e^e, and let P0, P1 be the laws of user 1's message. For users 2 to n, each
message is, with probability 2 / (E + 1), one that hides which of the two inputs user 1 has; the numbers

    C ~ Bin(n - 1, 2 / (E + 1)),  A ~ Bin(C, 1/2),  D ~ Bernoulli(E / (E + 1)),
    (A + D, C - A + 1 - D)  against  (A + 1 - D, C - A + D)

dominate the round, and their powers dominate compositions in which the randomiser may depend on earlier rounds. At
(i, j) the loss is log (E i + j) / (i + E j).

Proof. For each other user R(x) >= B := max(P0, P1) / E, because P0 and P1 are R's own laws at two other inputs. So she
sends a message of B's law with probability b, the mass of B; let all other messages be seen apart. Given how many are
left, the density of the shuffled ones against the product of B / b is the mean of b P0 / B over them, whence

    delta(x) = E (W_1 + ... + W_n)_+ / n,   W = (P0 - t P1) / B at a message of B's law, or 0 with probability 1 - b,

W independent, t = e^x, 0 <= x <= e (Balle, Bell, Gascon & Nissim 2019, Lemma 5.3). This grows in the convex order of
W. For convex f with f(0) = 0, E f(W) is the integral of B f((P0 - t P1) / B), which is homogeneous in (P0, P1), and
convex where P0 >= P1 and where P0 <= P1: it is largest where P0 : P1 is E, 1 or 1 / E only. There W is E - t,
-E (t - 1) or 1 - E t. What P0 and P1 have in common is best shared out among the other two: per unit of it

    f(-E (t - 1)) / E  <=  (f(E - t) + f(1 - E t)) / (E + 1).

Both sides are laws of mean 1 - t, filled up with 0; it is enough to compare the means of (W - k)_+. They are 0 on the
left for k >= 0; for -E (t - 1) < k < 0 they are |k| (1 - 1 / E) on the left and at least |k| E / (E + 1) on the right;
below, the left one is the mean less k, which no law is below. So the worst of all randomisers has P0 = (E, 1) / (E + 1)
and P1 = (1, E) / (E + 1) on two messages, with B = (1, 1) / (E + 1): the pair above. Negative x follow by exchanging P0
and P1. (Feldman, McMillan & Talwar 2021 have e^-e for 2 / (E + 1). That 2 / (E + 1) serves some randomisers is in their
2023 paper, whose proof for all was withdrawn: errata to arXiv 2208.04591, Lemma 3.5. The proof above is another one.)

What is lost is that messages that are not B's are seen apart. No randomiser is known to attain the pair.

From below, two randomisers, of which the one with the larger divergence of order 2 is taken.

* Randomised response on one bit, user 1 with a 1 or a 0 where all others have a 0. The number of ones is

      Bin(n, p)  without user 1's one,  Bin(n - 1, p) + Bernoulli(1 - p)  with it,  p = 1 / (E + 1),

  and at j ones the loss of the first against the second is -log [((n - j) / E + j E) / n]. Both directions count.
* Randomised response on three categories, user 1 with the first or the second where all others have the third. The
  difference of the numbers of the first and of the second, a post-processing, is S + 1, S or S - 1 with probabilities
  E c, c and c or c, c and E c, where c = 1 / (E + 2), and S is a sum of n - 1 steps of 1, 0 and -1 with probabilities
  c, E c and c. It is what comes near the pair for large e.

Numbers. Fewer clones are a bound, as further ones can be added afterwards. So where there are many, numbers of clones
are grouped, each group counted as its smallest number; what is less likely than 1e-59 in all counts as no clone at
all. And outcomes are put on some thousands of losses, each one's P-mass and Q-mass split between two neighbours and
kept ("connect the dots"), which only adds to the profile. Both cost about 1e-4 of epsilon. From below neighbouring
numbers of ones are seen as one outcome, a post-processing; numbers less likely than 1e-59 are left out.

(e, d)-DP randomisers. P0 and P1 are within total variation d / (1 + E) of an e-DP pair P0', P1' each (Dwork & Roth
2014, Lemma 3.17), and each other R(x) is within m of a law that is at least max(P0', P1') / E: raise it there and take
the added mass away elsewhere. m is what R(x) falls short of it at most: where P0' is the larger one, d / E and the
change of P0', which is d / (E (1 + E)), and as much where P1' is. In all, each data set's messages are within

    d / (1 + E) + (n - 1) 2 d (1 + 1 / (1 + E)) / E

of those of randomisers with the pair above; `accounting.discrepancy` has what that adds to delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.discrepancy import Discrepancy
from accounting.events.event import Event
from accounting.events.samplings import ShuffleModel
from accounting.events.stated import ApproximateDp, PureDp
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import SamplingRules, rules_of, sampled, sampling_rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]

#: Of all numbers of clones and messages that are left out, together.
_LEFT_OUT = 1e-59
#: Nats of the tails beyond which they lie.
_TAIL = 140.0
#: Groups are this wide, relatively to their number of clones.
_GROUP = 2e-4
#: Losses: so many to a standard deviation, so far out; beyond, each is this much further than the last.
_FINENESS, _FINE_REACH, _GROWTH = 64.0, 20.0, 1.01
#: From below, numbers of ones that are seen as one: standard deviations.
_CELL = 1.0 / 64.0
#: A local epsilon below which e^-e0 is 1 in floating point.
_HARDLY_BIASED = 1e-15
#: A local epsilon up to which three categories attain less than a bit, by far.
_THREE_FROM = 0.3
#: A local epsilon beyond which fewer than one user in 1e13 lies, so that nothing is seen as one.
_HARDLY_RANDOM = 30.0


@dataclass(frozen=True, slots=True)
class ShuffledLoss(PrivacyLoss):
    """Loss of one round of shuffled messages, all of the same randomiser; it lies between two pairs.

    Attributes:
        local_epsilon: e0 of the randomiser.
        num_users: n.
    """

    local_epsilon: float
    num_users: int

    symmetric = True
    has_pair = True
    is_enclosed = True
    is_tight = False

    @property
    def pure_epsilon(self) -> float:
        return self.local_epsilon

    @property
    def dominating(self) -> ClonesLoss | RandomizedResponseLoss:
        if self.local_epsilon < _HARDLY_BIASED or self.num_users * math.exp(-self.local_epsilon) < _LEFT_OUT:
            # Clones that are next to never seen, or not told apart: user 1's message by itself.
            return RandomizedResponseLoss(self.local_epsilon)
        return ClonesLoss(self.local_epsilon, self.num_users)

    @property
    def attained(self) -> ResponsesLoss | ThreeCategoriesLoss | RandomizedResponseLoss:
        if self.local_epsilon < _HARDLY_BIASED:
            return RandomizedResponseLoss(0.0)
        bits = ResponsesLoss(self.local_epsilon, self.num_users)
        if not _THREE_FROM < self.local_epsilon < _HARDLY_RANDOM:
            return bits
        three, second = ThreeCategoriesLoss(self.local_epsilon, self.num_users), np.ones(1)
        return three if three.log_moment(second)[0] > bits.log_moment(second)[0] else bits

    def log_moment(self, tilts: Array) -> Array:
        return self.dominating.log_moment(tilts)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return self.dominating.support(log_mass, remove=remove)


@dataclass(frozen=True, slots=True)
class ClonesLoss(AtomicLoss):
    """The pair of the numbers of clones, which dominates a round.

    Attributes:
        local_epsilon: e0, above 0.
        num_users: n.

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
    """Randomised response of n users, of whom all but one surely have a 0: it is attained.

    Attributes:
        local_epsilon: e0, above 0.
        num_users: n.

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
    """Randomised response of n users on three categories, of whom all but one surely have the third: it is attained.

    Attributes:
        local_epsilon: e0, above 0 and not so large that next to nobody lies.
        num_users: n.

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


@sampled(PureDp, ShuffleModel)
@sampled(ApproximateDp, ShuffleModel)
def shuffled(
    mechanism: PureDp | ApproximateDp, sampling: ShuffleModel, _relation: NeighboringRelation, sensitivity: float
) -> PrivacyLoss:
    """One user alone is not shuffled among others."""
    if sampling.num_users > 1:
        return ShuffledLoss(sampling.local_epsilon, sampling.num_users)
    return rules_of(mechanism).loss(mechanism, sensitivity)


@sampling_rules_for(ShuffleModel)
class ShuffleModelRules(SamplingRules[ShuffleModel]):
    def stand_in(self, event: Event, sampling: ShuffleModel) -> tuple[Event, Discrepancy]:
        """A pure randomiser, where the stated one has a delta, and how far it may be from it."""
        users, epsilon = sampling.num_users, sampling.local_epsilon
        if sampling.local_delta == 0.0:
            return event, Discrepancy()
        distance = distance_of_randomizers(epsilon, sampling.local_delta, users)
        pure = Event(PureDp(epsilon), ShuffleModel(users, epsilon, 0.0), event.count)
        return pure, Discrepancy.of_total_variation(distance, event.count)


def closed_form_epsilon(local_epsilon: float, num_users: int, delta: float) -> float | None:
    """The central epsilon of one round, as published; None where local_epsilon > log(n / (16 log(2 / delta))).

    Source: Feldman, McMillan & Talwar 2021, Theorem 3.1: log(1 + (e^e - 1)/(e^e + 1) (8 sqrt(e^e log(4/delta) / n) +
    8 e^e / n)).

    >>> round(closed_form_epsilon(0.5, 1024, 1e-6), 12)
    0.269791870551
    """
    if local_epsilon > math.log(num_users / (16.0 * math.log(2.0 / delta))):
        return None
    grown = math.exp(local_epsilon)
    spread = 8.0 * math.sqrt(grown * math.log(4.0 / delta) / num_users) + 8.0 * grown / num_users
    return math.log1p(math.tanh(0.5 * local_epsilon) * spread)


def distance_of_randomizers(local_epsilon: float, local_delta: float, num_users: int) -> float:
    """Total variation between a round of an (e0, d0)-DP randomiser and one with the pair, rounded up.

    >>> distance_of_randomizers(1.0, 0.0, 100)
    0.0
    """
    kept = math.exp(-local_epsilon)
    share = kept / (1.0 + kept)
    return min(1.0, local_delta * (share + (num_users - 1) * 2.0 * kept * (1.0 + share)) * (1.0 + 1e-14))


def _numbers_of_ones(local_epsilon: float, num_users: int) -> Atoms:
    """Atoms of the number of ones without user 1's one, against that with it."""
    odds = math.exp(-local_epsilon)
    chance = odds / (1.0 + odds)
    mean = num_users * chance
    reach = math.sqrt(2.0 * _TAIL * mean)
    low, high = max(0, math.floor(mean - reach)), min(num_users, math.ceil(mean + reach + _TAIL))
    ones = np.arange(low, high + 1, dtype=np.float64)
    logs = _log_law(np.log(num_users - ones[:-1]) - np.log(ones[1:]) - local_epsilon)
    if local_epsilon > _HARDLY_RANDOM:
        with np.errstate(divide="ignore"):
            losses = -np.logaddexp(
                np.log1p(-ones / num_users) - local_epsilon, np.log(ones / num_users) + local_epsilon
            )
        return Atoms(logs[::-1], losses[::-1])
    # Q-mass over P-mass, less 1.
    lean = ((num_users - ones) * math.expm1(-local_epsilon) + ones * math.expm1(local_epsilon)) / num_users
    starts = np.arange(0, ones.size, max(1, int(_CELL * math.sqrt(mean * (1.0 - chance)))))
    cells = np.logaddexp.reduceat(logs, starts)
    shares = np.exp(logs - np.repeat(cells, np.diff(np.append(starts, ones.size))))
    losses = -np.log1p(np.add.reduceat(shares * lean, starts) / np.add.reduceat(shares, starts))
    return Atoms(cells[::-1], losses[::-1])


def _differences(local_epsilon: float, num_users: int) -> Atoms:
    """Atoms of the number of the first category less that of the second, user 1 having the first or the second."""
    odds, others = math.exp(-local_epsilon), num_users - 1
    chance = odds / (1.0 + 2.0 * odds)
    reach = math.ceil(math.sqrt(4.0 * _TAIL * others * chance) + _TAIL)
    last = min(others, reach)
    # b(d - 1) / b(d) for the law b of the others' difference, d = -last .. 0; b is even.
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
    # Q's mass less P's: what is small is not a difference of two sums.
    shift = math.expm1(-local_epsilon) * (lower - upper) / (1.0 + 2.0 * odds)
    deviation = math.sqrt(2.0 * others * chance)
    half = np.arange(p.size // 2 + 1, p.size, max(1, int(_CELL * deviation)))
    starts = np.concatenate([[0], p.size - half[::-1], [p.size // 2], half])
    starts = np.unique(starts)
    p, shift = np.add.reduceat(p, starts), np.add.reduceat(shift, starts)
    kept = p > 0.0
    return Atoms(np.log(p[kept]), -np.log1p(shift[kept] / p[kept]))


def _trinomial_ratios(steps: int, weight: float, length: int) -> Array:
    """a_(k+1) / a_k for the last ``length`` k < steps, where a_k are the coefficients of (1 + weight z + z^2)^steps.

    From the recurrence (k + 1) a_(k+1) = weight (steps - k) a_k + (2 steps - k + 1) a_(k-1), whose terms are positive.
    Where it does not begin at k = 0 it forgets its beginning within the first third.
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
    # No clone at all: the loss is e0 or -e0.
    masses = np.zeros(nodes.size)
    masses[-1], masses[0] = _LEFT_OUT / (1.0 + kept), _LEFT_OUT * kept / (1.0 + kept)
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
    """Numbers of clones and their probabilities: Bin(others, chance), grouped downward."""
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
    """Losses and P-masses of the numbers of messages from Q0, given how many clones there are."""
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
    """A law from the logarithms of the ratios of neighbours, relatively accurate around its mode."""
    law: Array = np.exp(_log_law(log_ratios))
    return law


def _log_law(log_ratios: Array) -> Array:
    """Its logarithms."""
    logs = np.append(0.0, np.cumsum(log_ratios))
    mode = int(np.argmax(logs))
    # Sums from the mode outward do not carry the rounding of the far side.
    right = np.append(0.0, np.cumsum(log_ratios[mode:]))
    left = -np.cumsum(log_ratios[:mode][::-1])[::-1]
    outward = np.concatenate([left, right])
    log_law: Array = outward - math.log(float(np.exp(outward).sum()))
    return log_law


def _nodes(local_epsilon: float, clones: float) -> Array:
    """Losses from -e0 to e0, fine in the middle."""
    deviation = 2.0 * math.tanh(0.5 * local_epsilon) / math.sqrt(clones + 1.0)
    fine = deviation / _FINENESS
    inner = np.arange(0.0, min(_FINE_REACH * deviation, local_epsilon), fine)
    levels = max(0.0, math.log(local_epsilon / inner[-1]) / math.log(_GROWTH))
    outer = inner[-1] * _GROWTH ** np.arange(1.0, 1.0 + levels)
    positive = np.concatenate([inner[1:], outer[outer < local_epsilon * (1.0 - 1e-9)], [local_epsilon]])
    return np.concatenate([-positive[::-1], [0.0], positive])
