"""Exact selections: their law, rare outcomes, ties, refinement against mpmath, and going on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from scipy import stats

from trainer.exact.selection import Selections, _bounds, _enclosure
from trainer.streams import random_streams


class _Words:
    """A stream of given words; its second part has words of its own."""

    def __init__(self, words: list[int], extensions: list[int]) -> None:
        self._words, self._extensions = words, extensions

    def jumped(self) -> _Words:
        return _Words(self._extensions, [])

    def words(self, size: int) -> np.ndarray:
        return np.array([self.word() for _ in range(size)], np.uint64)

    def word(self) -> int:
        return self._words.pop(0)


def _given(words: list[int], extensions: list[int]) -> Selections:
    return Selections(cast(Any, _Words(words, extensions)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_law_is_the_exponential_mechanism(scale: float) -> None:
    scores = np.array([0.0, 0.4, 0.4, 1.1])
    selections = Selections(random_streams(5).noise)
    counts = np.bincount([selections.least(scores, scale) for _ in range(10_000)], minlength=4)
    weights = np.exp(-scores / scale)
    assert stats.chisquare(counts, 10_000 * weights / weights.sum()).pvalue > 1e-3


def test_a_gap_of_forty_scales_is_overcome_with_the_right_probability() -> None:
    """With E_0 = ln 2 the score 40 wins iff E_1 < ln 2 e^-40, so iff V_1 < 1 - exp(-ln 2 e^-40), below 2^-58."""
    edge = -mpmath.expm1(-mpmath.log(2) * mpmath.exp(-40)) * mpmath.mpf(2) ** 64
    word = int(edge)
    chosen = [_given([2**63, w], [2**63] * 2).least(np.array([0.0, 40.0]), 1.0) for w in (0, word - 1, word + 1)]
    assert chosen == [1, 1, 0]


def test_ties_are_decided_by_more_bits() -> None:
    scores = np.array([1.0, 1.0])
    assert _given([2**63, 2**63], [9, 7]).least(scores, 2.0) == 1
    assert _given([2**63, 2**63], [5, 5, 3, 9]).least(scores, 2.0) == 0


@pytest.mark.parametrize("offset", [-3, -1, 1, 3])
def test_refinement_equals_mpmath(offset: int) -> None:
    """The second V is within a few 2^-128 of where both values are equal."""
    with mpmath.workdps(80):
        first = mpmath.mpf(2**127 + 12345) / 2**128
        edge = 1 - mpmath.exp(mpmath.log(1 - first) * mpmath.exp(mpmath.mpf(-0.25) / mpmath.mpf(0.75)))
        second = int(edge * mpmath.mpf(2) ** 128) + offset
        wins = mpmath.mpf(second) / 2**128 < edge
    words, extensions = [2**63, second >> 64], [12345, second % 2**64, 0, 0]
    assert _given(words, extensions).least(np.array([0.0, 0.25]), 0.75) == int(wins)


@pytest.mark.parametrize(("score", "scale"), [(0.0, 1.0), (3.7, 0.3), (-1e9, 2.0), (1e-3, 1e6)])
def test_bounds_in_floating_point_hold_for_all_further_bits(score: float, scale: float) -> None:
    """At the edges, too, where a word says the least; what it says beyond them is left to decimal arithmetic."""
    edges = [1, 2**11, 2**20, 2**39, 2**40, 2**40 + 1, 2**41, 2**53 + 1, 2**63]
    words = [*edges, *(2**64 - 1 - word for word in edges), *range(2**50, 2**64, 2**59)]
    bounds = _bounds(np.full(len(words), score), scale, np.array(words, dtype=np.uint64))
    for word, lower, upper in zip(words, *(bound.tolist() for bound in bounds), strict=True):
        least, most = _enclosure(score, scale, word, 64)
        assert Decimal(lower) <= least
        assert most <= Decimal(upper)


def test_restored_selections_go_on() -> None:
    source, other = Selections(random_streams(3).noise), Selections(random_streams(4).noise)
    scores = np.zeros(5)
    source.least(scores, 1.0)
    other.restore(source.state())
    assert [source.least(scores, 1.0) for _ in range(30)] == [other.least(scores, 1.0) for _ in range(30)]
