"""Proximally guided private mirror descent at p = 2, record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tests.transcriptions.localized_clipped_subgradient import nearest

Vector = npt.NDArray[np.float64]


def rounds(
    x_0: Vector,
    gradient: Callable[[Vector, int], Vector],
    order: Sequence[int],
    noises: Sequence[Vector],
    *,
    R: int,
    m: int,
    T: int,
    omega: float,
    L0: float,
    C: float,
    sigma: float,
    X: Callable[[Vector], Vector],
) -> list[Vector]:
    """x_0 .. x_R; X is the projection on the domain, sigma is on the mean, L0 the localisation's."""
    beta, path, noise = 2.0 * omega, [x_0], iter(noises)
    for t in range(R):
        batch, x_t, points = order[t * m : (t + 1) * m], path[-1], [path[-1]]
        for k in range(1, T + 1):
            x, g = points[-1], np.zeros_like(x_0)
            for j in batch:
                z = gradient(x, j)
                length = float(np.sqrt(np.sum(z * z)))
                g = g + (z if length <= C else z * (C / length)) / m
            v = x - 2.0 / (omega * (k + 1)) * (g + sigma * next(noise) + beta * (x - x_t))
            points.append(nearest(X, x_t, 2.0 * L0 / (omega + beta), v))
        path.append(sum(2.0 * k / (T * (T + 1)) * x for k, x in enumerate(points[:T], start=1)))
    return path
