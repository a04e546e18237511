"""DP-NSGD as equation (3) and Algorithm 1 of Yang, Zhang, Chen & Liu 2022 write it, record by record."""

from __future__ import annotations

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
) -> list[Vector]:
    """Every iterate, for given batches and given standard normal noise."""
    path = []
    for batch, Z in zip(batches, noises, strict=True):
        total = np.zeros_like(x)
        for i in batch:
            g = gradient(x, i)
            length = float(np.sqrt(np.sum(g * g)))
            total = total + (g / (r + length) if length > 0.0 else 0.0)
        x = x - (eta / B) * (total + sigma * Z)
        path.append(x)
    return path
