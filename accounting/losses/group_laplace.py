"""This module accounts the Poisson-sampled Laplace mechanism for a group of k records, by mixtures over how many are in
the batch.

With w_h the binomial probabilities of h of k records, and L(m) the Laplace law of mean m,

* add_or_remove_one, replace_special: sum_h w_h L(h) against L(0);
* replace_one: sum_h w_h L(h) against sum_h w_h L(-h).

They dominate all contributions u_i (and v_i) of l1 norm at most 1, in any dimension. Let Y_S be the likelihood ratio of
the noise around the sum of u_i over S to that around 0, Z_S that of the v_i, and p_S the probability that S is in the
batch. A hockey stick is the mean of (sum p_S Y_S - g)_+, of (1 - g sum p_S Y_S)_+ or of (sum p_S Y_S - g sum p_S Z_S)_+
around 0.

* The mean of a convex function of a sum is largest if the terms of the sum are comonotone, that is, rise together.
* For comonotone terms, this mean grows with each term's law in the convex order.
* Y_S is below the ratio of L(h) to L(0), h = |S|, in convex order, because a shift of l1 norm h is dominated by the
  shift h of one coordinate (`poisson_laplace`). Likewise -g Z_S is below -g times the ratio of L(-h) to L(0).
* Around 0 in one coordinate the ratio of every L(h) to L(0) rises with the output and that of every L(-h) falls, as the
  law is log-concave. So the pairs above have the largest terms, comonotone.

Other records average out by joint convexity. Records that agree attain the pairs.

The loss rises with the output and is constant outside of [0, k] ([-k, k]), so a part of its law is an atom. Two pairs
of atoms are computed. From below, the outputs of one cell are seen as one, a post-processing. From above, each cell's
mass is put on the likelihood ratios at its ends while Q-mass and P-mass are kept, which is larger in the convex order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.privacy_loss import GroupStep
from accounting.losses.ratio_quadrature import log_f

Array = NDArray[np.float64]

#: The total number of cells, and the least number of cells in the distance by which one record moves the sum.
_CELLS, _LEAST = 6000, 12
#: The largest number of (cells x hits) that are in memory at once.
_BLOCK = 2_000_000


@dataclass(frozen=True, slots=True)
class GroupLaplaceLoss(AtomicLoss):
    """A bound of the loss of a group in one step, from above or from below.

    Attributes:
        epsilon: 1 over the noise multiplier: the largest loss of one record without sampling.
        sampling_probability: The sampling probability q, below 1.
        group_size: The size k of the group, at least 2.
        replaced: Whether the group is replaced by another one.
        upward: Whether the pair bounds from above, and so dominates; otherwise it bounds from below, and is attained.

    Guarantees: profiles_enclose_the_mixture_and_are_close.
    """

    on_lattice = False
    epsilon: float
    sampling_probability: float
    group_size: int
    replaced: bool
    upward: bool

    @property
    def symmetric(self) -> bool:
        return self.replaced

    @property
    def pure_epsilon(self) -> float:
        """k times the largest loss of one record, rounded up. The records are drawn independently, so the largest
        ratio is f(l)^k.
        """
        size, q = self.epsilon, self.sampling_probability
        one = log_f(size, q) - (log_f(-size, q) if self.replaced else 0.0)
        return self.group_size * (one * (1.0 + (8.0 + size) * 2.0**-52) + 5e-324)

    def find_atoms(self) -> Atoms:
        k = self.group_size
        hits, log_weights = np.arange(k + 1.0), _log_binomial(k, self.sampling_probability)
        weights = np.exp(log_weights)
        each = max(_LEAST, _CELLS // (2 * k if self.replaced else k))
        first = -k if self.replaced else 0
        edges = np.linspace(first, k, (k - first) * each + 1)
        p = masses_between(edges, hits, weights, self.epsilon)
        at_edges = self._losses(edges, edges, log_weights)
        between = self._losses(edges[:-1], edges[1:], log_weights)
        if self.upward:
            p, losses = _at_the_ends(p, between, at_edges), at_edges
        else:
            losses = np.concatenate([at_edges[:1], between, at_edges[-1:]])
        p, losses = p[p > 0.0], losses[p > 0.0]
        # Cells whose losses are equal up to rounding are merged.
        starts = np.flatnonzero(np.concatenate([[True], np.diff(np.maximum.accumulate(losses)) > 0.0]))
        return Atoms(np.log(np.add.reduceat(p, starts)), losses[starts])

    def _losses(self, left: Array, right: Array, log_weights: Array) -> Array:
        """Return the loss of each cell, given its two ends. If both ends are the same, it is the loss at this place."""
        rows = max(1, _BLOCK // self.group_size)
        parts = [
            self._log_ratio(left[start : start + rows], right[start : start + rows], log_weights, 1.0)
            for start in range(0, left.size, rows)
        ]
        losses: Array = np.concatenate(parts)
        return losses

    def _log_ratio(self, left: Array, right: Array, log_weights: Array, sign: float) -> Array:
        """Return the log ratio of a mixture to the law around 0. The mixture is around the places h, or -h if ``sign``
        is negative.

        If the group is replaced, return the log ratio of the first mixture to the second.
        """
        means = sign * np.arange(self.group_size + 1.0)
        distances = np.minimum(np.abs(left[:, None] - means), np.abs(right[:, None] - means))
        loss = _log_mean_exp(self.epsilon * (distances[:, :1] - distances[:, 1:]), log_weights[1:])
        if self.replaced and sign > 0.0:
            loss = loss - self._log_ratio(left, right, log_weights, -1.0)
        return loss


def laplace_group(epsilon: float, sampling_probability: float, size: int, *, replaced: bool) -> GroupStep:
    """Return the loss of a group of ``size`` records in one step, between an upper and a lower bound that are close
    to each other.
    """
    above, below = (GroupLaplaceLoss(epsilon, sampling_probability, size, replaced, upward) for upward in (True, False))
    return GroupStep(EnclosedLoss(above, below, above), is_exact=True)


def masses_between(edges: Array, means: Array, weights: Array, epsilon: float) -> Array:
    """Return the mixture's masses left of the first edge, between edges, and right of the last one."""
    distances = epsilon * (edges[:, None] - means)
    lengths = np.diff(distances, axis=0)
    # Every mean is an edge, so each cell lies entirely on one side of a mean.
    near = np.minimum(np.abs(distances[1:]), np.abs(distances[:-1]))
    inner = 0.5 * np.exp(-near) * -np.expm1(-lengths)
    ends = 0.5 * np.exp(-np.abs(distances[[0, -1]]))
    masses: Array = np.concatenate([ends[:1], inner, ends[1:]]) @ weights
    return masses


def _log_mean_exp(gains: Array, log_weights: Array) -> Array:
    """Return log(1 + sum_h w_h (e^gain_h - 1)), which keeps its digits where all weights of hits are small."""
    weights = np.exp(log_weights)
    terms = weights * np.expm1(np.minimum(gains, 1.0))
    row, hits = np.nonzero(gains > 1.0)
    with np.errstate(over="ignore"):
        terms[row, hits] = np.exp(gains[row, hits] + log_weights[hits]) - weights[hits]
    total = terms.sum(axis=1)
    logs: Array = np.log1p(total)
    beyond = np.isinf(total)
    logs[beyond] = scipy.special.logsumexp(gains[beyond] + log_weights, axis=1)
    return logs


def _at_the_ends(p: Array, between: Array, at_edges: Array) -> Array:
    """Return the P-masses at the edges of cells.

    Each cell's mass is split between its two ends such that its Q-mass is kept. The two outer cells have only one end.

    Args:
        p: The P-masses of all cells.
        between: The log of the ratio of P's to Q's mass, for each cell with two ends.
        at_edges: The losses at the edges.
    """
    low, high = at_edges[:-1], at_edges[1:]
    widths = np.maximum(high - low, 0.0)
    place = np.clip(between, low, high)
    # The shares of P are computed from differences of losses, so that small cells keep their digits.
    gap = np.maximum(-np.expm1(-widths), 1e-300)
    share = np.where(widths > 0.0, -np.expm1(low - place) / gap, 0.5)
    masses = np.zeros(at_edges.size)
    masses[:-1] += p[1:-1] * (1.0 - share)
    masses[1:] += p[1:-1] * share
    masses[0] += p[0]
    masses[-1] += p[-1]
    return masses


def _log_binomial(number: int, probability: float) -> Array:
    """Return the logarithms of the binomial probabilities of 0, ..., ``number``."""
    hits = np.arange(number + 1.0)
    choices = np.array([math.log(math.comb(number, chosen)) for chosen in range(number + 1)])
    log: Array = choices + hits * math.log(probability) + (number - hits) * math.log1p(-probability)
    return log
