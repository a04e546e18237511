"""DP-SGD-Output as Algorithm 1 of Wang, Lei, Ying & Zhang 2022 writes it, for given indices and noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def released(
    gradient: Callable[[Vector, int], Vector],
    indices: Sequence[int | None],
    noise: Vector,
    *,
    eta: float,
    sigma: float,
    R: float | None,
) -> Vector:
    """w_bar + sigma Z; an index without a record moves nothing. Without R the steps are on all of R^d."""
    w = np.zeros_like(noise)
    total = np.zeros_like(noise)
    for i in indices:
        total = total + w
        if i is not None:
            w = w - eta * gradient(w, i)
            length = float(np.sqrt(np.sum(w * w)))
            if R is not None and length > R:
                w = w * (R / length)
    average: Vector = total / len(indices)
    return average + sigma * noise
