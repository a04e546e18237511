"""Noisy Frank-Wolfe over an l_p ball as its pseudocode has it: sums, prefix sums of a tree, trees of gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Gradient = Callable[[Vector, int], Vector]


def clip(g: Vector, c: float, q: float) -> Vector:
    length = float(np.linalg.norm(g, q))
    return g if length <= c else g * (c / length)


def least(g: Vector, p: float, D: float) -> Vector:
    q = p / (p - 1.0)
    return -D * np.sign(g) * np.abs(g) ** (q - 1.0) / float(np.linalg.norm(g, q)) ** (q - 1.0)


def sums(
    x: Vector,
    gradient: Gradient,
    order: Sequence[int],
    noises: Sequence[Vector],
    *,
    kind: str,
    n0: int,
    m: int,
    eta: float,
    p: float,
    D: float,
    L0: float = math.inf,
    L1: float = math.inf,
) -> list[Vector]:
    """x_0, x_1, ...; noises are scaled. The kind is sums, prefix_tree or momentum."""
    q, unused, path = p / (p - 1.0), iter(order), [x]
    noisy: dict[tuple[int, int], Vector] = {}
    changes: list[Vector] = []
    first = d = np.mean([clip(gradient(x, next(unused)), L0, q) for _ in range(n0)], axis=0) + noises[0]
    for t in range(len(noises)):
        if t > 0:
            before, x = path[-2], path[-1]
            B = [next(unused) for _ in range(m)]
            moved = float(np.linalg.norm(x - before, p))
            c = min(2.0 * L0, L1 * moved if moved > 0.0 else 0.0)
            changes.append(np.mean([clip(gradient(x, i) - gradient(before, i), c, q) for i in B], axis=0))
            if kind == "sums":
                d = d + changes[-1] + noises[t]
            elif kind == "momentum":
                g = np.mean([clip(gradient(x, i), L0, q) for i in B], axis=0)
                d = (1.0 - eta) * (d + changes[-1]) + eta * g + noises[t]
            else:
                size = t & -t
                noisy[t - size, t] = np.sum(changes[t - size : t], axis=0) + noises[t]
                d, end = first, t
                while end:
                    start = end - (end & -end)
                    d, end = d + noisy[start, end], start
        path.append((1.0 - eta) * path[-1] + eta * least(d, p, D))
    return path


def trees(
    x: Vector,
    gradient: Gradient,
    order: Sequence[int],
    noises: Sequence[Vector],
    *,
    sigma: Sequence[float],
    T: int,
    b: int,
    p: float,
    D: float,
    L0: float = math.inf,
    L1: float = math.inf,
) -> list[Vector]:
    """The point after each leaf; noises have unit scale, in the order in which nodes read their records."""
    q, unused, fresh = p / (p - 1.0), iter(order), iter(noises)
    path: list[Vector] = []

    def visit(tau: int, j: int, v: Vector, x_in: Vector) -> None:
        nonlocal x
        if j == tau:
            eta = 2.0 / (len(path) + 2.0)
            x = (1.0 - eta) * x + eta * least(v, p, D)
            path.append(x)
            return
        visit(tau, j + 1, v, x_in)
        here, B = x, [next(unused) for _ in range(b // 2 ** (j + 1))]
        moved = float(np.linalg.norm(here - x_in, p))
        c = min(2.0 * L0, L1 * moved if moved > 0.0 else 0.0)
        change = np.mean([clip(gradient(here, i) - gradient(x_in, i), c, q) for i in B], axis=0)
        visit(tau, j + 1, v + change + sigma[j + 1] * next(fresh), here)

    for tau in range(1, T + 1):
        B = [next(unused) for _ in range(b)]
        visit(tau, 0, np.mean([clip(gradient(x, i), L0, q) for i in B], axis=0) + sigma[0] * next(fresh), x)
    return path
