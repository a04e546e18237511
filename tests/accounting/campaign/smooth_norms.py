"""Generalised Gaussian noise: samples of its law, which share nothing with the moments that it is charged by."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize

from accounting.events import Event, FullBatch, GeneralizedGaussian
from tests.accounting.campaign.spec import (
    ADD_REMOVE,
    REPLACE,
    SPECIAL,
    Array,
    Scheme,
    Spec,
    random_steps,
    uniform_in_log,
)
from tests.accounting.references import gaussian_delta

DRAWS = 4000
_LARGEST_NORM = 200.0


def _inverse_dual(norm_order: float) -> float:
    """1 / q."""
    return 1.0 - 1.0 / norm_order


def _smoothest(norm_order: float, dimension: int) -> tuple[float, float]:
    """The norm l_r of least (r - 1) d^(2/r - 2/q), by search, and that number."""
    if norm_order == 2.0:
        return 2.0, 1.0
    inverse = _inverse_dual(norm_order)
    largest = min(_LARGEST_NORM, 1.0 / inverse if inverse > 0.0 else math.inf)

    def constant(r: float) -> float:
        return (r - 1.0) * float(dimension) ** (2.0 / r - 2.0 * inverse)

    inner = optimize.minimize_scalar(constant, bounds=(2.0, largest), method="bounded", options={"xatol": 1e-9})
    best = min((2.0, largest, float(inner.x)), key=constant)
    return best, constant(best)


def _draw(rng: np.random.Generator) -> Spec:
    """In half of the specs the noise is Gaussian, and known to be."""
    norm_order = 2.0 if rng.integers(2) else float(rng.uniform(1.0, 2.0))
    dimension, steps = int(uniform_in_log(rng, 1.0, 60.0)), random_steps(rng, 20)
    relation = (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    _, constant = _smoothest(norm_order, dimension)
    constant *= 1.0 if norm_order == 2.0 else 1.0 + 1e-9
    noise = uniform_in_log(rng, 0.3, 10.0) * math.sqrt(constant * steps)
    mechanism = GeneralizedGaussian(norm_order, dimension, constant, noise)
    return Spec(Event(mechanism, FullBatch(), steps), relation, uniform_in_log(rng, 1e-3, 0.3))


def _parts(spec: Spec) -> tuple[GeneralizedGaussian, float]:
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, GeneralizedGaussian)
    return mechanism, _smoothest(mechanism.norm_order, mechanism.dimension)[0]


def _from_above(spec: Spec, epsilon: float) -> float:
    """The Gaussian itself; nothing is claimed from below of any other norm."""
    mechanism, _ = _parts(spec)
    if mechanism.norm_order < 2.0:
        return 0.0
    return float(gaussian_delta(spec.sensitivity * math.sqrt(spec.event.count) / mechanism.noise_multiplier, epsilon))


def _norms(z: Array, r: float) -> Array:
    return np.asarray((np.abs(z) ** r).sum(axis=-1) ** (1.0 / r))


def _from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    """Shifts of all coordinates alike, and of one alone: the radius is chi's, the direction a power law's."""
    mechanism, r = _parts(spec)
    d, scale, count = mechanism.dimension, mechanism.noise_multiplier, spec.event.count
    flat = np.full(d, float(d) ** -_inverse_dual(mechanism.norm_order))
    shifts, losses = (flat, np.eye(d)[0]), np.zeros((2, DRAWS))
    for _ in range(count):
        direction = rng.gamma(1.0 / r, 1.0, (DRAWS, d)) ** (1.0 / r) * rng.choice([-1.0, 1.0], (DRAWS, d))
        radius = scale * np.sqrt(rng.chisquare(d, DRAWS))
        z = (radius / _norms(direction, r))[:, None] * direction
        for place, shift in enumerate(shifts):
            losses[place] += (_norms(z - spec.sensitivity * shift, r) ** 2 - radius**2) / (2.0 * scale**2)
    gains = np.maximum(-np.expm1(epsilon - losses), 0.0)
    # Six standard errors, and what rare gains that were not seen could hide.
    bounds = [(float(g.mean()), float(6.0 * g.std() / math.sqrt(DRAWS) + 16.0 * g.max() / DRAWS)) for g in gains]
    return max(bounds, key=lambda bound: bound[0] - bound[1])


SMOOTH_NORMS = {"generalized_gaussian": Scheme(16, _draw, _from_above, _from_below)}
