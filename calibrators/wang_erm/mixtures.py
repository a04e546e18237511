r"""This module bounds the Renyi divergence of two mixtures of normal laws, one of which may be shifted. The bounds hold
for all directions of the shifts.

Let $\xi$ be 1 with probability q and else 0. The mixtures are $N(D + (\xi - q) d, I)$ and $N((\xi - q) d', I)$, in any
dimension, with $|D| \le \delta$, $|d| \le a$, $|d'| \le a'$. `calibrators.wang_erm.inner_steps` proves that at order
$\lambda$ the divergence is at most

$$\frac{\lambda \delta^2}{2} + \frac{1}{\lambda - 1} \left(
  \log \max_{\pm} E\, r_a(Z \pm s)^\lambda + \log \max_{|t| \le \lambda\delta} E\, r_{a'}(Z + t)^{1 - \lambda} \right),
\qquad s = (\lambda - 1) \delta + M,$$

with $r_a(t) = (1-q) e^{-qat - q^2a^2/2} + q e^{(1-q)at - (1-q)^2a^2/2}$ and Z standard normal. M is the result of
`largest_mean`.

The expectations are sums over equally spaced nodes. A function that is analytic within $|\mathrm{Im}| \le y$ has an
error of at most $2M/(e^{2\pi y/h} - 1)$, where h is the distance of the nodes and M is here the largest integral of its
modulus over a line in this strip (Trefethen & Weideman 2014, Theorem 5.1). On such a line, $|r|$ is at most the value
of r at the real part, and at least this value times the cosine of $ay/2$.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: No bound is computed if a, or the logarithm of an expectation, is above these limits. The members of the mixtures are
#: then far apart.
_LONGEST, _LARGEST_LOG = 8.0, 500.0
#: The nodes end this many standard deviations beyond the last peak. The rest of the integral is below e^500 times
#: e^-800.
_LAST = 40.0
#: With this exponent, the error of a sum over nodes is below 2 e^-46 times the sum.
_EXPONENT = 46.0
_UNIT = 2.0**-53


def mixture_divergences(sampling_probability: float, distance: float, one: float, other: float, orders: Array) -> Array:
    r"""Return upper bounds on the Renyi divergence of the first mixture from the second.

    Args:
        sampling_probability: The sampling probability q, in (0, 1].
        distance: The largest distance $\delta$ between their means, in standard deviations of the noise.
        one: The largest distance a between the members of the first mixture.
        other: The largest distance a' between the members of the second mixture.
        orders: The orders, above 1; shape (k,).

    Returns:
        The bounds, shape (k,). A bound is inf if it is not computed.

    Guarantees:
        - divergence_is_an_upper_bound: for all directions and all dimensions.

    >>> mixture_divergences(1.0, 0.1, 0.5, 0.5, np.array([3.0])).round(9).tolist()
    [0.015]
    """
    q, tilts = sampling_probability, orders - 1.0
    mean = largest_mean(q, distance, other, orders)
    shifts, farthest = tilts * distance + mean, orders * distance
    found = np.full(orders.shape, np.inf)
    # By Jensen's inequality, the logarithms of the expectations are at most these numbers.
    logs = np.maximum(0.5 * orders * tilts * one**2 + orders * one * shifts, tilts * other**2)
    tried = (logs <= _LARGEST_LOG) & (max(one, other) <= _LONGEST)
    if not np.any(tried):
        return found
    orders, tilts, shifts, farthest = orders[tried], tilts[tried], shifts[tried], farthest[tried]
    ends = [log_moments(q, one, orders, sign * shifts)[1] for sign in (1.0, -1.0)]
    # Outside the interval between two points, a concave function of t lies below the line through these points.
    middle = log_moments(q, other, -tilts, np.zeros_like(tilts))[1]
    least = [log_moments(q, other, -tilts, sign * farthest)[0] for sign in (1.0, -1.0)]
    own = middle + np.maximum(0.0, middle - np.minimum(*least))
    found[tried] = 0.5 * orders * distance**2 + (np.maximum(*ends) + own) / tilts
    return found


def largest_mean(sampling_probability: float, distance: float, other: float, orders: Array) -> Array:
    r"""Return upper bounds on |m|, where m is the mean of Z under the weights $r_{a'}(Z + t)^{1-\lambda}$, $|t| \le
    \lambda\delta$.

    Under that law, m is $-(\lambda - 1) a' E[p - q]$ with $p = q e^\tau / (1 - q + q e^\tau)$ and
    $\tau = a'(Z + t) - (1 - 2q) a'^2/2$. If m is negative, $p \le q e^{(1-q)\tau}$. This is convex and grows with Z, so
    it bounds E p by its value under the normal law. If m is positive, $E p \ge q / (q + (1-q) E e^{-\tau})$ by Jensen,
    and $E e^{-\tau}$ is bounded in the same way.

    Returns:
        The bounds, shape (k,).

    >>> largest_mean(0.01, 0.001, 0.2, np.array([11.0])).round(5).tolist()
    [0.00081]
    """
    q, tilts, farthest = sampling_probability, orders - 1.0, orders * distance
    with np.errstate(over="ignore"):
        above = np.expm1((1.0 - q) * (0.5 * q * other**2 + other * farthest))
        grown = (1.0 - q) * np.expm1(np.minimum((1.0 - q) * other**2 + other * farthest, 700.0))
    found: Array = tilts * other * q * np.maximum(above, grown / (1.0 + grown)) * (1.0 + 64.0 * _UNIT)
    return found


def log_moments(sampling_probability: float, length: float, powers: Array, shifts: Array) -> tuple[Array, Array]:
    r"""Return lower and upper bounds on $\log E\, r_a(Z + s)^w$.

    Args:
        sampling_probability: The sampling probability q, in (0, 1].
        length: The length a >= 0.
        powers: The powers w, above 1 or negative, such that the expectation is below e^500; shape (k,).
        shifts: The shifts s; shape (k,).

    Returns:
        The two bounds, each of shape (k,).

    Guarantees:
        - moments_are_enclosed: the two bounds are as close as rounding allows.

    >>> [bound.round(9).tolist() for bound in log_moments(0.01, 0.2, np.array([16.0, -15.0]), np.zeros(2))]
    [[9.569e-06, 9.485e-06], [9.569e-06, 9.485e-06]]
    """
    q, a = sampling_probability, length
    largest, negative = float(np.max(powers)), float(max(0.0, -np.min(powers)))
    nodes, spacing = _nodes(q, a, max(largest, 0.0), negative)
    places = nodes + shifts[:, None]
    rest, taken = -q * a * places - 0.5 * (q * a) ** 2, (1.0 - q) * a * places - 0.5 * ((1.0 - q) * a) ** 2
    of_rest, of_taken = np.expm1(rest), np.expm1(taken)
    less_one = (1.0 - q) * of_rest + q * of_taken
    exponents = powers[:, None] * np.log1p(less_one)
    terms = np.expm1(np.minimum(exponents, _LARGEST_LOG))
    weights = np.exp(np.maximum(exponents - _LARGEST_LOG, 0.0) - 0.5 * nodes * nodes)
    weights *= spacing / math.sqrt(2.0 * math.pi)
    # The largest relative error of r by rounding.
    off = (1.0 - q) * np.abs(rest) * np.maximum(1.0, 1.0 + of_rest) + q * np.abs(taken) * np.maximum(
        1.0, 1.0 + of_taken
    )
    off *= np.abs(powers)[:, None] / (1.0 + less_one)
    rounding = 64.0 * _UNIT * np.sum((np.abs(terms) + off * (1.0 + terms)) * weights, axis=1)
    sums = np.sum(terms * weights, axis=1)
    off_by: Array = rounding + 1e-18 * (1.0 + sums)
    return np.log1p(sums - off_by), np.log1p(sums + off_by)


def _nodes(q: float, a: float, largest: float, negative: float) -> tuple[Array, float]:
    """Return the nodes of a sum and their distance, for powers from ``-negative`` to ``largest``."""
    spread = 1.0 + 0.25 * negative * a * a
    height = min(math.sqrt(2.0 * _EXPONENT / spread), 2.5 / a if a > 0.0 else math.inf)
    grown = 0.5 * height**2 - negative * math.log(math.cos(0.5 * a * height))
    spacing = 2.0 * math.pi * height / (_EXPONENT + grown)
    # By Jensen's inequality, a power of r times the normal density is at most a sum of two normal densities. Their
    # peaks are here.
    first, last = -largest * q * a, largest * (1.0 - q) * a
    count = math.ceil((last - first + 2.0 * _LAST) / spacing)
    nodes: Array = first - _LAST + spacing * np.arange(count + 1, dtype=np.float64)
    return nodes, spacing
