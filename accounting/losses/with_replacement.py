"""Batches of a fixed size drawn with replacement, under replace_one: a mixture over how often a record is drawn.

A step makes b independent draws of one of n records, so that a record may be in the batch several times, and counts as
often. With eta = 1 - (1 - 1/n)^b, the probability that a given record is drawn at all, and H_a the hockey stick,

    H_g <= sum over k of P(Bin(b, 1/n) = k) H_g'(P_k | Q_k),    g' = 1 + (g - 1)/eta,    g >= 1,

where (P_k, Q_k) dominates the mechanism on two batches that differ in k places (Balle, Barthe & Gaboardi 2018, Theorem
10). Proof: given that the record is not drawn, the neighbours' outputs have one law R; given that it is drawn, let them
be P and Q, so that by their Theorem 2 (advanced joint convexity)
H_g((1-eta) R + eta P | (1-eta) R + eta Q) = eta H_g'(P | (1-c) R + c Q), c = g'/g, which is at most
eta [(1-c) H_g'(P|R) + c H_g'(P|Q)]. The number k of places that hold the record is distributed alike on both sides,
and in R they may be filled with other records: both sticks are at most sum over k of P(k | k >= 1) H_g'(P_k|Q_k).

For a sum of contributions, k places are a distance of 2k. So each term, over P(k | k >= 1), is the remove profile of
Poisson's pair with probability eta at sensitivity 2k, and the whole is a mixture, whose branch k is seen, of the
symmetrised pairs of `accounting.losses.without_replacement` with q = eta: for g < 1 the bound is mirrored, because
both neighbours' order is bounded alike, and a mixture of profiles of pairs is the profile of one, so that compositions
are dominated by its compositions (Zhu, Dong & Wang 2022).

A record that is null in its place is another record: replace_special is charged the same. A batch of one draw is a
batch of one record without replacement.
"""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.events.gaussian import Gaussian
from accounting.events.laplace import Laplace
from accounting.events.samplings import WithReplacement
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.rules import sampled
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation

#: Hits beyond which all together are less likely than this are charged as if every draw were the record.
_NEGLIGIBLE = 1e-60
#: Relative; covers the rounding of the weights.
_ALLOWANCE = 1e-13


@lru_cache(maxsize=1024)
def hits(draws: int, records: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The number of times that one of ``records`` records is drawn.

    Args:
        draws: 1 to ``records``.
        records: at least 2.

    Returns:
        eta, and (k, P(k hits | k >= 1)) for k from 1 on. The last one may stand for all larger k: it is then ``draws``,
        with a bound of their probability, at most 1e-60.

    Guarantees: hits_are_binomial; tail_is_lumped_upward.
    """
    log_missed = draws * math.log1p(-1.0 / records)
    eta = -math.expm1(log_missed)
    weight, kept = math.exp(log_missed), []
    for k in range(1, draws + 1):
        weight *= (draws - k + 1) / k / (records - 1)
        kept.append((k, weight / eta))
        # P(at least k + 1 hits) <= C(b, k + 1) / n^(k + 1), and C(b, k + 1) <= b^(k + 1) / (k + 1)!.
        beyond = math.exp((k + 1) * math.log(draws / records) - math.lgamma(k + 2.0)) * (1.0 + _ALLOWANCE) / eta
        if k < draws and beyond <= _NEGLIGIBLE:
            kept.append((draws, beyond))
            break
    return eta, tuple(kept)


@sampled(Gaussian, WithReplacement)
def gaussian_hits(
    mechanism: Gaussian, sampling: WithReplacement, _relation: NeighboringRelation, sensitivity: float
) -> VisibleMixtureLoss:
    """Gaussian noise; ``sensitivity`` is that of one place."""
    noise = mechanism.noise_multiplier
    eta, kept = hits(sampling.batch_size, sampling.dataset_size)
    pairs = tuple(SymmetrizedLoss(PoissonGaussianLoss(noise / (sensitivity * k), eta)) for k, _ in kept)
    return VisibleMixtureLoss(tuple(weight for _, weight in kept), pairs)


@sampled(Laplace, WithReplacement)
def laplace_hits(
    mechanism: Laplace, sampling: WithReplacement, _relation: NeighboringRelation, sensitivity: float
) -> VisibleMixtureLoss:
    """Laplace noise; as `gaussian_hits`."""
    noise = mechanism.noise_multiplier
    eta, kept = hits(sampling.batch_size, sampling.dataset_size)
    pairs = tuple(SymmetrizedLoss(PoissonLaplaceLoss(sensitivity * k / noise, eta)) for k, _ in kept)
    return VisibleMixtureLoss(tuple(weight for _, weight in kept), pairs)
