"""Prices of approximate Gaussian DP: two thousand random lists cost no less than they show, and together no more."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.accounting.filters.test_gaussian_cover import TOLERANCE, check_concatenation
from tests.soak.report import write_report

PAIRS = 1000
#: Seeds of `make test` come before it.
FIRST_SEED = 1000


@pytest.mark.soak
def test_random_lists_and_their_concatenations() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = list(pool.map(check_concatenation, range(FIRST_SEED, FIRST_SEED + PAIRS)))
    shares, excesses = (sorted(figures) for figures in zip(*found, strict=True))
    wide = sum(excess > TOLERANCE for excess in excesses)
    write_report(
        "prices",
        "make soak",
        {
            "pairs_of_lists": PAIRS,
            "price_of_both_over_the_sum": {"smallest": shares[0], "median": shares[PAIRS // 2], "largest": shares[-1]},
            "pairs_with_a_price_above_its_lower_end_by_more_than_the_tolerance": wide,
            "largest_excess_over_its_lower_end": excesses[-1],
        },
    )
    assert wide <= PAIRS // 100
