"""DP-AccMD after Algorithm 3 of Wang, Ye & Xu 2017, record by record: y follows z, so that only noisy gradients enter.

The l1 ball is run in u-space, on 2 p weights with x = R (u+ - u-), as the entropy asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def trajectory(
    gradient: Callable[[Vector, int], Vector],
    noises: Sequence[Vector],
    *,
    p: int,
    norm_order: int,
    n: int,
    R: float,
    L: float,
    G: float,
    sigma: float,
) -> list[Vector]:
    """y_0 = 0 and every y after it, for given standard normal noise; sigma is on the average of the n gradients."""
    L_C = L * R**2
    back = R * np.vstack([np.eye(p), -np.eye(p)]).T if norm_order == 1 else np.eye(p)
    z = np.full(2 * p, 1.0 / (2 * p)) if norm_order == 1 else np.zeros(p)
    y = z
    path = [back @ y]
    for k, Z in enumerate(noises):
        alpha, r = (k + 2) / (4.0 * L_C), 2.0 / (k + 2)
        x = r * z + (1.0 - r) * y
        average = np.zeros(p)
        for i in range(n):
            g = gradient(back @ x, i)
            length = float(np.sqrt(np.sum(g * g)))
            average = average + (g if length <= G else (G / length) * g) / n
        g = average + sigma * Z
        if norm_order == 1:
            z = z * np.exp(-alpha * R * np.concatenate([g, -g]))
            z = z / np.sum(z)
        else:
            z = z - alpha * R**2 * g
            z = z * min(1.0, R / float(np.sqrt(np.sum(z * z))))
        y = r * z + (1.0 - r) * y
        path.append(back @ y)
    return path
