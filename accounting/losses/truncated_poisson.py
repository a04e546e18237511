"""This module accounts Poisson batches that are cut to a largest size B. Their cost depends on which records are left
out.

**Arbitrary.** For each data set of n records by itself, the batch is the Poisson batch unless the Poisson batch has
more than B records. That has probability t = P(Bin(n, q) > B), so the step's output is within total variation t of the
step on the Poisson batch. t grows with n, and a declared bound on n (of both neighbours) bounds it. With
`accounting.discrepancy`, T steps cost

    delta(eps) <= delta_poisson(eps) + T t (1 + e^eps).

That is Chua et al. 2024 (Scalable DP-SGD: Shuffling vs. Poisson Subsampling), Theorem 3.3 and its proof, where both
neighbours' batches are cut. Neighbours are not compared batch by batch, because a record that leaves a cut batch may
let another record in. So no bound holds that treats a step as a full batch at the distance of one record, and no Renyi
or pure cost is known.

**Random.** All subsets of B records of a larger batch are equally likely. Let a be the number of the others that are
sampled, of n - 1. If a < B nothing is cut, whether the record comes or not. If a >= B the batch without the
record is a uniform subset V of B others; with it, which is sampled with probability q, the record stays with
probability B/(a + 1) and then takes the place of a uniform w in V. Given a, (V, w) is uniform, so a may be averaged
first. With

    tau = P(Bin(n-1, q) >= B),      r = E[q B/(a + 1) | a >= B] = B P(Bin(n, q) >= B + 1) / (n tau) <= q B/(B + 1)

the step is dominated by a mixture whose branch is seen. With probability 1 - tau it is Poisson's pair of the relation,
and with probability tau (by joint convexity over V, w and a, and the covariances of `losses.poisson`):

* `add_or_remove_one`: (1-r) N(0) + r N(2) against N(0), as x - w has a norm of at most 2;
* `replace_special`: the pair of `losses.displacement`;
* `replace_one`: the symmetrised pair of `losses.without_replacement` at distance 2.

The number of records is public under the replace relations, and n is `dataset_size`. Under `add_or_remove_one` it is
not: `dataset_size` is the largest possible n, and the cost is not monotone in n. One pair bounds the costs of all n.
Let D_r be (1-q) N(0) + (q-r) N(1) + r N(2) against N(0), a hit of distance 1 or 2.

* The events at which a hockey stick is attained are half-lines, on which mass that moves away from 0 counts for more.
  So D_r costs no less than the cut's pair above, and D_0 is Poisson's.
* A hockey stick is convex in its first law and in its second. So that of D_r is at most (1 - r/r') times that of D_0
  plus r/r' times that of D_r', for r <= r'.
* With r' = q B/(B + 1) every n is dominated by the pair that is seen to be D_r' with probability tau r / r', and D_0
  otherwise; and this pair costs the more, the larger that probability is.

So the decisive number is the largest tau r = g(n) = B P(Bin(n, q) >= B + 1) / n, the probability that a record takes
part in a batch that was cut. g(n + 1) / g(n) = (n + 1/R(n)) / (n + 1) with R(n) = P(Bin(n, q) > B) / (n q P(Bin(n, q) =
B)), which grows with n because it is a sum of products of (n - B) / n and of (n - B - i) / (B + i + 1). So g rises up
to the n where R is 1, and falls from there on. From below: if all others' contributions are 0, the record takes part
with probability (1 - tau) q + tau r. With q = 1, batches have a fixed size.

**Random slots.** n slots are drawn, each with a record or empty, and an empty slot takes a place in the batch, as a
null record. All slots are drawn alike, so the slot of a record does not matter. Two data sets of which one has one more
record are therefore data sets of n slots that differ in one slot, which is empty in one of them: `add_or_remove_one`
costs what `replace_special` does, at a public n. The number of records stays private, and has no effect on the law of
the draws.
"""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.discrepancy import Discrepancy
from accounting.events.event import Event
from accounting.events.gaussian import Gaussian
from accounting.events.samplings import FULL_BATCH, Poisson, Sampling, TruncatedPoisson, WithoutReplacement
from accounting.losses.binomial_tail import binomial_mass, binomial_tail
from accounting.losses.displacement import DisplacementLoss
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.hits import HitsLoss
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import SamplingRules, sampled, sampling_rules_for
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.without_replacement import SymmetrizedLoss, gaussian_without_replacement
from accounting.relations import NeighboringRelation

#: An allowance for the rounding of a probability that is computed from two others.
_ALLOWANCE = 1e-15
#: A share of q that exceeds the rounding of the logarithms of the weights.
_ROUNDING = 1e-14
#: The largest number of candidates for the number of records that are tried one by one.
_FEW = 16
#: The peak of g is searched to one part in this number, since g is level there.
_FINE = 2**24


@sampling_rules_for(TruncatedPoisson)
class TruncatedPoissonRules(SamplingRules[TruncatedPoisson]):
    def stand_in(self, event: Event, sampling: TruncatedPoisson) -> tuple[Event, Discrepancy]:
        """Return the event with Poisson batches, and the probability that one of them is cut, if records are left
        out in an arbitrary way.
        """
        if sampling.is_random and isinstance(event.mechanism, Gaussian):
            return event, Discrepancy()
        probability = sampling.sampling_probability
        cut = binomial_tail(sampling.dataset_size, probability, sampling.max_batch_size + 1).upper
        whole: Sampling = Poisson(probability) if probability < 1.0 else FULL_BATCH
        return Event(event.mechanism, whole, event.count), Discrepancy.of_total_variation(cut, event.count)


@sampled(Gaussian, TruncatedPoisson)
def randomly_truncated(
    mechanism: Gaussian, sampling: TruncatedPoisson, relation: NeighboringRelation, _sensitivity: float
) -> PrivacyLoss:
    """Return the loss of a step whose batch is cut at random."""
    assert sampling.is_random  # Arbitrary cuts were replaced by Poisson batches before this point.
    if sampling.truncation == "random_slots" and relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        relation = NeighboringRelation.REPLACE_SPECIAL
    noise, probability, size = mechanism.noise_multiplier, sampling.sampling_probability, sampling.max_batch_size
    if probability == 1.0:
        if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            return GaussianLoss(2.0 / noise)
        fixed = WithoutReplacement(size, sampling.dataset_size)
        return gaussian_without_replacement(mechanism, fixed, relation, relation.sensitivity)
    most = math.nextafter(probability, 0.0)
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        return _of_private_size(noise, probability, size, sampling.dataset_size)
    return _of_public_size(noise, probability, size, sampling.dataset_size, relation, most)


def _of_private_size(noise: float, probability: float, size: int, most_records: int) -> EnclosedLoss:
    """Return a loss of a record that comes or goes. It dominates for every number of records up to ``most_records``.

    Data sets of few records are never cut, and so attain Poisson's pair.
    """
    whole: PrivacyLoss = PoissonGaussianLoss(noise, probability)
    farther: PrivacyLoss = PoissonGaussianLoss(noise / 2.0, probability)
    # r' may be larger than q B / (B + 1). It is chosen larger, by more than the rounding of the logarithms of the
    # weights.
    near = probability * (1.0 / (size + 1.0) - _ROUNDING)
    displaced, cut = probability, farther
    if near > 0.0:
        displaced = probability - near
        cut = HitsLoss(noise, (math.log1p(-probability), math.log(near), math.log(displaced)), replaced=False)
    seen = min(most_displaced(probability, size, most_records) / displaced * (1.0 + 4.0 * _ALLOWANCE), 1.0)
    return EnclosedLoss(_seen((1.0 - seen, whole), (seen, cut)), whole, farther)


@lru_cache(maxsize=256)
def most_displaced(probability: float, size: int, most_records: int) -> float:
    """Bound g(n) over all n up to ``most_records``.

    g rises up to n q = B: there (n - B) q / (1 - q) <= n q, so R(n) <= (1 + s + s^2 + ...) / (B + 1) < 1 with s = B /
    (B + 2). R may be so close to 1 that it is not known on which side it lies. Then this fact is used: from n to a
    larger m, g grows by at most a factor of (m / n)^(1/R(n) - 1).

    Args:
        probability: The probability q, in (0, 1).
        size: The largest size B of a batch.
        most_records: The largest number of records, above B and at most 1e13.

    Guarantees: the_number_of_records_that_is_cut_most_is_found.

    >>> most_displaced(0.5, 1, 2)  # two records, both sampled, of which one is kept
    0.125...
    """

    def bound(records: int) -> float:
        return size / records * binomial_tail(records, probability, size + 1).upper * (1.0 + _ALLOWANCE)

    def falling(records: int) -> tuple[float, float]:
        """Bound R(n) from both sides; g falls after n if R(n) is above 1."""
        kept, mass = binomial_tail(records, probability, size + 1), binomial_mass(records, probability, size)
        low, high = records * probability * mass[0] * (1.0 - _ALLOWANCE), records * probability * mass[1]
        return kept.lower / high * (1.0 - _ALLOWANCE), kept.upper / low if low > 0.0 else math.inf

    rising = min(max(size, math.floor(size / probability)), most_records)
    if rising == most_records:
        return bound(most_records)
    # The peak is mostly a few deviations above the mean B: a search that begins there needs no large tails.
    peak_end = min(math.ceil((size + 10.0 * math.sqrt(size) + 20.0) / probability), most_records)
    for far in (peak_end, most_records):
        if falling(far)[1] > 1.0:
            break
        rising = far
    else:
        return bound(most_records)
    while far - rising > 1 + rising // _FINE:
        middle = (rising + far) // 2
        rising, far = (middle, far) if falling(middle)[1] <= 1.0 else (rising, middle)
    while far < most_records and falling(far)[0] < 1.0:
        far = min(rising + 2 * (far - rising), most_records)
    if far - rising <= _FEW:
        return max(bound(records) for records in range(rising, far + 1))
    grown = math.exp((1.0 / falling(rising)[0] - 1.0) * math.log(far / rising))
    return bound(rising) * grown * (1.0 + 8.0 * _ALLOWANCE)


def _of_public_size(
    noise: float, probability: float, size: int, records: int, relation: NeighboringRelation, most: float
) -> EnclosedLoss:
    """Return the loss for this many records under a replace relation.

    Args:
        most: An upper bound of r, below ``probability``.

    tau is known to lie between two numbers. The mass that may belong to either branch goes to a third branch, which
    dominates both: that of a cut with q in place of r. It does so because the covariances of Poisson's pair are below
    those of the cut, and branches grow with r.
    """
    tail, kept = binomial_tail(records - 1, probability, size), binomial_tail(records, probability, size + 1)
    share = size / records
    displaced = min(share * kept.upper / tail.lower * (1.0 + _ALLOWANCE), most) if tail.lower > 0.0 else most
    attained = min((tail.rest_lower * probability + share * kept.lower) * (1.0 - _ALLOWANCE), most)
    # The width of tau's interval is relative to the smaller of tau and 1 - tau.
    unknown = (min(tail.upper - tail.lower, tail.rest_upper - tail.rest_lower)) * (1.0 + _ALLOWANCE)
    certain = tail.lower if tail.upper <= tail.rest_upper else max(1.0 - tail.rest_lower - unknown, 0.0)
    whole_weight = max(1.0 - certain - unknown, 0.0)
    if relation is NeighboringRelation.REPLACE_ONE:
        whole: PrivacyLoss = PoissonReplaceLoss(noise, probability)
        below: PrivacyLoss = PoissonReplaceLoss(noise, attained)
        branch, worst = (SymmetrizedLoss(PoissonGaussianLoss(noise / 2.0, r)) for r in (displaced, probability))
        return EnclosedLoss(_seen((whole_weight, whole), (certain, branch), (unknown, worst)), below, worst)
    whole, below = PoissonGaussianLoss(noise, probability), PoissonGaussianLoss(noise, attained)
    first, last = DisplacementLoss(noise, displaced), DisplacementLoss(noise, probability)
    farther = SymmetrizedLoss(PoissonGaussianLoss(noise / 2.0, probability))
    return EnclosedLoss(_seen((whole_weight, whole), (certain, first), (unknown, last)), below, farther)


def _seen(*branches: tuple[float, PrivacyLoss]) -> PrivacyLoss:
    """Return the mixture of the branches that have a positive weight. Which branch is taken is seen."""
    weights, losses = zip(*((weight, loss) for weight, loss in branches if weight > 0.0), strict=True)
    return VisibleMixtureLoss(weights, losses) if len(losses) > 1 else losses[0]
