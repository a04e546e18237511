"""The grid of sums and noise: its step, and the margin that pays for every rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from accounting.errors import InvalidValue
from trainer.clipping import MARGINS
from trainer.gradients import PIECE_ROWS
from trainer.grid import LARGEST_SCALE, Grid, grid_for

UNITS = {"float64": Fraction(1, 2**53), "float32": Fraction(1, 2**24)}
#: The relative error of computed norms: up to 4096 squares are added in float32, and squares of float64 in float64.
NORM_ERRORS = {"float64": Fraction(1, 2**40), "float32": Fraction(1, 2**10)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("dimension", [1, 2, 31, 7850, 203_530, 2**26])
@pytest.mark.parametrize("noise_multiplier", [0.3, 8.4, 1e4, 1e7])
@pytest.mark.parametrize("contributions", [1, 10**6, 10**11])
@pytest.mark.parametrize("norm_order", [1.0, 1.5, 2.0, 7.0, math.inf])
def test_rounding_stays_within_the_margin(
    dtype: str, dimension: int, noise_multiplier: float, contributions: int, norm_order: float
) -> None:
    """The inequality of `trainer.grid`, in rational arithmetic: a record moves the integers by at most 1 / gamma."""
    try:
        grid = grid_for(noise_multiplier, dimension, dtype, contributions, norm_order=norm_order)
    except InvalidValue:
        assert noise_multiplier * dimension > 1e8 or contributions == 10**11
        return
    unit, rows = UNITS[dtype], PIECE_ROWS[dtype]
    summed = (rows + Fraction(rows * (rows + 1), 2)) * (1 + rows * unit) * unit
    longest = (1 - Fraction(grid.margin)) * (1 + NORM_ERRORS[dtype]) * (1 + 4 * unit)
    rounded = Fraction(grid.step) * Fraction(dimension ** (1.0 / norm_order) if norm_order < math.inf else 1.0)
    assert longest + 2 * summed + rounded * (1 + Fraction(1, 2**40)) <= 1
    # And what is drawn and added stays exact in float64.
    assert grid.scale <= LARGEST_SCALE * (1 + 1e-15)
    assert contributions / grid.step <= 2.0**52
    assert Fraction(grid.step).limit_denominator(2**80) == Fraction(grid.step)
    assert math.frexp(grid.step)[0] == 0.5


@pytest.mark.parametrize("noise_multiplier", [1e-3, 0.1, 1.0, 1.0 / 3.0, 5.5, 1e5])
def test_noise_is_not_below_the_charged(noise_multiplier: float) -> None:
    grid = grid_for(noise_multiplier, 1000, "float64", 1000)
    assert Fraction(grid.scale) * Fraction(grid.step) >= Fraction(noise_multiplier)
    assert grid.scale * grid.step <= noise_multiplier * (1.0 + 1e-15)


def test_the_steps_are_those_of_the_worked_numbers() -> None:
    """In units of the bound, from independent computation: the step of the bound C is C times the largest 2^k."""
    assert math.log2(grid_for(8.4, 200_000, "float64", 1000).step) == -29
    assert grid_for(8.4, 200_000, "float64", 1000).scale == pytest.approx(4509715660.8, rel=1e-15)
    assert math.log2(grid_for(1.0, 203_530, "float32", 1000).step) == -22
    # A standard deviation of 2^36 steps is the largest: the grid is coarser by two, and the margin wider.
    coarse = grid_for(100.0, 10**6, "float64", 1000)
    assert math.log2(coarse.step) == -29
    assert coarse.margin == MARGINS["float64"] + coarse.step * 1000.0


@pytest.mark.parametrize("dimension", [1, 4, 5, 2**26, 2**26 + 1])
def test_the_step_is_the_largest_that_fits(dimension: int) -> None:
    """Decided in integers: a floating-point logarithm would miss it at powers of two."""
    step = Fraction(grid_for(1.0, dimension, "float64", 1).step)
    share = Fraction(1, 2**20)
    assert step**2 * dimension <= share**2 < (2 * step) ** 2 * dimension


def test_a_grid_has_room_for_coordinates_that_are_larger_than_the_noises_scale() -> None:
    """It is coarser where they would be more than 2^36 steps, and the margin wider by as much."""
    narrow, wide = (grid_for(8.4, 10**5, "float64", 1000, norm_order=3.0, spread=spread) for spread in (1.0, 4096.0))
    assert narrow.scale <= LARGEST_SCALE < 4096.0 * narrow.scale
    assert wide.scale * 4096.0 <= LARGEST_SCALE
    assert wide.scale * wide.step == narrow.scale * narrow.step
    assert wide.margin == MARGINS["float64"] + wide.step * math.pow(10**5, 1.0 / 3.0)


def test_so_much_noise_that_nothing_is_left_of_a_sum_is_refused() -> None:
    with pytest.raises(InvalidValue, match="use a smaller noise multiplier"):
        grid_for(1e9, 10**6, "float64", 1000)


def test_decoding_multiplies_by_the_unit() -> None:
    grid = Grid(2.0**-4, 1e-5, 16.0)
    assert grid.decoded(32.0, 3.0) == 6.0
    assert grid.steps_per_unit == 16.0


@pytest.mark.parametrize("sum_of_steps", [0.0, -0.0])
@pytest.mark.parametrize("noise", [0.0, -0.0])
def test_zeros_have_no_sign(sum_of_steps: float, noise: float) -> None:
    """A sum just below zero is rounded to minus zero: with noise of minus zero that was seen in the release."""
    grid = grid_for(1.0, 4, "float64", 10)
    assert math.copysign(1.0, grid.noised(np.array([sum_of_steps]), np.array([noise]), 1.0)[0]) == 1.0
