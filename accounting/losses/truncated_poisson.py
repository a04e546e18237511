"""Poisson batches that are cut to a largest size: Poisson's account and what the cut may change.

A step draws a Poisson batch and, where it has more than B records, leaves some of them out. How they are chosen does
not matter here. For each data set by itself, of n records, the batch is the Poisson batch unless that one has more than
B records, which has probability P(Bin(n, q) > B): so the step's output is within that total variation t of the step on
the Poisson batch. t grows with n, and a declared bound on n (of both neighbours) bounds it. With
`accounting.discrepancy`, T steps cost

    delta(eps) <= delta_poisson(eps) + T t (1 + e^eps).

That is Chua et al. 2024 (Scalable DP-SGD: Shuffling vs. Poisson Subsampling), Theorem 3.3 and its proof, where both
neighbours' batches are cut. Nothing is compared batch by batch between neighbours: with a batch cut, a record that goes
may let another one in, which is why there is no cost without amplification at the distance of one record, and no
Renyi or pure cost at all here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from accounting.discrepancy import Discrepancy
from accounting.events.event import Event
from accounting.events.samplings import FULL_BATCH, Poisson, Sampling, TruncatedPoisson
from accounting.losses.rules import SamplingRules, sampling_rules_for

#: Covers the rounding of the logarithms and sums below: of the exponent absolutely, so of the tail relatively.
_ALLOWANCE = 2e-9
_MOST_TERMS = 400_000


@lru_cache(maxsize=4096)
def exceedance(trials: int, probability: float, largest: int) -> float:
    """P(Bin(trials, probability) > largest), rounded up.

    Args:
        trials: 1 to 1e9.
        probability: in (0, 1].
        largest: nonnegative.

    Returns:
        At least the tail and at most 1; within 1e-7 of it, relatively, where ``largest`` and ``trials - largest`` are
        1000 at least (for smaller ones Stirling's bounds add up to 1e-2). Where the tail holds the mean: 1. It is never
        0 where the tail is not.

    Guarantees: tail_is_rounded_up_and_close.

    >>> exceedance(10, 0.5, 10), exceedance(10, 0.5, 2)
    (0.0, 1.0)
    """
    k, n, q = largest + 1, trials, probability
    if k > n:
        return 0.0
    # Exactly, because the logarithms below cancel.
    beyond = float(Fraction(k) - n * Fraction(q))
    if beyond <= 0.0:
        return 1.0
    if k == n:
        return max(math.exp(max(n * math.log(q) * (1.0 - 1e-15), -745.0)), 5e-324) * (1.0 + _ALLOWANCE)
    rest = n - k
    # The mean over k; where it is small its logarithm is taken as it is, because 1 less it loses its digits.
    log_share = math.log1p(-beyond / k) if beyond < 0.5 * k else math.log(n) + math.log(q) - math.log(k)
    divergence = -k * log_share - rest * math.log1p(beyond / rest)
    # Stirling with Robbins' bounds: n! from above, k! and (n - k)! from below.
    stirling = 1.0 / (12.0 * n) - 1.0 / (12.0 * k + 1.0) - 1.0 / (12.0 * rest + 1.0)
    log_mass = stirling - divergence - 0.5 * math.log(2.0 * math.pi * k * (rest / n))
    terms = min(rest, _MOST_TERMS, int(12.0 * math.sqrt(n * q * (1.0 - q))) + 60)
    places = k + np.arange(terms, dtype=np.float64)
    ratios = (n - places) / (places + 1.0) * (q / (1.0 - q))
    following = np.cumprod(ratios)
    last = float(ratios[-1])
    total = 1.0 + float(following.sum()) + float(following[-1]) * last / (1.0 - last)
    log_tail = log_mass + math.log(total) + _ALLOWANCE + 1e-12 * divergence
    return min(1.0, max(math.exp(max(log_tail, -745.0)), 5e-324))


@sampling_rules_for(TruncatedPoisson)
class TruncatedPoissonRules(SamplingRules[TruncatedPoisson]):
    def stand_in(self, event: Event, sampling: TruncatedPoisson) -> tuple[Event, Discrepancy]:
        """Poisson batches, and how often one of them is cut."""
        probability = sampling.sampling_probability
        cut = exceedance(sampling.dataset_size, probability, sampling.max_batch_size)
        whole: Sampling = Poisson(probability) if probability < 1.0 else FULL_BATCH
        return Event(event.mechanism, whole, event.count), Discrepancy.of_total_variation(cut, event.count)
