r"""This module bounds the cost of one inner step of variance-reduced descent. The step releases only its noisy
direction.

The step takes $v = \tfrac{1}{b}\sum_{i \in B} a_i + \nabla F(\tilde x) + u$ with $a_i = \nabla f(x, z_i) - \nabla
f(\tilde x, z_i)$, a fresh batch B of b of the n records and fresh $u \sim N(0, \sigma^2 I)$. Every gradient has length
at most G. Let $q = b/n$, and measure v in units of $\sigma$. Then the contribution of a gradient in a batch has length
at most $1/\nu$, where $\nu = \sigma b/G = 2s$.

**Four means.** Fix the earlier releases, hence x and $\tilde x$. Let j be the record in which the neighbours differ.
Draw the batch as follows: draw b - 1 records and one more record, k, among all records except j; then, with probability
q, record j replaces k. Given the other records, the law of v is a mixture of two normal laws, $(1-q)\,N(X_0) +
q\,N(X_1)$ under one data set and $(1-q)\,N(Y_0) + q\,N(Y_1)$ under the other. Let $d = X_1 - X_0$, $d' = Y_1 - Y_0$ and
D the distance of the two mixtures' means, $D = (1-q)(X_0 - Y_0) + q(X_1 - Y_1)$. Let g and h be the gradients of record
j at x and at $\tilde x$, and let g' and h' be those of the record that replaces it. In units of $1/\nu$, h moves the
full gradient by qh, and it moves the batch by -h with probability q. So h cancels on average:

$$D = q\,(g - g')/\nu, \qquad d = (g - h - a_k)/\nu, \qquad d' = (g' - h' - a_k)/\nu.$$

Hence $|D| \le \delta = 2q/\nu$ and $|d|, |d'| \le 4/\nu$. A null record has g' = h' = 0: $|D| \le q/\nu$, $|d'| \le
2/\nu$.

**The bound.** Let $r_d$ be the ratio of a mixture of mean 0 to the normal law,

$$r_d(y) = (1-q)\, e^{-q \langle y, d\rangle - q^2 |d|^2/2} + q\, e^{(1-q)\langle y, d\rangle - (1-q)^2 |d|^2/2}.$$

With Z standard normal, by a change of variables,

$$E_Q (P/Q)^\lambda
= e^{\lambda(\lambda-1)|D|^2/2}\; E\, r_d(Z + (\lambda-1)D)^\lambda\; r_{d'}(Z + \lambda D)^{1-\lambda}.$$

The first factor in the expectation is convex in Z. The second factor is log-concave and depends on one coordinate of Z
only. Weight the law of Z by the second factor. Under the weighted law, this coordinate is an increasing function of a
normal variable with slope at most 1 (Caffarelli 2000). So the expectation of a convex function is at most its
expectation under the normal law with the same mean m (Harge 2004), and the expectation above is at most $G \cdot E\,
r_d(Z + (\lambda-1)D + m)^\lambda$ with $G = E\, r_{d'}(Z + \lambda D)^{1-\lambda}$. Both are integrals over one
coordinate. Their worst case over all directions of D, d and d' and all lengths up to the bounds follows from four
facts:

- $r_{cd}(y) = E\, r_d(cy + \sqrt{1-c^2} Z)$ for $0 \le c \le 1$, so by Jensen the longest d and d' are the worst;
- the first integral is convex in the shift along d, so it is largest at one end of $\pm((\lambda-1)\delta + |m|)$;
- likewise G is at most its largest value for d' of the largest length and shifts t of at most $\lambda\delta$, and
  log G is concave in t;
- $m = -(\lambda-1)|d'|\, E[p - q]$, where p is the posterior probability that j is in the batch (see `largest_mean`).

The bound extends to random batches and adaptive steps: the divergence of a mixture is at most the largest divergence of
its parts, and divergences of steps add up. If the batch is not secret, v moves by at most $|X_1 - Y_1| \le (4 -
2q)/\nu$, which bounds the same divergence by $\lambda (4 - 2q)^2/(2\nu^2)$; if every record is in the batch, this is
the divergence of gradient descent.

`calibrators.wang_erm.mixtures` computes the integrals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.conversions.rounding import CLOSED_FORM_ALLOWANCE
from accounting.errors import InvalidValue
from accounting.events import Event, RenyiDp
from accounting.relations import NeighboringRelation
from calibrators.wang_erm.mixtures import mixture_divergences

#: The orders, minus 1, at which a step's divergence is stated. They are close together where the divergence of a small
#: batch rises sharply.
_TILTS = (*np.geomspace(0.2, 0.8, 4), *np.geomspace(1.0, 100.0, 40), *np.geomspace(135.0, 5e4, 20))
ORDERS = tuple(float(f"{1.0 + tilt:.6g}") for tilt in _TILTS)
#: The largest Renyi divergence that an event may state.
_MOST = 1e6


@dataclass(frozen=True, slots=True)
class InnerSteps:
    """A function from the noise multiplier s and the batch size to the event of all inner steps. It ignores the number
    of epochs.

    Attributes:
        dataset_size: The number n of records.
        count: The number of inner steps in all epochs.
        relation: The neighbouring relation.

    >>> event = InnerSteps(10_000, 32_657, NeighboringRelation.REPLACE_ONE)(30.0, 17, 100)
    >>> event.count, event.mechanism.kind
    (32657, 'renyi_dp')
    """

    dataset_size: int
    count: int
    relation: NeighboringRelation

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        orders, epsilons = step_divergence(noise_multiplier, batch_size / self.dataset_size, self.relation)
        return Event(RenyiDp(orders, epsilons), count=self.count)


@lru_cache(maxsize=1024)
def step_divergence(
    noise_multiplier: float, sampling_probability: float, relation: NeighboringRelation
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return orders, and upper bounds on the Renyi divergence of one inner step at these orders, valid in both
    directions.

    Args:
        noise_multiplier: The noise multiplier s, which is the noise on the sum of a batch's gradient changes divided by
            their bound 2 G.
        sampling_probability: The probability q = b/n, in (0, 1].
        relation: `REPLACE_ONE` or `REPLACE_SPECIAL`.

    Guarantees:
        - divergence_is_an_upper_bound: it falls as s grows.

    Raises:
        InvalidValue: If the noise is so small that no bound is in the range of a renyi_dp event.

    >>> orders, found = step_divergence(400.0, 0.01, NeighboringRelation.REPLACE_ONE)
    >>> drift = np.array(orders) * (2 * 0.01 / 800.0) ** 2 / 2
    >>> bool(np.all(found[:50] >= drift[:50]) and np.all(found[:50] <= 1.001 * drift[:50]))
    True
    """
    nu, q = 2.0 * noise_multiplier, sampling_probability
    orders, reach = np.array(ORDERS), relation.sensitivity
    with np.errstate(over="ignore"):
        best = orders * (reach * (2.0 - q) / nu) ** 2 / 2.0
        sampled = [
            mixture_divergences(q, reach * q / nu, one / nu, other / nu, orders)
            for one, other in {(4.0, 2.0 * reach), (2.0 * reach, 4.0)}
        ]
    best = np.minimum(best, np.max(sampled, axis=0))
    best = best * (1.0 + 4.0 * CLOSED_FORM_ALLOWANCE)
    # Divergences grow with the order, so a bound at one order also holds at every smaller order.
    best = np.minimum.accumulate(best[::-1])[::-1]
    stated = best <= _MOST
    if not stated[0]:
        raise InvalidValue(
            f"a noise multiplier of {noise_multiplier:g} has a Renyi divergence above {_MOST:g}, the largest "
            "that can be stated; use more noise, or a target with less privacy loss",
            pointer=("noise_multiplier",),
        )
    return tuple(orders[stated].tolist()), tuple(best[stated].tolist())
