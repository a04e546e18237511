"""DP-NAdam of Yang, Zhang, Chen & Liu 2022, Appendix D: Adam on the noisy mean of equation (3), entry by entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    batches: Sequence[Sequence[int]],
    noises: Sequence[Vector],
    *,
    eta: float,
    r: float,
    sigma: float,
    B: int,
    b1: float = 0.9,
    b2: float = 0.999,
    xi: float = 1e-8,
    ridge: float = 0.0,
    box: tuple[float, float] = (-math.inf, math.inf),
) -> list[Vector]:
    """Every iterate, for given batches and given standard normal noise.

    A ridge and a box, which the paper does not have, are minimised over with each coordinate's own step size.
    """
    path, m, v = [], [0.0] * len(x), [0.0] * len(x)
    for t, (batch, Z) in enumerate(zip(batches, noises, strict=True), start=1):
        total = np.zeros_like(x)
        for i in batch:
            g = gradient(x, i)
            length = float(np.sqrt(np.sum(g * g)))
            total = total + (g / (r + length) if length > 0.0 else 0.0)
        mean = (total + sigma * Z) / B
        x = x.copy()
        for j, entry in enumerate(mean.tolist()):
            m[j] = b1 * m[j] + (1 - b1) * entry
            v[j] = b2 * v[j] + (1 - b2) * entry**2
            eta_j = eta / (math.sqrt(v[j] / (1 - b2**t)) + xi)
            x[j] = min(max((x[j] - eta_j * m[j] / (1 - b1**t)) / (1 + eta_j * ridge), box[0]), box[1])
        path.append(x)
    return path
