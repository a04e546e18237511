"""MeanOracle1 (Algorithm 1) of Lowy & Razaviyayn 2023 as it is written, record by record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def mean_oracle_1(records: Sequence[Vector], noise: Vector, *, C: float, sigma: float) -> Vector:
    """The mean of the clipped records plus sigma times a standard normal."""
    nu = np.zeros_like(noise)
    for z in records:
        length = float(np.sqrt(np.sum(z * z)))
        nu = nu + (z if length <= C else z * (C / length)) / len(records)
    return nu + sigma * noise
