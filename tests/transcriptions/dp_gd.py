"""DP-GD as Algorithm 4 of Wang, Ye & Xu 2017 writes it, record by record, with the clip that makes G a fact."""

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
    eta: float,
    G: float,
    sigma: float,
) -> list[Vector]:
    """x_0 and every iterate after it, for given standard normal noise; sigma is on the average of the n gradients."""
    path = [x]
    for Z in noises:
        average = np.zeros_like(x)
        for i in range(n):
            g = gradient(x, i)
            length = float(np.sqrt(np.sum(g * g)))
            average = average + (g if length <= G else (G / length) * g) / n
        x = x - eta * (average + sigma * Z)
        path.append(x)
    return path


def released(path: Sequence[Vector], m: int | None) -> Vector:
    """x_T in the PL case; without convexity x_m, m uniform on {0, .., T-1}."""
    return path[-1] if m is None else path[:-1][m]
