"""The shuffle model: n users randomise locally, and only the multiset of their messages is seen.

REQUIRED: all users of a round apply the SAME randomiser R, which may depend on what earlier rounds have shown, and on
nothing else (or: records are shuffled first, and the i-th of them given to an i-th randomiser). Users with randomisers
of their own, each e-DP, are not covered: where their messages have no symbol in common, each message tells whose it
is, shuffling hides nothing, and a round costs e.

Let R be e-DP, e = ``local_epsilon``. For users 2 to n, each message is, with probability e^-e, one that hides which of
two inputs user 1 has (Feldman, McMillan & Talwar 2021, Theorem 3.1 and its proof). With P0, P1 the laws of user 1's
message, P0 = (e^e Q0 + Q1) / (e^e + 1), and P1 likewise with Q0 and Q1 exchanged, because every e-DP pair is a
post-processing of randomised response; and R(x) >= e^-e max(P0, P1) >= e^-e (P0 + P1)/2 = e^-e (Q0 + Q1)/2 for every
x, because P0 and P1 are R's own laws at two other inputs. So each other user is a clone, of Q0 or of Q1 with equal
chances, with probability e^-e. The numbers of messages from Q0 and from Q1 are all that depends on user 1's input:

    C ~ Bin(n - 1, e^-e),  A ~ Bin(C, 1/2),  D ~ Bernoulli(e^e / (e^e + 1)),
    (A + D, C - A + 1 - D)  against  (A + 1 - D, C - A + D)

dominates the round, and its powers dominate compositions in which the randomiser may depend on earlier rounds. At
(i, j) the loss is log (e^e i + j) / (i + e^e j). No randomiser is known to attain the pair: it bounds from above only.

From below: randomised response on one bit, user 1 with a 1 or a 0 where all others have a 0. The number of ones is

    Bin(n, p)  without user 1's one,  Bin(n - 1, p) + Bernoulli(1 - p)  with it,  p = 1 / (e^e + 1),

and at j ones the loss of the first against the second is -log [((n - j) e^-e + j e^e) / n]. Both directions count.

A sharper bound that is not used. Common parts of P0 and P1 may be split off: P0 = g (e^e Q0' + Q1') / (e^e + 1) + W,
P1 likewise, W common to both, and R(x) >= g (Q0' + Q1') / (e^e + 1). So delta is at most g times that of the pair above
with 2 g / (e^e + 1) for e^-e, g in (0, 1] being the randomiser's. But g is not known here, and the largest of these
bounds over g is the greater one wherever delta is small: 4.7e-4 for the worked number of the page, where the pair above
has 1e-6. Nor is the bound of Feldman, McMillan & Talwar 2023 used: its proof holds for some randomisers only (errata to
arXiv 2208.04591, Lemma 3.5).

Numbers. Fewer clones are a bound, as further ones can be added afterwards. So where there are many, numbers of clones
are grouped, each group counted as its smallest number; what is less likely than 1e-59 in all counts as no clone at
all. And outcomes are put on some thousands of losses, each one's P-mass and Q-mass split between two neighbours and
kept ("connect the dots"), which only adds to the profile. Both cost about 1e-4 of epsilon. From below neighbouring
numbers of ones are seen as one outcome, a post-processing; numbers less likely than 1e-59 are left out.

(e, d)-DP randomisers. P0 and P1 are within total variation d / (1 + e^e) of an e-DP pair P0', P1' each (Dwork & Roth
2014, Lemma 3.17), and each other R(x) is within m of a law that is at least e^-e (P0' + P1')/2: raise it there and
take the added mass away elsewhere. m is what R(x) falls short of it at most, e^-e d for (P0 + P1)/2 and e^-e d / (1 +
e^e) for the change to P0', P1'. In all, each data set's messages are within

    d / (1 + e^e) + (n - 1) e^-e d (1 + 1 / (1 + e^e))

of those of randomisers with the pair above; `accounting.discrepancy` has what that adds to delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    def attained(self) -> ResponsesLoss | RandomizedResponseLoss:
        if self.local_epsilon < _HARDLY_BIASED:
            return RandomizedResponseLoss(0.0)
        return ResponsesLoss(self.local_epsilon, self.num_users)

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
    return min(1.0, local_delta * (share + (num_users - 1) * kept * (1.0 + share)) * (1.0 + 1e-14))


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


def _clones(local_epsilon: float, num_users: int) -> Atoms:
    kept = math.exp(-local_epsilon)
    clones, weights = _groups(num_users - 1, kept)
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
