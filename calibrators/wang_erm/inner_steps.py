r"""What one inner step of variance-reduced descent costs, of which nothing is released but the noisy direction.

The step takes $v = \tfrac{1}{b}\sum_{i \in B} a_i + \nabla F(\tilde x) + u$ with
$a_i = \nabla f(x, z_i) - \nabla f(\tilde x, z_i)$, a fresh batch B of b of the n records and fresh
$u \sim N(0, \sigma^2 I)$. Every gradient is no longer than G, so $\|a_i\| \le 2G$. Let $s = \sigma b / (2G)$, the noise
on the sum of the $a_i$ over their bound.

Fix what was released before, hence x and $\tilde x$. Write $u = u_1 + u_2$ with variances $w\sigma^2$ and
$(1 - w)\sigma^2$: v is post-processing of (i) $\tfrac{1}{b}\sum_B a_i + u_1$, whose sum moves by up to $4G$ where the
replaced record is in B, and (ii) $\nabla F(\tilde x) + u_2$, which moves by up to $2G/n$. Given the past, (i) and (ii)
are independent under either data set, so that their Renyi divergences add, although one record moves both:

$$R(\lambda) \le R_{\mathrm{wor}}(\lambda; q, \sqrt{w}\,s/2) + \frac{\lambda q^2}{2 (1-w) s^2},\qquad q = b/n,$$

for every w, hence for the best of some at every order. Without a look at the batch's secrecy v moves by at most
$4G/b + 2G/n$, which bounds the same divergence by $\lambda (2 + q)^2 / (2 s^2)$. Divergences of adaptive steps add up.

**The batch's divergence,** $R_{\mathrm{wor}}$, is bounded at many orders at once, rounded up.

With y the log likelihood ratio of the whole sum (normal with mean $-1/(2\nu^2)$ and variance $1/\nu^2$ under Q) and
$f = 1 - q + q e^y$, the divergence at order $x + 1$ is $K(x)/x$ with

$$e^{K(x)} = 1 + E_Q[h(f) 1\{y \ge 0\}],\quad h(f) = f^{x+1} + f^{-x} - f - 1 = (f^x - 1)(f - f^{-x}),$$

by which `accounting.losses.without_replacement` charges such a sum. That module evaluates it order by order to nine
digits; a solver asks for some thousand of them, so here all orders share their nodes, and four digits do.

Why the result is an upper bound. h is convex in f and f is affine in $e^y$, so on every cell between two nodes h lies
below its chord in $e^y$, whose integral needs the cell's masses under Q and under P alone, which are differences of
normal tails. Far out h is at most $f^{x+1}$, which on wide cells is at most its value at the upper node; farther still,
where $q e^y$ is most of f, $f e^{-y}$ falls, so that f is at most a constant times $e^y$ and $f^{x+1}$ integrates in
closed form. `_ALLOWANCE` covers rounding: for noise up to $10^6$ a weight is wrong by less than $10^{-6}$
of its cell's mass, and a cell's two nodes share that mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.conversions.rounding import CLOSED_FORM_ALLOWANCE
from accounting.errors import InvalidValue
from accounting.events import Event, RenyiDp

Array = NDArray[np.float64]

#: Of the normal law: width of a cell, and where cells end, in standard deviations; by what far cells grow.
_CELL, _LAST, _GROWTH = 0.02, 36.0, 1.02
#: Where q e^y is so much, it is most of f.
_MOSTLY = 1e3
_ALLOWANCE = 1e-6


def batch_divergences(noise: float, sampling_probability: float, orders: Array) -> Array:
    r"""Upper bounds of the Renyi divergence, in both directions, under replacement of one record.

    Args:
        noise: $\nu$: standard deviation of the noise over the distance by which a record that is in the batch moves the
            sum.
        sampling_probability: q in (0, 1], the batch size over the number of records.
        orders: shape (k,), above 1.

    Returns:
        shape (k,); inf where it leaves the range of floating point.

    Guarantees:
        - divergence_is_an_upper_bound; within 1e-3 of the truth where batches hide who is in them.

    >>> batch_divergences(7.5, 0.01, np.array([16.0])).round(6).tolist()
    [1.6e-05]
    """
    tilts = orders - 1.0
    first = 0.5 / noise  # of y = 0
    count = max(0, int(np.ceil((_LAST - first) / _CELL)))
    edges: Array = _CELL * np.arange(count + 1, dtype=np.float64) / noise
    with np.errstate(all="ignore"):
        far = _far_edges(noise, sampling_probability, float(edges[-1]))
        parts = _far(noise, sampling_probability, tilts, far)
        parts = parts + _beyond(noise, sampling_probability, tilts, float(far[-1]))
        if count:
            parts = parts + _convex(sampling_probability, tilts, edges) @ _weights(noise, edges)
        # Infinite heights of no mass are no number.
        parts = np.where(np.isnan(parts), np.inf, parts)
        divergences: Array = np.log1p(parts * (1.0 + _ALLOWANCE)) * (1.0 + _ALLOWANCE) / tilts
    return divergences


def _weights(noise: float, edges: Array) -> Array:
    """Return the weights of h at the nodes: the integrals of the hat functions, which are linear in e^y."""
    below, above = (
        scipy.special.ndtr(-(edges * noise + 0.5 / noise)),
        scipy.special.ndtr(-(edges * noise - 0.5 / noise)),
    )
    mass, tilted = below[:-1] - below[1:], above[:-1] - above[1:]
    # Of the cell [a, b]: E[e^y - e^a] / (e^b - e^a) goes to b, and the rest of the mass to a.
    upper = np.clip((tilted * np.exp(-edges[:-1]) - mass) / np.expm1(np.diff(edges)), 0.0, mass)
    weights = np.zeros_like(edges)
    weights[1:] += upper
    weights[:-1] += mass - upper
    return weights


def _convex(q: float, tilts: Array, y: Array) -> Array:
    """h at every node, shape (tilts, nodes)."""
    log_f = np.log1p(q * np.expm1(np.minimum(y, 700.0)))
    scaled = tilts[:, None] * log_f
    values: Array = np.expm1(scaled) * -np.expm1(-(scaled + log_f)) * np.exp(log_f)
    return values


def _far_edges(noise: float, q: float, start: float) -> Array:
    """Return edges from the last narrow cell to where f is q e^y; only the start if it lies beyond that."""
    low, high = start * noise + 0.5 / noise, np.log(_MOSTLY / q) * noise + 0.5 / noise
    if high <= low:
        return np.array([start])
    count = int(np.ceil(np.log(high / low) / np.log(_GROWTH)))
    edges: Array = (low * _GROWTH ** np.arange(count + 1, dtype=np.float64) - 0.5 / noise) / noise
    edges[0] = start
    return edges


def _far(noise: float, q: float, tilts: Array, edges: Array) -> Array:
    """A bound of the integral of f^(x+1) over the far cells: each cell's largest value times all mass from it on."""
    log_f = np.log1p(q * np.expm1(np.minimum(edges[1:], 700.0)))
    log_mass = scipy.special.log_ndtr(-(edges[:-1] * noise + 0.5 / noise))
    integral: Array = np.sum(np.exp((tilts[:, None] + 1.0) * log_f + log_mass), axis=1)
    return integral


def _beyond(noise: float, q: float, tilts: Array, y: float) -> Array:
    """A bound of the integral of f^(x+1) from y on: f <= c e^y' for y' >= y, c = f(y) e^-y."""
    log_c = np.log(q + (1.0 - q) * np.exp(-y))
    orders = tilts + 1.0
    moment = 0.5 * orders * tilts / noise**2
    tail = scipy.special.log_ndtr((tilts + 0.5) / noise - noise * y)
    integral: Array = np.exp(orders * log_c + moment + tail)
    return integral


#: Orders less 1 at which a step's divergence is stated: close together where a small batch's divergence has its knee.
_TILTS = (*np.geomspace(0.2, 0.8, 4), *np.geomspace(1.0, 100.0, 40), *np.geomspace(135.0, 5e4, 20))
ORDERS = tuple(float(f"{1.0 + tilt:.6g}") for tilt in _TILTS)
#: w: the share of the variance that hides the batch.
SHARES = (0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
#: No larger divergence is stated.
_MOST = 1e6


@dataclass(frozen=True, slots=True)
class InnerSteps:
    """The event of all inner steps, from the noise multiplier s and the batch size; whatever the number of epochs is.

    Attributes:
        dataset_size: n.
        count: Of inner steps, in all epochs together.

    >>> event = InnerSteps(10_000, 32_657)(30.0, 17, 100)
    >>> event.count, event.mechanism.kind
    (32657, 'renyi_dp')
    """

    dataset_size: int
    count: int

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        orders, epsilons = step_divergence(noise_multiplier, batch_size / self.dataset_size)
        return Event(RenyiDp(orders, epsilons), count=self.count)


@lru_cache(maxsize=1024)
def step_divergence(
    noise_multiplier: float, sampling_probability: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Orders, and upper bounds of the Renyi divergence of one inner step, under replacement of one record.

    Args:
        noise_multiplier: s, noise on the sum of a batch's differences over their bound 2 G.
        sampling_probability: q = b/n, in (0, 1].

    Guarantees:
        - divergence_is_an_upper_bound; it falls as s grows, and grows with q.

    Raises:
        InvalidValue: the noise is so small that no divergence in the range of a renyi_dp event is known.
    """
    s, q = noise_multiplier, sampling_probability
    orders = np.array(ORDERS)
    with np.errstate(over="ignore"):
        best = orders * (2.0 + q) ** 2 / (2.0 * s * s)
        for share in SHARES:
            snapshot = orders * q * q / (2.0 * (1.0 - share) * s * s)
            best = np.minimum(best, batch_divergences(share**0.5 * s / 2.0, q, orders) + snapshot)
    best = best * (1.0 + 4.0 * CLOSED_FORM_ALLOWANCE)
    # Divergences grow with the order, so that a bound at one order is a bound at every smaller one.
    best = np.minimum.accumulate(best[::-1])[::-1]
    stated = best <= _MOST
    if not stated[0]:
        raise InvalidValue(
            f"no Renyi divergence above {_MOST:g} is stated; use more noise than {s:g}, or aim lower",
            pointer=("noise_multiplier",),
        )
    return tuple(orders[stated].tolist()), tuple(best[stated].tolist())
