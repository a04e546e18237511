"""Frank-Wolfe over the l1 ball on smoothed links, as its recipe has it: envelopes by brute force, record by record."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.transcriptions.dp_fw import trajectory as frank_wolfe

Vector = npt.NDArray[np.float64]


def proximal_point(link: Callable[[float], float], m: float, beta: float) -> float:
    """The u of least l(u) + beta/2 (u - m)^2, by golden section: the function is strictly convex."""
    low, high, shrink = m - 60.0, m + 60.0, (np.sqrt(5.0) - 1.0) / 2.0

    def total(u: float) -> float:
        return link(u) + 0.5 * beta * (u - m) ** 2

    while high - low > 1e-9:
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        if total(left) < total(right):
            high = right
        else:
            low = left
    return 0.5 * (low + high)


def trajectory(
    A: Vector,
    link: Callable[[float, int], float],
    select: Callable[[Vector], int],
    *,
    beta: float,
    T: int,
    D: float,
    L0: float,
) -> list[tuple[Vector, Vector]]:
    """The mean gradient and the iterate after each step; ``link(u, i)`` is the loss of record i at the logit u."""
    n, d = A.shape

    def gradient(x: Vector, i: int) -> Vector:
        m = float(A[i] @ x)
        u = proximal_point(lambda v: link(v, i), m, beta)
        return beta * (m - u) * A[i]

    return frank_wolfe(np.zeros(d), gradient, select, n=n, T=T, D=D, L0=L0)
