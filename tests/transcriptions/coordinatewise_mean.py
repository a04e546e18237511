"""MeanOracle2 (Algorithm 12) of Lowy & Razaviyayn 2023 as it is written, coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def mean_oracle_2(groups: Sequence[Sequence[Vector]], noise: Vector, *, tau: float, sigma: float) -> Vector:
    """The median of the groups' means in each coordinate, plus sigma times a standard normal."""
    nu = np.zeros_like(noise)
    for j in range(noise.size):
        means = []
        for group in groups:
            total = 0.0
            for x in group:
                total += min(max(float(x[j]), -tau), tau)
            means.append(total / len(group))
        nu[j] = sorted(means)[(len(means) + 1) // 2 - 1]
    return nu + sigma * noise
