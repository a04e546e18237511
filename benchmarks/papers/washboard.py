"""This module has a nonconvex loss whose constants are all known: a tilted washboard in d dimensions.

    f_i(x) = sum_j h(x_j - 2) - <b_i, x>,   h(t) = t^2 / 2 + A cos(3 t) / 9

h'' = 1 - A cos(3 t) lies in [1 - A, 1 + A], so f is smooth with L_0 = 1 + A (and L_1 = 0) and for A > 1 not convex. A
record's gradient deviates from the mean gradient by |b_i - b|: tau_0 = max_i |b_i - b|, tau_1 = 0, on all of R^d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_A = 2.0
_SHIFT = 2.0


@dataclass(frozen=True)
class Washboard:
    """The problem of n records.

    Attributes:
        tilts: The tilts b_i of the records, shape (n, d), with mean 0.
    """

    tilts: Vector

    @classmethod
    def of(cls, num_records: int, dimension: int, deviation: float) -> Washboard:
        """Return the problem of n records whose gradients deviate from the mean by at most ``deviation``. The tilts b_i
        are pairs of opposite random points on a sphere."""
        directions = np.random.default_rng(num_records).normal(size=(num_records // 2, dimension))
        half = deviation * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return cls(np.concatenate([half, -half]))

    @property
    def dimension(self) -> int:
        return int(self.tilts.shape[1])

    def constants(self) -> dict[str, float]:
        """Return the constants that the theorem assumes, for a run that starts at 0."""
        line = np.linspace(-_SHIFT, _SHIFT, 400_001)
        gap = float(self._height(np.array(-_SHIFT)) - self._height(line).min())
        return {
            "initial_gap": self.dimension * gap,
            "generalized_smoothness_l0": 1.0 + _A,
            "deviation_tau0": float(np.linalg.norm(self.tilts, axis=1).max()),
        }

    @staticmethod
    def gradients(point: Vector, tilts: Vector, _labels: Vector) -> Vector:
        """Return the records' gradients, shape (B, d), where a record is given by its tilt."""
        return Washboard.gradient(point) - tilts

    @staticmethod
    def gradient(point: Vector) -> Vector:
        """Return grad f at a point, or at each of several."""
        moved = point - _SHIFT
        slope: Vector = moved - _A * np.sin(3.0 * moved) / 3.0
        return slope

    @staticmethod
    def _height(moved: Vector) -> Vector:
        height: Vector = moved**2 / 2.0 + _A * np.cos(3.0 * moved) / 9.0
        return height
