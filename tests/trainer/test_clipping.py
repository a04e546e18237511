"""The bounds on one record's contribution hold for every gradient, at the edges of floating point too."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from trainer.clipping import MARGIN, clip_factors, normalize_factors, row_norms

#: |v| and scale of a gradient scale * v, anywhere a prepared record can put them.
NORMS = st.one_of(st.just(0.0), st.floats(-1073, 60).map(lambda e: 2.0**e), st.floats(1e-3, 1e3))
SCALES = st.integers(0, 1023).map(lambda e: 2.0**e)
POSITIVE = st.floats(-100, 12).map(lambda e: 10.0**e)
SLACK = 1e-15


@settings(max_examples=400, deadline=None)
@given(NORMS, SCALES, st.floats(-99, 12).map(lambda e: 10.0**e))
def test_clipped_within_the_bound(norm: float, scale: float, bound: float) -> None:
    factor = float(clip_factors(np.array([norm]), np.array([scale]), bound)[0])
    assert Fraction(factor) * Fraction(norm) <= Fraction(bound) * Fraction(1.0 - MARGIN + SLACK)


@settings(max_examples=400, deadline=None)
@given(NORMS, SCALES, st.one_of(st.just(0.0), POSITIVE))
def test_normalized_below_one(norm: float, scale: float, regularizer: float) -> None:
    factor = float(normalize_factors(np.array([norm]), np.array([scale]), regularizer)[0])
    assert Fraction(factor) * Fraction(norm) <= Fraction(1.0 - MARGIN + SLACK)


def test_short_gradients_are_kept() -> None:
    norms = np.array([1e-200, 0.5, 2.0 * (1.0 - MARGIN), 2.0])
    factors = clip_factors(norms, np.ones(4), 2.0)
    assert factors[:3].tolist() == [1.0, 1.0, 1.0]
    assert factors[3] == pytest.approx(1.0 - MARGIN, rel=1e-15)


def test_exact_away_from_one() -> None:
    norms = np.array([0.001, 1.0, 50.0, 1e9])
    factors = normalize_factors(norms, np.ones(4), 0.01)
    np.testing.assert_allclose(factors[:3], 1.0 / (0.01 + norms[:3]), rtol=1e-15)
    assert factors[3] * norms[3] == pytest.approx(1.0 - MARGIN, rel=1e-15)
    assert norms[3] / (0.01 + norms[3]) > 1.0 - MARGIN


def test_zero_stays_zero() -> None:
    tiny = np.array([0.0, 5e-324, 2.0**-901])
    assert clip_factors(tiny, np.full(3, 2.0**1023), 1.0).tolist() == [0.0, 0.0, 0.0]
    assert normalize_factors(tiny, np.ones(3), 0.0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("exponent", [-1000, -300, 0, 300, 1020])
def test_norms_do_not_overflow(exponent: int) -> None:
    rows = np.array([[3.0, -4.0], [0.0, 1.0]]) * 2.0**exponent
    assert row_norms(np, rows).tolist() == pytest.approx([5.0 * 2.0**exponent, 2.0**exponent], rel=1e-15)


def test_thresholds_that_floating_point_cannot_keep_are_refused() -> None:
    with pytest.raises(InvalidValue, match="Rescale the features"):
        clip_factors(np.ones(1), np.ones(1), 1e-101)
    with pytest.raises(InvalidValue, match="at least"):
        clip_factors(np.ones(1), np.ones(1), math.nan)
