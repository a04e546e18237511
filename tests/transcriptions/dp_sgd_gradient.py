"""DP-SGD with gradient perturbation as Algorithm 2 of Wang, Lei, Ying & Zhang 2022 writes it, record by record."""

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
    eta: float,
    G: float,
    sigma: float,
    b: int,
    R: float,
) -> tuple[list[Vector], Vector]:
    """Every point w_2 .. w_(T+1), and the released mean of w_1 .. w_T; sigma is the deviation on the mean gradient."""
    path, acc = [], np.zeros_like(w)
    for batch, Z in zip(batches, noises, strict=True):
        acc = acc + w
        mean = np.zeros_like(w)
        for i in batch:
            g = gradient(w, i)
            length = float(np.sqrt(np.sum(g * g)))
            mean = mean + (g if length <= G else g * (G / length)) / b
        w = w - eta * (mean + sigma * Z)
        length = float(np.sqrt(np.sum(w * w)))
        if length > R:
            w = w * (R / length)
        path.append(w)
    return path, acc / len(path)
