"""How far a record moves correlated sums: against every set of steps it may be in, and published numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.factorisations import (
    MOST_COEFFICIENTS,
    buffered,
    inverse_of_root,
    not_increasing,
    participation_norm,
    square_root,
)


def toeplitz(coefficients: Sequence[float], steps: int) -> np.ndarray:
    """C, lower triangular."""
    return np.array(
        [[coefficients[i - j] if 0 <= i - j < len(coefficients) else 0.0 for j in range(steps)] for i in range(steps)]
    )


def largest_move(coefficients: Sequence[float], steps: int, separation: int) -> float:
    """Over all sets of steps that far apart, with equal contributions: the worst where no entry is negative."""
    matrix, best = toeplitz(coefficients, steps), 0.0
    for chosen in itertools.product((0.0, 1.0), repeat=steps):
        at = np.flatnonzero(chosen)
        if np.all(np.diff(at) >= separation):
            best = max(best, float(np.linalg.norm(matrix @ chosen)))
    return best


@pytest.mark.one_in(3)
@pytest.mark.parametrize("steps", [1, 2, 5, 9])
@pytest.mark.parametrize("separation", [1, 2, 3, 10])
@pytest.mark.parametrize("bands", [1, 2, 4, 9])
def test_no_set_of_steps_moves_farther(steps: int, separation: int, bands: int) -> None:
    coefficients = np.sort(np.random.default_rng(100 * steps + 10 * separation + bands).random(bands))[::-1]
    truth = largest_move(coefficients.tolist(), steps, separation)
    assert truth <= participation_norm(coefficients, steps, separation) * (1.0 + 1e-15)
    assert participation_norm(coefficients, steps, separation) <= truth * (1.0 + 1e-13)


def test_a_bound_is_not_below_the_exact_number() -> None:
    """The check uses rational numbers, with a long repetition."""
    values, steps, separation = [Fraction(1), Fraction(7, 8), Fraction(3, 16), Fraction(3, 16)], 1003, 3
    column = [Fraction(0)] * steps
    for first in range(0, steps, separation):
        for place, value in enumerate(values):
            if first + place < steps:
                column[first + place] += value
    exact = mp.sqrt(mp.mpf(sum(y * y for y in column).numerator) / sum(y * y for y in column).denominator)
    bound = participation_norm(np.array([float(value) for value in values]), steps, separation)
    assert exact <= bound <= exact * (1 + mp.mpf("1e-12"))


@pytest.mark.parametrize("bands", [1, 2, 3, 7])
def test_no_bound_is_below_its_exact_number(bands: int) -> None:
    """Where columns of different steps meet and where they do not: half of all plain roots would be too small."""
    draw = np.random.default_rng(bands)
    for _ in range(150):
        steps, separation = int(draw.integers(1, 60)), int(draw.integers(1, 12))
        coefficients = np.sort(draw.random(bands))[::-1]
        column = [Fraction(0)] * steps
        for first in range(0, steps, separation):
            for place, value in enumerate(coefficients[: steps - first].tolist()):
                column[first + place] += Fraction(value)
        exact = sum(y * y for y in column)
        assert exact <= Fraction(participation_norm(coefficients, steps, separation)) ** 2 <= exact * (1 + 10**-9)


@pytest.mark.parametrize(
    ("coefficients", "squared"),
    [
        (square_root(100), 50.627042),
        (square_root(2000), 295.515858),
        (inverse_of_root(16, 2000), 42.417524),
        (buffered((0.25292003, 0.25649705), (0.98455145, 0.57383509), 2000), 94.444248),
    ],
    ids=["square root, 100 bands", "square root", "inverse, 16 bands", "two buffers"],
)
def test_known_sensitivities(coefficients: np.ndarray, squared: float) -> None:
    """Twenty epochs of a hundred steps; jax_privacy agrees on the first three, dense matrices on the last."""
    assert participation_norm(coefficients, 2000, 100) ** 2 == pytest.approx(squared, abs=1e-6)


def test_coefficients_are_bounds_of_the_exact_ones() -> None:
    exact = [Fraction(1)]
    # The plain products are too small from the 535th one on.
    for place in range(1, 700):
        exact.append(exact[-1] * Fraction(2 * place - 1, 2 * place))
    for found, truth in zip(square_root(700).tolist(), exact, strict=True):
        assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**12))
    root = [Fraction(1)]
    for place in range(1, 5):
        root.append(root[-1] * Fraction(2 * place - 3, 2 * place))
    inverse = [Fraction(1)]
    for place in range(1, 200):
        inverse.append(-sum(root[back] * inverse[place - back] for back in range(1, min(place, 4) + 1)))
    assert inverse == sorted(inverse, reverse=True)
    for found, truth in zip(inverse_of_root(5, 200).tolist(), inverse, strict=True):
        assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**12))
    scales, decays = (0.5, 0.25), (0.75, 0.5)
    for place, found in enumerate(buffered(scales, decays, 60).tolist()):
        truth = (
            sum(Fraction(s) * Fraction(d) ** (place - 1) for s, d in zip(scales, decays, strict=True)) if place else 1
        )
        assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**12))


def test_coefficients_do_not_increase_where_their_bounds_are_lifted() -> None:
    """A buffer that forgets nothing has equal coefficients, and only the later ones of them are rounded up."""
    for found in (buffered((1.0,), (1.0,), 50), buffered((0.5, 0.5), (1.0, 1.0), 50), inverse_of_root(9, 20_000)):
        assert (np.diff(found) <= 0.0).all()
    assert (buffered((1.0,), (1.0,), 50) >= 1.0).all()


def test_a_band_of_one_is_independent_noise() -> None:
    for coefficients in (square_root(1), inverse_of_root(1, 50)[:1], buffered((0.0,), (0.5,), 50)[:1]):
        assert coefficients.tolist() == [1.0]
    assert inverse_of_root(1, 3).tolist() == [1.0, 0.0, 0.0]
    assert participation_norm(np.array([1.0]), 10**8, 10) == pytest.approx(math.sqrt(10**7), rel=1e-12)


def test_steps_far_apart_take_no_memory() -> None:
    """A hundred million steps between two of a record's, with three coefficients."""
    coefficients = np.array([1.0, 0.5, 0.25])
    for steps, squared in ((1, 1.0), (10**8, 1.3125), (10**8 + 1, 2.3125), (3 * 10**8, 3.9375)):
        assert participation_norm(coefficients, steps, 10**8) ** 2 == pytest.approx(squared, rel=1e-13)


def test_what_increases_is_lifted() -> None:
    assert not_increasing(np.array([0.5, 0.75, 0.25, 0.25, 0.3])).tolist() == [0.75, 0.75, 0.3, 0.3, 0.3]
    lifted = not_increasing(np.array([1.0, 0.0, 1.0]))
    assert participation_norm(lifted, 6, 1) >= largest_move([1.0, 0.0, 1.0], 6, 1)


@pytest.mark.parametrize(
    "make", [square_root, lambda steps: inverse_of_root(2, steps), lambda steps: buffered((0.5,), (0.5,), steps)]
)
def test_too_many_coefficients_are_refused(make) -> None:
    with pytest.raises(InvalidValue, match="at most 100000 steps, got 100001") as refused:
        make(MOST_COEFFICIENTS + 1)
    assert refused.value.pointer == ("count",)
