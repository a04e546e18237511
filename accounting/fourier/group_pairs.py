"""This module defines the Poisson-sampled Gaussian pairs of a group. They are mixtures of more than two normal laws.

Let w_h be the probability that h <= H records of the group are in the batch, and let x be in units in which all H
records move the sum by 1. Then

    f(x) = sum of w_h e^((2 k x - k^2) / (2 s^2)),   k = h / H,   x ~ N(0, s^2),

s = noise multiplier / H. On the line u + iv, 0 <= v <= pi s^2, the terms' phases k v / s^2 lie between 0 and v / s^2:
so |f(u + iv)| <= f(u), arg f >= 0, and |f(u + iv)| >= f(u) cos(v / (2 s^2)) (after a rotation by minus half of the
largest phase, all real parts are positive). arg f grows with v up to pi s^2 / 2: d arg f / dv is the mean of k under
weights whose products have the cosine of a difference of phases. f grows with x, f e^-a falls, and f >= w_0. These are
the only properties that are used of the pair of a single record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.pairs import GaussianPair, steepest_tilt

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupPair(GaussianPair):
    """A `GaussianPair` with ``probability`` 1 - w_0.

    Attributes:
        log_weights: The logarithms of the weights w_h, h = 0, ..., H.
    """

    log_weights: tuple[float, ...]

    @property
    def log_least(self) -> float:
        return self.log_weights[0]

    @property
    def _weights(self) -> tuple[Sequence[float], Sequence[float]]:
        return [math.exp(log_weight) for log_weight in self.log_weights], self.log_weights

    def largest_tilt(self, count: int, epsilon: float, level: float) -> float:
        """Return the smallest bound on the tilt. Each number of hits gives one bound, computed as for a single
        record.
        """
        halves = 0.5 * (self._places[1:] / self.noise) ** 2
        pairs = zip(self.log_weights[1:], halves.tolist(), strict=True)
        return min(steepest_tilt(log_weight, half, count, epsilon, level) for log_weight, half in pairs)

    def mass_beyond(self, x: float, width: float) -> float:
        s, weights = math.hypot(self.noise, width), np.exp(np.array(self.log_weights))
        return float(weights @ scipy.special.ndtr((self._places - x) / s))

    def place_of_loss(self, loss: float) -> float:
        return self._searched_place(loss)

    @property
    def _places(self) -> Array:
        return np.arange(len(self.log_weights), dtype=np.float64) / (len(self.log_weights) - 1)
