"""The bounds on one record's contribution hold for every norm, at the edges of floating point too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from trainer.clipping import MARGINS, clip_factors, margin, normalize_factors

NORMS = st.one_of(st.floats(-1020, 1020).map(lambda e: 2.0**e), st.floats(1e-3, 1e3))
POSITIVE = st.floats(-99, 12).map(lambda e: 10.0**e)
DTYPES = st.sampled_from(sorted(MARGINS))
SLACK = 1e-15


@settings(max_examples=400, deadline=None)
@given(NORMS, POSITIVE, DTYPES)
def test_clipped_within_the_bound(norm: float, bound: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        factor = float(clip_factors(np.array([norm]), bound, margin(dtype))[0])
    assert 0.0 <= factor <= 1.0
    assert Fraction(factor) * Fraction(norm) <= Fraction(bound) * Fraction(1.0 - margin(dtype) + SLACK)


@settings(max_examples=400, deadline=None)
@given(NORMS, st.one_of(st.just(0.0), POSITIVE), DTYPES)
def test_normalized_below_one(norm: float, regularizer: float, dtype: str) -> None:
    factor = float(normalize_factors(np.array([norm]), regularizer, margin(dtype))[0])
    assert 0.0 < factor < np.inf
    assert Fraction(factor) * Fraction(norm) <= Fraction(1.0 - margin(dtype) + SLACK)


@pytest.mark.parametrize("dtype", sorted(MARGINS))
def test_short_gradients_are_kept(dtype: str) -> None:
    longest = 2.0 * (1.0 - margin(dtype))
    factors = clip_factors(np.array([1e-200, 0.5, longest, 2.0]), 2.0, margin(dtype))
    assert factors[:3].tolist() == [1.0, 1.0, 1.0]
    assert factors[3] == pytest.approx(1.0 - margin(dtype), rel=1e-15)


def test_exact_away_from_one() -> None:
    norms = np.array([0.001, 1.0, 50.0, 1e9])
    factors = normalize_factors(norms, 0.01, 1e-5)
    np.testing.assert_allclose(factors[:3], 1.0 / (0.01 + norms[:3]), rtol=1e-15)
    assert factors[3] * norms[3] == pytest.approx(1.0 - 1e-5, rel=1e-15)
    assert norms[3] / (0.01 + norms[3]) > 1.0 - 1e-5


def test_margins_are_of_the_dtypes_there_are() -> None:
    with pytest.raises(InvalidValue, match="float64 or float32"):
        margin("float16")
