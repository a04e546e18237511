"""Noisy mirror descent in an l_p ball as its pseudocode has it, record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    noises: Sequence[Vector],
    *,
    n: int,
    p: float,
    D: float,
    L0: float,
    sigma: float,
    eta: float,
) -> list[Vector]:
    """x_1, x_2, ... and the point after the last step; the mean of all but the last is released."""
    q = p / (p - 1.0)
    path = [x]
    for z in noises:
        g = np.zeros_like(x)
        for i in range(n):
            own = gradient(x, i)
            g += own * min(1.0, L0 / float(np.linalg.norm(own, q))) / n
        norm = float(np.linalg.norm(x, p))
        theta = (norm ** (2.0 - p) * np.sign(x) * np.abs(x) ** (p - 1.0) if norm > 0.0 else 0.0 * x) / (p - 1.0)
        theta = (theta - eta * (g + sigma * z)) * (p - 1.0)
        dual = float(np.linalg.norm(theta, q))
        u = dual ** (2.0 - q) * np.sign(theta) * np.abs(theta) ** (q - 1.0)
        x = u * min(1.0, D / float(np.linalg.norm(u, p)))
        path.append(x)
    return path
