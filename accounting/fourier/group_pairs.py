"""The Poisson-sampled Gaussian pairs of a group: a record's pair with more than two places.

With w_h the probability of h of the group in the batch, h <= H, and x in units in which all H of them are 1 apart,

    f(x) = sum of w_h e^((2 k x - k^2) / (2 s^2)),   k = h / H,   x ~ N(0, s^2),

s = noise multiplier / H. On the line u + iv, 0 <= v <= pi s^2, the terms' phases k v / s^2 lie between 0 and v / s^2:
so |f(u + iv)| <= f(u), arg f >= 0, and |f(u + iv)| >= f(u) cos(v / (2 s^2)) (turn by minus half of the largest phase,
and all real parts are positive). arg f grows with v up to pi s^2 / 2: d arg f / dv is the mean of k under weights whose
products have the cosine of a difference of phases. f grows with x, f e^-a falls, and f >= w_0. That is all that is used
of a record's pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.pairs import GaussianPair, Pair, steepest_tilt

Array = NDArray[np.float64]

#: Nodes times places that are held at once.
_BLOCK = 1_000_000


@dataclass(frozen=True, slots=True)
class GroupPair(GaussianPair):
    """A `GaussianPair` with ``probability`` 1 - w_0.

    Attributes:
        log_weights: log w_h, h = 0, ..., H.
    """

    log_weights: tuple[float, ...]

    @property
    def log_least(self) -> float:
        return self.log_weights[0]

    @property
    def cancellation(self) -> float:
        """A term's exponent is as large as log w_h where the term itself is of the size of 1."""
        return -8.0 * min(self.log_weights) + 8.0 * len(self.log_weights)

    def largest_tilt(self, count: int, epsilon: float, level: float) -> float:
        """Bound the tilt by each number of hits alone, as for one record."""
        halves = 0.5 * (self._places[1:] / self.noise) ** 2
        pairs = zip(self.log_weights[1:], halves.tolist(), strict=True)
        return min(steepest_tilt(log_weight, half, count, epsilon, level) for log_weight, half in pairs)

    def mass_beyond(self, x: float, width: float) -> float:
        s, weights = math.hypot(self.noise, width), np.exp(np.array(self.log_weights))
        return float(weights @ scipy.special.ndtr((self._places - x) / s))

    def place_of_loss(self, loss: float) -> float:
        return self._searched_place(loss)

    def slope(self, x: Array) -> Array:
        slope: Array = self._mean_place(x) / self.noise**2
        return slope + self._mean_place(-x) / self.noise**2 if self.pair is Pair.REPLACE else slope

    @property
    def _places(self) -> Array:
        return np.arange(len(self.log_weights), dtype=np.float64) / (len(self.log_weights) - 1)

    @property
    def _floor(self) -> float:
        """The place at which the first hit is as likely as none."""
        k = float(self._places[1])
        return 0.5 * k + self.noise**2 * (self.log_weights[0] - self.log_weights[1]) / k

    def _terms(self, x: Array) -> tuple[Array, Array]:
        """Each term's exponent without and with its weight, shapes (x, places)."""
        exponents = (x[:, None] - 0.5 * self._places) * (self._places / self.noise**2)
        return exponents, exponents + np.array(self.log_weights)

    def _mean_place(self, x: Array) -> Array:
        _, logs = self._terms(x)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        mean: Array = (weights @ self._places) / weights.sum(axis=1)
        return mean

    def _blocks(self, x: Array) -> list[Array]:
        return np.array_split(x, max(1, math.ceil(x.size * len(self.log_weights) / _BLOCK)))

    def _log_f(self, x: Array) -> Array:
        return np.concatenate([self._log_f_of(block) for block in self._blocks(x)])

    def _log_f_of(self, x: Array) -> Array:
        exponents, logs = self._terms(x)
        change = self._changes(exponents, logs, np.zeros(1)).sum(axis=1)
        near = np.abs(change) < 0.3
        return np.where(near, np.log1p(np.where(near, change, 0.0)), scipy.special.logsumexp(logs, axis=1))

    def _shifted_log_f(self, u: Array, angle: float) -> tuple[Array, Array]:
        parts = [self._shifted_log_f_of(block, angle) for block in self._blocks(u)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _shifted_log_f_of(self, u: Array, angle: float) -> tuple[Array, Array]:
        """log |f| and arg f at u + i angle s^2."""
        exponents, logs = self._terms(u)
        top, phases = logs.max(axis=1), angle * self._places
        weights = np.exp(logs - top[:, None])
        real, imaginary = weights @ np.cos(phases), weights @ np.sin(phases)
        far = top + np.log(np.maximum(np.hypot(real, imaginary), 1e-300))
        change = self._changes(exponents, logs, phases).sum(axis=1)
        small = np.exp(np.minimum(top, 1.0)) * imaginary
        near = (np.abs(change) < 0.3) & (np.abs(small) < 0.3) & (top <= 1.0)
        square = np.where(near, change * (2.0 + change) + small * small, 0.0)
        return np.where(near, 0.5 * np.log1p(square), far), np.arctan2(imaginary, real)

    def _changes(self, exponents: Array, logs: Array, phases: Array) -> Array:
        """w_h (e^exponent cos(phase) - 1) of each term, accurate where it is tiny; too small where one is above e."""
        weights, cosines, turned = np.exp(np.array(self.log_weights)), np.cos(phases), 2.0 * np.sin(0.5 * phases) ** 2
        small = weights * (np.expm1(np.minimum(exponents, 1.0)) * cosines - turned)
        changes: Array = np.where(exponents < 1.0, small, np.exp(np.minimum(logs, 1.0)) * cosines - weights)
        return changes
