"""Algorithms 3 and 4 of Lowy & Razaviyayn 2023 as they are written, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def algorithm_3(
    w_0: Vector,
    gradient: Callable[[Vector, int], Vector],
    block: Sequence[int],
    noises: Iterator[Vector],
    *,
    T: int,
    eta: float,
    lam: float,
    C: float,
    sigma: float,
    W: Callable[[Vector], Vector],
    radius: float,
    penalty: float = 0.0,
) -> list[Vector]:
    """Every w_1 .. w_T; W is the projection on the domain, sigma is on the mean."""
    w, path = w_0, []
    for _ in range(T):
        g = np.zeros_like(w)
        for j in block:
            z = gradient(w, j)
            length = float(np.sqrt(np.sum(z * z)))
            g = g + (z if length <= C else z * (C / length)) / len(block)
        v = w - eta * (g + sigma * next(noises) + lam * (w - w_0) + penalty * w)
        w = nearest(W, w_0, radius, v)
        path.append(w)
    return path


def nearest(W: Callable[[Vector], Vector], centre: Vector, radius: float, v: Vector) -> Vector:
    """Of W and the ball about the centre: W's nearest to a mean of v and the centre, of least weight."""

    def far(y: Vector) -> bool:
        return float(np.sqrt(np.sum((y - centre) ** 2))) > radius

    if not far(W(v)):
        return W(v)
    low, high = 0.0, 1.0
    for _ in range(200):
        weight = 0.5 * (low + high)
        low, high = (weight, high) if far(W((1.0 - weight) * v + weight * centre)) else (low, weight)
    return W((1.0 - high) * v + high * centre)


def ball(radius: float) -> Callable[[Vector], Vector]:
    """The projection on the l2 ball about 0."""
    return lambda v: v * min(1.0, radius / max(float(np.sqrt(np.sum(v * v))), 1e-300))


def algorithm_4(
    w: Vector,
    gradient: Callable[[Vector, int], Vector],
    order: Sequence[int],
    noises: Sequence[Vector],
    *,
    n: Sequence[int],
    T: Sequence[int],
    eta: Sequence[float],
    lam: Sequence[float],
    C: Sequence[float],
    sigma: Sequence[float],
    D: Sequence[float],
    W: Callable[[Vector], Vector],
    penalty: float = 0.0,
) -> Vector:
    """w_l; blocks take their records in order."""
    unused, noise = iter(order), iter(noises)
    for i in range(len(n)):
        block = [next(unused) for _ in range(n[i])]
        w = algorithm_3(
            w,
            gradient,
            block,
            noise,
            T=T[i],
            eta=eta[i],
            lam=lam[i],
            C=C[i],
            sigma=sigma[i],
            W=W,
            radius=D[i],
            penalty=penalty,
        )[-1]
    return w
