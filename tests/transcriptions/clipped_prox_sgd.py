"""Algorithm 8 of Lowy & Razaviyayn 2023 as it is written (batches of s = floor(n/T)), record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def trajectory(
    w: Vector,
    gradient: Callable[[Vector, int], Vector],
    batches: Sequence[Sequence[int]],
    noises: Sequence[Vector],
    *,
    prox: Callable[[float, float], float],
    eta: float,
    C: float,
    s: int,
    sigma: float,
) -> list[Vector]:
    """Every w_1 .. w_T; ``prox`` is of eta f1 in one coordinate; noises are standard normal, sigma is on the mean."""
    path = []
    for batch, Z in zip(batches, noises, strict=True):
        nu = np.zeros_like(w)
        for i in batch:
            z = gradient(w, i)
            length = float(np.sqrt(np.sum(z * z)))
            nu = nu + (z if length <= C else z * (C / length)) / s
        g = nu + sigma * Z
        w = np.array([prox(float(v), eta) for v in w - eta * g])
        path.append(w)
    return path


def soft_threshold(v: float, eta: float, strength: float) -> float:
    """argmin_y eta strength |y| + (y - v)^2 / 2."""
    return max(v - eta * strength, 0.0) if v > 0.0 else min(v + eta * strength, 0.0)


def shrink(v: float, eta: float, strength: float) -> float:
    """argmin_y eta strength y^2 / 2 + (y - v)^2 / 2."""
    return v / (1.0 + eta * strength)
