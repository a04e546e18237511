"""DP-SVRG and DP-SVRG++ as Algorithms 1 and 2 of Wang, Ye & Xu 2017 write them, record by record, with a clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def snapshots(
    x0: Vector,
    gradient: Callable[[Vector, int], Vector],
    batches: Sequence[Sequence[int]],
    noises: Sequence[Vector],
    prox: Callable[[Vector], Vector],
    *,
    inner: Sequence[int],
    n: int,
    eta: float,
    G: float,
    sigma: float,
    plus_plus: bool,
) -> list[Vector]:
    """x~_0 and every x~_s after it, for given batches and standard normal noise; records are numbered from 0."""

    def clipped(x: Vector, i: int) -> Vector:
        g = gradient(x, i)
        length = float(np.sqrt(np.sum(g * g)))
        return g if length <= G else (G / length) * g

    drawn = iter(zip(batches, noises, strict=True))
    x, found = x0, [x0]
    for m in inner:
        snapshot = found[-1]
        full = sum((clipped(snapshot, i) for i in range(n)), np.zeros_like(x0)) / n
        x = x if plus_plus else snapshot
        acc = np.zeros_like(x0)
        for _ in range(m):
            B, Z = next(drawn)
            v = sum(((clipped(x, i) - clipped(snapshot, i)) / len(B) for i in B), full) + sigma * Z
            x = prox(x - eta * v)
            acc = acc + x
        found.append(acc / m)
    return found
