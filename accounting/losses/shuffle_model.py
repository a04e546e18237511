"""This module accounts the shuffle model: n users randomise locally, and only the multiset of their messages is seen.

REQUIRED: all users of a round apply the SAME randomiser R, which may depend on what earlier rounds have shown, and on
nothing else (or: records are shuffled first, and the i-th of them given to an i-th randomiser). Users with randomisers
of their own, each e-DP, are not covered: if their messages have no symbol in common, each message reveals its sender,
shuffling hides nothing, and a round costs e.

Let R be e-DP, e = ``local_epsilon``, E = e^e, and let P0, P1 be the laws of user 1's message. For users 2 to n, each
message is, with probability 2 / (E + 1), one that hides which of the two inputs user 1 has; the numbers

    C ~ Bin(n - 1, 2 / (E + 1)),  A ~ Bin(C, 1/2),  D ~ Bernoulli(E / (E + 1)),
    (A + D, C - A + 1 - D)  against  (A + 1 - D, C - A + D)

dominate the round, and their powers dominate compositions in which the randomiser may depend on earlier rounds. At
(i, j) the loss is log (E i + j) / (i + E j).

Proof. For each other user R(x) >= B := max(P0, P1) / E, because P0 and P1 are R's own laws at two other inputs. So she
sends a message of B's law with probability b, the mass of B; let all other messages be seen separately. Given how many
are left, the density of the shuffled ones against the product of B / b is the mean of b P0 / B over them, whence

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
and P1. (Feldman, McMillan & Talwar 2021 have e^-e in place of 2 / (E + 1). Their 2023 paper has 2 / (E + 1) for some
randomisers; its proof for all randomisers was withdrawn: errata to arXiv 2208.04591, Lemma 3.5. The proof above is a
different one.)

The bound is inexact only because messages that are not of B's law are seen separately. No randomiser is known to attain
the pair.

From below, there are two randomisers, and the one with the larger divergence of order 2 is used.

* Randomised response on one bit, user 1 with a 1 or a 0 if all others have a 0. The number of ones is

      Bin(n, p)  without user 1's one,  Bin(n - 1, p) + Bernoulli(1 - p)  with it,  p = 1 / (E + 1),

  and at j ones the loss of the first against the second is -log [((n - j) / E + j E) / n]. Both directions count.
* Randomised response on three categories, user 1 with the first or the second where all others have the third. The
  difference of the numbers of the first and of the second, a post-processing, is S + 1, S or S - 1 with probabilities
  E c, c and c or c, c and E c, where c = 1 / (E + 2), and S is a sum of n - 1 steps of 1, 0 and -1 with probabilities
  c, E c and c. For large e this randomiser comes near the pair.

With many users, no score attains more than these two, so it is the pair that is loose. Let d = P0 - P1, and let others
have the laws M_i. A score a of the messages moves its sum by a.d, over a variance that is the sum of Var_M_i(a): at
most as if all others had the law M of the smallest variance. For one M the largest (a.d)^2 / Var_M(a) is the sum of
d^2 / M. With p = P0 / M and q = P1 / M that is the mean of (p - q)^2 under M, where p and q have mean 1 and 1/E <= p,
q, p/q <= E. That is a hexagon, and (p - q)^2 is convex, so that only its corners matter: (E, 1) and (1, E) with
(E - 1)^2, (1, 1/E) and (1/E, 1) with (1 - 1/E)^2, (E, E) and (1/E, 1/E) with 0. Let their masses be x, y, u and v. By
symmetry x (E + 1) / 2 + y (E + 1) / (2 E) + u E + v / E = 1 and x + y + u + v = 1, a linear programme of two equations:
two masses are positive. A bit is x and y, with (E - 1)^2 / E; three categories are x and v, with 2 (E - 1)^2 / (E + 2);
y and u have 2 (E - 1)^2 / (E (2 E + 1)), which is less, u and v have 0, and other pairs have no mean of 1.

(e, d)-DP randomisers. P0 and P1 are within total variation d / (1 + E) of an e-DP pair P0', P1' each (Dwork & Roth
2014, Lemma 3.17), and each other R(x) is within m of a law that is at least max(P0', P1') / E: raise it there and take
the added mass away elsewhere. m is what R(x) falls short of it at most: where P0' is the larger one, d / E and the
change of P0', which is d / (E (1 + E)), and as much where P1' is. In all, each data set's messages are within

    d / (1 + E) + (n - 1) 2 d (1 + 1 / (1 + E)) / E

of those of randomisers with the pair above; `accounting.discrepancy` has what that adds to delta.

The numbers of the laws are in `shuffled_counts`.
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
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import SamplingRules, rules_of, sampled, sampling_rules_for
from accounting.losses.shuffled_counts import HARDLY_RANDOM, LEFT_OUT, ClonesLoss, ResponsesLoss, ThreeCategoriesLoss
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]

#: The local epsilon e0 below which e^-e0 rounds to 1.
_HARDLY_BIASED = 1e-15
#: The smallest local epsilon at which three categories are tried. Below it they attain far less than one bit.
_THREE_FROM = 0.3


@dataclass(frozen=True, slots=True)
class ShuffledLoss(PrivacyLoss):
    """Loss of one round of shuffled messages, all of the same randomiser; it lies between two pairs.

    Attributes:
        local_epsilon: The local epsilon e0 of the randomiser.
        num_users: The number n of users.
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
        if self.local_epsilon < _HARDLY_BIASED or self.num_users * math.exp(-self.local_epsilon) < LEFT_OUT:
            # If clones hardly ever occur, or cannot be told apart, the loss is that of user 1's message alone.
            return RandomizedResponseLoss(self.local_epsilon)
        return ClonesLoss(self.local_epsilon, self.num_users)

    @property
    def attained(self) -> ResponsesLoss | ThreeCategoriesLoss | RandomizedResponseLoss:
        if self.local_epsilon < _HARDLY_BIASED:
            return RandomizedResponseLoss(0.0)
        bits = ResponsesLoss(self.local_epsilon, self.num_users)
        if not _THREE_FROM < self.local_epsilon < HARDLY_RANDOM:
            return bits
        three, second = ThreeCategoriesLoss(self.local_epsilon, self.num_users), np.ones(1)
        return three if three.log_moment(second)[0] > bits.log_moment(second)[0] else bits

    def log_moment(self, tilts: Array) -> Array:
        return self.dominating.log_moment(tilts)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return self.dominating.support(log_mass, remove=remove)


@sampled(PureDp, ShuffleModel)
@sampled(ApproximateDp, ShuffleModel)
def shuffled(
    mechanism: PureDp | ApproximateDp, sampling: ShuffleModel, _relation: NeighboringRelation, sensitivity: float
) -> PrivacyLoss:
    """Return the loss of a round. With a single user it is the loss of the local randomiser, because nothing is
    shuffled.
    """
    if sampling.num_users > 1:
        return ShuffledLoss(sampling.local_epsilon, sampling.num_users)
    return rules_of(mechanism).loss(mechanism, sensitivity)


@sampling_rules_for(ShuffleModel)
class ShuffleModelRules(SamplingRules[ShuffleModel]):
    def stand_in(self, event: Event, sampling: ShuffleModel) -> tuple[Event, Discrepancy]:
        """Return the event with a pure randomiser in place of one with a delta, and a bound of the distance between
        the two rounds.
        """
        users, epsilon = sampling.num_users, sampling.local_epsilon
        if sampling.local_delta == 0.0:
            return event, Discrepancy()
        distance = distance_of_randomizers(epsilon, sampling.local_delta, users)
        pure = Event(PureDp(epsilon), ShuffleModel(users, epsilon, 0.0), event.count)
        return pure, Discrepancy.of_total_variation(distance, event.count)


def closed_form_epsilon(local_epsilon: float, num_users: int, delta: float) -> float | None:
    """Return the central epsilon of one round, as published; None if local_epsilon > log(n / (16 log(2 / delta))).

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
    """Return a bound of the total variation between a round of an (e0, d0)-DP randomiser and a round that the pair
    dominates.

    >>> distance_of_randomizers(1.0, 0.0, 100)
    0.0
    """
    kept = math.exp(-local_epsilon)
    share = kept / (1.0 + kept)
    return min(1.0, local_delta * (share + (num_users - 1) * 2.0 * kept * (1.0 + share)) * (1.0 + 1e-14))
