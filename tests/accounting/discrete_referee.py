"""Compositions of discrete pairs by direct convolution: sums of positive terms, without transforms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def power(masses: Array, count: int) -> Array:
    """The law of the sum of ``count`` independent indices."""
    total, square = np.ones(1), masses
    while count:
        if count % 2:
            total = np.convolve(total, square)
        count //= 2
        square = np.convolve(square, square) if count else square
    return total


def lattice_delta(masses: Array, first_loss: float, step: float, count: int, epsilon: float) -> float:
    """delta of ``count`` steps with ``masses`` at first_loss + step j."""
    composed = power(masses, count)
    losses = count * first_loss + step * np.arange(composed.size)
    above = losses > epsilon
    return float(composed[above] @ -np.expm1(epsilon - losses[above]))


def response_delta(k: int, p: float, against_null: bool, count: int, epsilon: float) -> float:
    """Randomised response: the worse of both directions."""
    kept, other = 1.0 - p + p / k, p / k
    if not against_null:
        size = math.log(kept / other)
        return lattice_delta(np.array([other, (k - 2) * other, kept]), -size, size, count, epsilon)
    low, high = math.log(other * k), math.log(kept * k)
    remove = lattice_delta(np.array([(k - 1) * other, kept]), low, high - low, count, epsilon)
    return max(remove, lattice_delta(np.array([1.0, k - 1.0]) / k, -high, high - low, count, epsilon))


def discrete_laplace_delta(a: float, shift: int, count: int, epsilon: float) -> float:
    y = np.arange(1, shift)
    beyond = 1.0 / (1.0 + math.exp(-a))
    falling = [beyond, *(math.tanh(0.5 * a) * np.exp(-a * y)), beyond * math.exp(-a * shift)]
    return lattice_delta(np.array(falling[::-1]), -a * shift, 2.0 * a, count, epsilon)


def discrete_gaussian_delta(s: float, shift: int, count: int, epsilon: float) -> float:
    y = np.arange(-math.ceil(12.0 * s), math.ceil(12.0 * s) + 1)
    masses = np.exp(-0.5 * (y / s) ** 2)
    return lattice_delta(masses / masses.sum(), shift * (y[0] + 0.5 * shift) / s**2, shift / s**2, count, epsilon)


def bounded_range_delta(epsilon_range: float, count: int, epsilon: float) -> float:
    """The largest over some t of steps with the losses t and t - range, all alike: attained."""
    largest = 0.0
    for share in np.linspace(0.3, 0.95, 14):
        t = float(share) * epsilon_range
        likely = (math.exp(epsilon_range) - math.exp(t)) / math.expm1(epsilon_range)
        masses = np.array([1.0 - likely, likely])
        largest = max(largest, lattice_delta(masses, t - epsilon_range, epsilon_range, count, epsilon))
    return largest


def adaptive_range_delta(epsilon_range: float, count: int, epsilon: float, parts: int = 12) -> float:
    """Steps whose losses t and t - range follow the losses before, t a multiple of range / ``parts``: attained.

    Backwards over the steps, at what is left of epsilon: no choice on this lattice does better.
    """
    step = epsilon_range / parts
    t = step * np.arange(parts + 1)
    likely = (math.exp(epsilon_range) - np.exp(t)) / math.expm1(epsilon_range)
    left = epsilon - step * np.arange(-count * parts, count * parts + 1)
    value = np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0)
    for _ in range(count):
        n = value.size
        choices = [
            p * value[parts + j : n - parts + j] + (1.0 - p) * value[j : n - 2 * parts + j]
            for j, p in enumerate(likely.tolist())
        ]
        value = np.max(choices, axis=0)
    return float(value[0])
