"""Tree Frank-Wolfe over the l1 ball as its pseudocode has it: recursive, record by record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    order: Sequence[int],
    select: Callable[[Vector, int], int],
    *,
    T: int,
    b: int,
    D: float,
    L0: float = math.inf,
    L1: float = math.inf,
) -> list[tuple[Vector, Vector]]:
    """The estimate and the iterate after each leaf.

    Args:
        order: Records in the order in which nodes take them.
        select: From the scores of [+D e_1..+D e_d, -D e_1..-D e_d] and the tree's number to a vertex.
    """
    unused = iter(order)
    path: list[tuple[Vector, Vector]] = []
    V = np.concatenate([D * np.eye(x.size), -D * np.eye(x.size)])

    def clip(g: Vector, c: float) -> Vector:
        largest = float(np.max(np.abs(g)))
        return g if largest <= c else g * (c / largest)

    def visit(tau: int, j: int, v: Vector, x_in: Vector) -> None:
        nonlocal x
        if j == tau:
            u = V[select(V @ v, tau)]
            eta = 2.0 / (len(path) + 2.0)
            x = (1.0 - eta) * x + eta * u
            path.append((v, x))
            return
        visit(tau, j + 1, v, x_in)
        B = [next(unused) for _ in range(b // 2 ** (j + 1))]
        c = 0.0 if np.array_equal(x, x_in) else min(2.0 * L0, L1 * float(np.sum(np.abs(x - x_in))))
        here = x
        changes = [clip(gradient(here, i) - gradient(x_in, i), c) for i in B]
        visit(tau, j + 1, v + np.mean(changes, axis=0), here)

    for tau in range(1, T + 1):
        B = [next(unused) for _ in range(b)]
        visit(tau, 0, np.mean([clip(gradient(x, i), L0) for i in B], axis=0), x)
    return path


def leaves(T: int) -> Iterator[tuple[int, int]]:
    """Tree and leaf of every step."""
    for tau in range(1, T + 1):
        for leaf in range(2**tau):
            yield tau, leaf
