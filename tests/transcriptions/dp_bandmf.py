"""Gradient steps with correlated noise (Choquette-Choo et al. 2023, Algorithm 1): a dense C, solved for all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def correlated(coefficients: Sequence[float], noises: Sequence[Vector]) -> list[Vector]:
    """C^-1 Z, a row for each step."""
    T = len(noises)
    C = np.array([[coefficients[t - i] if 0 <= t - i < len(coefficients) else 0.0 for i in range(T)] for t in range(T)])
    return list(np.linalg.solve(C, np.stack(noises)))


def descent(
    x: Vector,
    total: Callable[[Vector, int], Vector],
    noises: Sequence[Vector],
    *,
    eta: Sequence[float],
    beta: float,
    B: int,
) -> list[Vector]:
    """Every iterate, for given noise on the totals of steps."""
    path, m = [], np.zeros_like(x)
    for t, noise in enumerate(noises):
        m = beta * m + (total(x, t) + noise) / B
        x = x - eta[t] * m
        path.append(x)
    return path


def trajectory(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    batches: Sequence[Sequence[int]],
    noises: Sequence[Vector],
    *,
    coefficients: Sequence[float],
    eta: Sequence[float],
    beta: float,
    c: float,
    sigma: float,
    B: int,
) -> list[Vector]:
    """Every iterate, for given batches and given standard normal noise Z; sigma is the noise on a total."""

    def total(x: Vector, t: int) -> Vector:
        found = np.zeros_like(x)
        for i in batches[t]:
            g = gradient(x, i)
            length = float(np.sqrt(np.sum(g * g)))
            found = found + (1.0 if length == 0.0 else min(1.0, c / length)) * g
        return found

    noise = [sigma * each for each in correlated(coefficients, noises)]
    return descent(x, total, noise, eta=eta, beta=beta, B=B)
