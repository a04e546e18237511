"""Stochastic Frank-Wolfe with a recursive gradient estimate over the l1 ball, as its pseudocode has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.transcriptions.dp_fw import Vector, clip


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    order: Sequence[int],
    select: Callable[[Vector], int],
    *,
    T: int,
    n0: int,
    m: int,
    eta: float,
    D: float,
    L0: float = math.inf,
    L1: float = math.inf,
) -> list[tuple[Vector, Vector]]:
    """The estimate d_t and the iterate x_{t+1}, t = 0..T-1.

    Args:
        order: Records in the order in which batches take them.
        select: From the scores of [+D e_1..+D e_d, -D e_1..-D e_d] to a vertex.
    """
    V = np.concatenate([D * np.eye(x.size), -D * np.eye(x.size)])
    path: list[tuple[Vector, Vector]] = []
    d = np.mean([clip(gradient(x, i), L0) for i in order[:n0]], axis=0)
    x_old = x
    for t in range(T):
        if t > 0:
            B = order[n0 + (t - 1) * m : n0 + t * m]
            c = 0.0 if np.array_equal(x, x_old) else min(2.0 * L0, L1 * float(np.sum(np.abs(x - x_old))))
            change = np.mean([clip(gradient(x, i) - gradient(x_old, i), c) for i in B], axis=0)
            fresh = np.mean([clip(gradient(x, i), L0) for i in B], axis=0)
            d = (1.0 - eta) * (d + change) + eta * fresh
        x_old, x = x, (1.0 - eta) * x + eta * V[select(V @ d)]
        path.append((d, x))
    return path
