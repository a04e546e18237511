"""Zeros in place of some numbers: which ones is a secret, so neither the result's other bits nor the time may tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

from trainer.arrays import TINY, cleared, flushed

DTYPES = ["float32", "float64"]
SIZE = 1 << 17


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_cleared_is_zero_and_the_rest_is_as_it_was(dtype: str, xp: Any) -> None:
    given = [[np.nan, -np.inf, -0.0], [1e-30, -2.0, np.inf], [np.nan, 5.0, -1e-38]]
    found = cleared(xp, xp.asarray(given, dtype=getattr(xp, dtype)), xp.asarray([[True], [False], [False]]))
    expected = np.array([[0.0] * 3, *given[1:]], dtype=dtype)
    assert np.asarray(found).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_what_is_tiny_is_flushed(dtype: str) -> None:
    tiny = np.array(TINY[dtype], dtype=dtype)
    below = np.nextafter(tiny, 0, dtype=dtype)
    given = np.array([tiny, -tiny, below, -below, 0.0, np.nan, -np.inf, 1.0], dtype=dtype)
    expected = np.array([tiny, -tiny, 0.0, 0.0, 0.0, np.nan, -np.inf, 1.0], dtype=dtype)
    kept = given.copy()
    np.testing.assert_array_equal(flushed(np, given, TINY[dtype]), expected)
    np.testing.assert_array_equal(given, kept)


def seconds(call: Callable[[], object]) -> float:
    """The least processor time of many calls."""
    found = []
    for _ in range(60):
        before = time.thread_time_ns()
        call()
        found.append(time.thread_time_ns() - before)
    return 1e-9 * min(found)


def over_predictable(function: Callable[[np.ndarray], object], dtype: str) -> float:
    """The time for numbers of which every other one, in no order, is tiny, over that where none is."""
    rng = np.random.default_rng(3)
    plain = (1.0 + rng.random(SIZE)).astype(dtype)
    mixed = np.where(rng.random(SIZE) < 0.5, plain, np.array(1e-3 * TINY[dtype], dtype=dtype))
    return seconds(lambda: function(mixed)) / seconds(lambda: function(plain))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_time_does_not_tell_which_numbers_are_tiny(dtype: str) -> None:
    assert over_predictable(lambda array: flushed(np, array, TINY[dtype]), dtype) < 1.5


def test_a_choice_by_branches_would_be_seen() -> None:
    """`where` in the same place: what this measurement is good for."""
    tiny = TINY["float64"]
    assert over_predictable(lambda array: np.where(np.abs(array) < tiny, 0.0, array), "float64") > 2.0
