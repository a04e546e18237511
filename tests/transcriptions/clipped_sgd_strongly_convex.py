"""Algorithm 6 of Lowy & Razaviyayn 2023 as it is written (batches of s = floor(n/(T + 1))), record by record."""

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
    etas: Sequence[float],
    zetas: Sequence[float],
    C: float,
    s: int,
    sigma: float,
    radius: float = float("inf"),
    penalty: float = 0.0,
) -> tuple[list[Vector], Vector]:
    """Every w_1 .. w_{T+1}, and their average by zeta; noises are standard normal, sigma is on the mean."""
    path, average = [], np.zeros_like(w)
    for batch, Z, eta, zeta in zip(batches, noises, etas, zetas, strict=True):
        nu = np.zeros_like(w)
        for i in batch:
            z = gradient(w, i)
            length = float(np.sqrt(np.sum(z * z)))
            nu = nu + (z if length <= C else z * (C / length)) / s
        w = w - eta * (nu + sigma * Z + penalty * w)
        if float(np.sqrt(np.sum(w * w))) > radius:
            w = w * (radius / float(np.sqrt(np.sum(w * w))))
        path.append(w)
        average = average + zeta * w
    return path, average / sum(zetas)
