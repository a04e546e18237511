"""Algorithm 2 of Lowy & Razaviyayn 2023 as it is written (batches of s = floor(n/T)), record by record."""

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
    C: float,
    s: int,
    sigma: float,
    radius: float = float("inf"),
    penalty: float = 0.0,
) -> list[tuple[Vector, Vector, Vector, Vector]]:
    """(w_t^md, g_t, w_t, w_t^ag) for t = 1..T; noises are standard normal, sigma is on the mean."""
    ag, path = w, []
    for t, (batch, Z) in enumerate(zip(batches, noises, strict=True), start=1):
        alpha_t, eta_t = 2.0 / (t + 1), 4.0 * eta / (t * (t + 1))
        md = (1.0 - alpha_t) * ag + alpha_t * w
        nu = np.zeros_like(w)
        for i in batch:
            z = gradient(md, i)
            length = float(np.sqrt(np.sum(z * z)))
            nu = nu + (z if length <= C else z * (C / length)) / s
        g = nu + sigma * Z + penalty * md
        w = w - (alpha_t / eta_t) * g
        if float(np.sqrt(np.sum(w * w))) > radius:
            w = w * (radius / float(np.sqrt(np.sum(w * w))))
        ag = alpha_t * w + (1.0 - alpha_t) * ag
        path.append((md, g, w, ag))
    return path
