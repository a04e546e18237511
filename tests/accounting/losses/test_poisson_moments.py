from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.losses.poisson_moments import ALLOWANCE, remove_moment, replace_moment
from tests.accounting.references import poisson_moment

REMOVE = [(1, 0.02, 1), (1, 0.02, 20), (0.5, 1e-6, 3), (10, 0.3, 30), (1, 0.02, 0.37), (5, 0.5, 0.4), (0.3, 1e-4, 2.7)]
REPLACE = [(1, 0.02, 1), (1, 0.02, 7.5), (0.5, 1e-6, 3), (10, 0.3, 20), (5, 0.9, 8), (0.4, 0.5, 1), (2, 0.01, 0.3)]


@pytest.mark.parametrize(("s", "q", "tilt"), REMOVE)
@pytest.mark.one_in(4)
def test_moment_is_an_upper_bound_remove(s: float, q: float, tilt: float) -> None:
    value = float(remove_moment(float(s), q, np.array([float(tilt)]))[0])
    assert 0 <= value / poisson_moment(s, q, tilt, "remove") - 1 < 1.1 * ALLOWANCE


@pytest.mark.parametrize(("s", "q", "tilt"), REPLACE)
@pytest.mark.one_in(3)
def test_moment_is_an_upper_bound_replace(s: float, q: float, tilt: float) -> None:
    value = float(replace_moment(float(s), q, np.array([float(tilt)]))[0])
    assert 0 <= value / poisson_moment(s, q, tilt, "replace") - 1 < 1.1 * ALLOWANCE


@pytest.mark.one_in(1000)
@pytest.mark.parametrize(("s", "q"), [(0.5, 0.1), (1.0, 0.01), (3.0, 0.5)])
def test_remove_dominates_add(s: float, q: float) -> None:
    for tilt in (0.5, 1.0, 4.0, 12.0):
        assert poisson_moment(s, q, tilt, "add") <= float(remove_moment(s, q, np.array([tilt]))[0])


def test_chord_is_above_between_integers() -> None:
    for tilt in (9.5, 20.25):
        value = float(remove_moment(1.0, 0.05, np.array([tilt]))[0])
        assert value >= poisson_moment(1.0, 0.05, tilt, "remove")


def test_beyond_the_limits_the_moment_is_infinite_not_wrong() -> None:
    assert math.isinf(float(remove_moment(1.0, 0.1, np.array([1e6]))[0]))
    assert math.isinf(float(replace_moment(0.05, 0.1, np.array([3000.0]))[0]))
