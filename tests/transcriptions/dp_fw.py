"""Full-batch Frank-Wolfe over the l1 ball as its pseudocode has it, record by record."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def clip(g: Vector, c: float) -> Vector:
    """In the dual norm of l1: g min(1, c / |g|_inf)."""
    largest = float(np.max(np.abs(g)))
    return g if largest <= c else g * (c / largest)


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    select: Callable[[Vector], int],
    *,
    n: int,
    T: int,
    D: float,
    L0: float = math.inf,
) -> list[tuple[Vector, Vector]]:
    """The mean gradient and the iterate after each step.

    Args:
        select: From the scores of [+D e_1..+D e_d, -D e_1..-D e_d] to a vertex.
    """
    V = np.concatenate([D * np.eye(x.size), -D * np.eye(x.size)])
    path = []
    for t in range(T):
        g = np.mean([clip(gradient(x, i), L0) for i in range(n)], axis=0)
        v = V[select(V @ g)]
        eta = 2.0 / (t + 2.0)
        x = (1.0 - eta) * x + eta * v
        path.append((g, x))
    return path
