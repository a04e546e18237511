"""P_1D and P_vec (Algorithms 10, 11 and 14) of Lowy & Razaviyayn 2023, user by user, with n C for the printed L."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def p_1d(
    numbers: Sequence[float], *, tau: float, g: int, b: int, p: float, up: Sequence[bool], noise_ones: int
) -> float:
    """The sum of numbers in [0, tau]: ``up`` are the bits of the rounding, ``noise_ones`` all users' binomials."""
    ones = noise_ones
    for z, rounded_up in zip(numbers, up, strict=True):
        ones += math.floor(z * g / tau) + int(rounded_up)
    return tau / g * (ones - p * b * len(numbers))


def rounded_up(numbers: Sequence[float], uniforms: Vector, levels_per_unit: float) -> list[bool]:
    """Bernoulli variables with the chance of what a number is above its integer part."""
    fractions = [z * levels_per_unit - math.floor(z * levels_per_unit) for z in numbers]
    return [bool(u < f) for u, f in zip(uniforms, fractions, strict=True)]


def p_vec(
    records: Sequence[Vector], uniforms: Vector, noise_ones: Sequence[int], *, C: float, g: int, b: int
) -> Vector:
    """The mean of the records clipped to length C."""
    clipped = [z * min(1.0, C / max(float(np.sqrt(np.sum(z * z))), 1e-300)) for z in records]
    n, mean = len(records), []
    for j, ones in enumerate(noise_ones):
        shifted = [float(z[j]) + C for z in clipped]
        up = rounded_up(shifted, uniforms[:, j], g / (2.0 * C))
        mean.append((p_1d(shifted, tau=2.0 * C, g=g, b=b, p=0.5, up=up, noise_ones=int(ones)) - n * C) / n)
    return np.array(mean)
