"""This module accounts the Poisson-sampled Gaussian mechanism for a group of k records, by mixtures over how many are
in the batch.

Let w_h be the binomial probability that h of the k records are in the batch. If all records of the group contribute the
same vector of norm 1, the pairs are

* add_or_remove_one, replace_special (the group comes or goes, or becomes null): sum_h w_h N(h, s^2) against N(0, s^2);
* replace_one (all of it is replaced): sum_h w_h N(h, s^2) against sum_h w_h N(-h, s^2).

These pairs dominate for all contributions u_i (and v_i) of norm at most 1. Let p_S be the probability that the subset S
of the group is in the batch. Let Y_S be the log-normal ratio of N(sum of u_i over S) to N(0), and Z_S that of the v_i.
A hockey stick is the mean of (sum p_S Y_S - g)_+ or (sum p_S Y_S - g sum p_S Z_S)_+ under N(0). This function is
convex. Its second derivatives are nonnegative among the Y and among the Z, and not positive between them. Gaussian
interpolation shows that it grows with <u_i, u_j> and <v_i, v_j> and falls with <u_i, v_j>. The choice u_i = 1, v_i = -1
has the largest and smallest of all these products at once. The other direction is the same with signs exchanged, and
other records average out by joint convexity. (Ganesh 2024 has the first pair.) Records that agree attain the pairs.

The number of records of the group in the batch does not depend on their values. Under the condition that this number is
at most H, the same holds with the conditional probabilities. The event of a larger number adds at most its probability
to delta (`rare`).
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from accounting.losses.hits import FEW_HITS, HitsLoss
from accounting.losses.privacy_loss import GroupStep

#: The most records of one group in one batch that are told apart; a profile is a sum with that many terms.
MOST_HITS = 256
#: For a group larger than `FEW_HITS`, the largest probability that a batch has more
#: of the group's records than are counted separately.
_RARE = 1e-50


def group_poisson_loss(
    noise_multiplier: float, sampling_probability: float, group_size: int, *, replaced: bool
) -> HitsLoss | None:
    """Return the loss with the fewest hits that leave out a probability of at most `_RARE`; None if more than
    `MOST_HITS` are needed.

    Args:
        noise_multiplier: The noise multiplier s, over one record's contribution bound.
        sampling_probability: The sampling probability q, below 1.
        group_size: The size k of the group, at least 2.
        replaced: Whether the group is replaced by another one.
    """
    hits = min(group_size, MOST_HITS)
    if group_size > FEW_HITS:
        enough = scipy.special.bdtrc(np.arange(hits + 1), group_size, sampling_probability) <= _RARE
        if not bool(enough[-1]):
            return None
        hits = max(1, int(np.argmax(enough)))
    h = np.arange(hits)
    odds = np.log((group_size - h) / (h + 1.0)) + math.log(sampling_probability) - math.log1p(-sampling_probability)
    # The weights of larger numbers of hits are negligible, so they are not rescaled to a sum of 1.
    log_weights = group_size * math.log1p(-sampling_probability) + np.concatenate([[0.0], np.cumsum(odds)])
    return HitsLoss(noise_multiplier, tuple(log_weights.tolist()), replaced)


def group_step(
    noise_multiplier: float, sampling_probability: float, group_size: int, *, replaced: bool
) -> GroupStep | None:
    """Return the loss of a group's step, and the probability that a batch has more records of the group than the
    loss covers.
    """
    loss = group_poisson_loss(noise_multiplier, sampling_probability, group_size, replaced=replaced)
    if loss is None:
        return None
    rare = float(scipy.special.bdtrc(loss.most_hits, group_size, sampling_probability)) * (1.0 + 1e-9)
    return GroupStep(loss, is_exact=True, rare=rare if loss.most_hits < group_size else 0.0)


def probability_of_some(single: float, size: int) -> float:
    """Return the probability that a batch holds at least one of ``size`` records, rounded up.

    Args:
        single: The probability that one record is in the batch. Records are sampled independently.
    """
    return min(1.0, -math.expm1(size * math.log1p(-single)) * (1.0 + 1e-14))
