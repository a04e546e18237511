r"""Renyi divergences of a noisy sum over a batch without replacement, at many orders at once, rounded up.

With y the log likelihood ratio of the whole sum (normal with mean $-1/(2\nu^2)$ and variance $1/\nu^2$ under Q) and
$f = 1 - q + q e^y$, the divergence at order $x + 1$ is $K(x)/x$ with

$$e^{K(x)} = 1 + E_Q[h(f) 1\{y \ge 0\}],\quad h(f) = f^{x+1} + f^{-x} - f - 1 = (f^x - 1)(f - f^{-x}),$$

by which `accounting.sampling.without_replacement` charges such a sum. That module evaluates it order by order to nine
digits; a solver asks for some thousand of them, so here all orders share their nodes, and four digits do.

Why the result is an upper bound. h is convex in f and f is affine in $e^y$, so on every cell between two nodes h lies
below its chord in $e^y$, whose integral needs the cell's masses under Q and under P alone, which are differences of
normal tails. Far out h is at most $f^{x+1}$, which on wide cells is at most its value at the upper node; farther still,
where $q e^y$ is most of f, $f e^{-y}$ falls, so that f is at most a constant times $e^y$ and $f^{x+1}$ integrates in
closed form. `_ALLOWANCE` covers rounding: for noise up to $10^6$ a weight is wrong by less than $10^{-6}$
of its cell's mass, and a cell's two nodes share that mass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

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
    """Of h at the nodes: the integrals of the hat functions, which are linear in e^y."""
    below, above = ndtr(-(edges * noise + 0.5 / noise)), ndtr(-(edges * noise - 0.5 / noise))
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
    """From the last narrow cell to where f is q e^y; the start alone where that is beyond it."""
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
    log_mass = log_ndtr(-(edges[:-1] * noise + 0.5 / noise))
    integral: Array = np.sum(np.exp((tilts[:, None] + 1.0) * log_f + log_mass), axis=1)
    return integral


def _beyond(noise: float, q: float, tilts: Array, y: float) -> Array:
    """A bound of the integral of f^(x+1) from y on: f <= c e^y' for y' >= y, c = f(y) e^-y."""
    log_c = np.log(q + (1.0 - q) * np.exp(-y))
    orders = tilts + 1.0
    moment = 0.5 * orders * tilts / noise**2
    tail = log_ndtr((tilts + 0.5) / noise - noise * y)
    integral: Array = np.exp(orders * log_c + moment + tail)
    return integral
