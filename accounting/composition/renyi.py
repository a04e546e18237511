"""This module derives an upper bound from Renyi moments. It holds for every list and every delta.

delta(eps) <= e^(K(x) - x eps) B(x) with B(x) = x^x / (1+x)^(1+x), for every tilt x > 0 (order x + 1), because
sup_y e^(-xy) (1 - e^-y) = B(x). Solved for epsilon it is Canonne, Kamath & Steinke 2020, Proposition 12. Any set of
tilts is sound; more of them only make the bound tighter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Moments

Array = NDArray[np.float64]
#: An allowance for the rounding of K(x) + log B(x) and of its division by x, relative to the terms' sizes.
_ALLOWANCE = 4e-15
#: The largest tilt for a sampled composition; larger ones help only if epsilon is below ln(1 / delta) / 4095.
_LARGEST_TILT = 4095


class RenyiBound:
    """The evaluator by Renyi moments.

    Guarantees: upper_bound_for_every_list; canonne_kamath_steinke_for_zcdp.
    """

    name = "renyi_divergence"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        tilts, moments = self._curve(composition)
        log_deltas = _log_deltas(tilts, moments, epsilon)
        best = float(np.nanmin(log_deltas))
        if not composition_is_sampled(composition):
            finer = _refined(lambda x: _log_deltas(x, composition.log_moment(x), epsilon), tilts, log_deltas)
            best = min(best, finer)
        return Bounds(upper=max(5e-324, min(1.0, math.exp(min(best, 0.0)))))

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        tilts, moments = self._curve(composition)
        epsilons = _epsilons(tilts, moments, delta)
        best = float(np.nanmin(epsilons))
        if not composition_is_sampled(composition):
            best = min(best, _refined(lambda x: _epsilons(x, composition.log_moment(x), delta), tilts, epsilons))
        return Bounds(upper=max(0.0, best))

    def best_tilt(self, composition: Composition, *, delta: float | None = None, epsilon: float = 0.0) -> float:
        """Return the tilt at which the bound is smallest: close to the saddle point of the exact integral."""
        tilts, moments = self._curve(composition)
        if delta is not None:
            return float(tilts[np.nanargmin(_epsilons(tilts, moments, delta))])
        return float(tilts[np.nanargmin(moments + _log_kernel(tilts) - tilts * epsilon)])

    def _curve(self, composition: Composition) -> tuple[Array, Array]:
        return _curve(composition)


@lru_cache(maxsize=32)
def _curve(composition: Composition) -> tuple[Array, Array]:
    tilts = _tilts(composition)
    return tilts, composition.log_moment(tilts)


def composition_is_sampled(composition: Composition) -> bool:
    """Return whether a part is subsampled, so that each moment is a sum or a quadrature."""
    return any(moments is not Moments.CLOSED_FORM for moments in _moments(composition))


def _moments(composition: Composition) -> set[Moments]:
    """Return the methods that compute the moments of the composition's steps and of the branches of their mixtures."""
    return {branch.moments for loss, _ in composition.steps for branch in loss.branches}


def _epsilons(tilts: Array, moments: Array, delta: float) -> Array:
    kernel = _log_kernel(tilts)
    slack = _ALLOWANCE * (moments + np.abs(kernel) + abs(math.log(delta)))
    epsilons: Array = (moments + kernel - math.log(delta) + slack) / tilts
    return epsilons


def _log_deltas(tilts: Array, moments: Array, epsilon: float) -> Array:
    kernel = _log_kernel(tilts)
    slack = _ALLOWANCE * (moments + np.abs(kernel) + tilts * epsilon)
    log_deltas: Array = moments + kernel - tilts * epsilon + slack
    return log_deltas


def _log_kernel(tilts: Array) -> Array:
    """Return log B(x), never above 0."""
    kernel: Array = -tilts * np.log1p(1.0 / tilts) - np.log1p(tilts)
    return kernel


def _tilts(composition: Composition) -> Array:
    """Return the tilts at which the moments are evaluated, including those of stated divergences."""
    stated = [loss.stated_tilts for loss, _ in composition.steps]
    return np.unique(np.concatenate([_grid(composition), *stated]))


def _grid(composition: Composition) -> Array:
    """Return a grid of tilts: integers if binomial sums are exact there, otherwise a geometric grid."""
    moments = _moments(composition)
    if Moments.QUADRATURE in moments:
        return np.geomspace(1e-2, 3000.0, 56)
    if Moments.BINOMIAL_SUM in moments:
        integers = np.unique(np.concatenate([np.arange(1, 33), np.geomspace(33, _LARGEST_TILT, 60)]).round())
        return np.unique(np.concatenate([np.geomspace(1e-3, 7.9, 32), integers]))
    return np.geomspace(1e-9, 1e9, 721)


def _refined(function: Callable[[Array], Array], tilts: Array, values: Array) -> float:
    """Return the smallest value on three successively finer grids around the best tilt. It is within 1e-12 of a smooth
    minimum.
    """
    for _ in range(3):
        best = int(np.nanargmin(values))
        tilts = np.geomspace(tilts[max(best - 1, 0)], tilts[min(best + 1, tilts.size - 1)], 65)
        values = function(tilts)
    return float(np.nanmin(values))
