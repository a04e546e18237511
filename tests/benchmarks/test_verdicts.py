"""What a peer's number is called, and what is narrow."""

from __future__ import annotations

import math

import pytest

from accounting.intervals import Interval
from benchmarks.accounting import cases
from benchmarks.accounting.quality import is_narrow
from benchmarks.accounting.verdicts import contains, failure, verdict
from benchmarks.report import plain

INTERVAL = Interval(1.0, 1.05, 1.1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.999, "below"),
        (1.0 - 1e-12, "inside"),
        (1.05, "inside"),
        (1.1 + 1e-12, "inside"),
        (1.2, "above"),
        (math.inf, "infinite"),
        (math.nan, "nan"),
    ],
)
def test_verdicts(value: float, expected: str) -> None:
    assert verdict(value, INTERVAL) == expected


def test_a_reference_outside_is_noticed() -> None:
    assert contains(INTERVAL, 1.05)
    assert not contains(INTERVAL, 0.9999)
    assert not contains(INTERVAL, 1.1001)


@pytest.mark.parametrize(
    ("upper", "width", "narrow"),
    [
        (0.1, 1e-6, True),
        (0.1, 1.1e-6, False),
        (100.0, 0.9e-4, True),
        (100.0, 1.1e-4, False),
        (201.0, 0.2, True),
        (201.0, 0.21, False),
        (math.inf, math.inf, False),
        (math.inf, math.nan, False),
        (1.0, math.nan, False),
    ],
)
def test_what_is_narrow(upper: float, width: float, narrow: bool) -> None:
    assert is_narrow(upper, width) is narrow


def test_a_failure_is_one_short_line() -> None:
    assert failure(ValueError("first\nsecond")) == "ValueError: first"
    assert failure(MemoryError()) == "MemoryError"


def test_infinities_become_words() -> None:
    assert plain({"a": [math.inf, -math.inf, (math.nan, 1.5)]}) == {"a": ["inf", "-inf", ["nan", 1.5]]}


def test_draws_are_the_same_every_time_and_inside_their_ranges() -> None:
    assert list(cases.wide_draw(20)) == list(cases.wide_draw(20))
    assert list(cases.few_participations(20)) == list(cases.few_participations(20))
    assert list(cases.random_targets(20)) == list(cases.random_targets(20))
    for training in cases.wide_draw(200):
        assert 0.05 <= training.noise_multiplier <= 1e3
        assert 1e-8 <= training.sampling_probability <= 1.0
        assert 1 <= training.steps <= 10**8
        assert 1e-30 <= training.delta <= 0.5
    for training in cases.few_participations(200):
        assert 2 <= training.steps <= 100
        assert training.steps * training.sampling_probability <= 2.0 + 1e-9
        assert 0.0 < training.delta < 1.0
