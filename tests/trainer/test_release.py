"""Which points a run releases: each rule against the path that it saw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calibrators.release import LAST_ITERATE, AverageIterate, RandomIterate, Release, WeightedAverage
from trainer.release import Rule, rule_for
from trainer.streams import random_streams

PATH = [np.array([float(t), 10.0 * t * t + 3.0]) for t in range(6)]  # 5 steps, from elsewhere than the origin
WEIGHTS = (0.1, 0.0, 0.3, 0.2, 0.4)


def rule_of(release: Release, seed: int = 0) -> Rule:
    return rule_for(release, 5, PATH[0], random_streams(seed).release)


def shown(rule: Rule, steps: range = range(5)) -> np.ndarray:
    for step in steps:
        rule.see(step, PATH[step].copy(), PATH[step + 1].copy())
    released: np.ndarray = rule.released()
    return released


def test_the_last_point_is_that_of_the_last_step() -> None:
    assert shown(rule_of(LAST_ITERATE)).tolist() == PATH[5].tolist()


def test_the_average_is_of_the_points_that_steps_start_from() -> None:
    np.testing.assert_allclose(shown(rule_of(AverageIterate())), np.mean(PATH[:5], axis=0), rtol=1e-14)


def test_the_weighted_average_is_of_the_points_that_steps_lead_to() -> None:
    expected = sum(w * x for w, x in zip(WEIGHTS, PATH[1:], strict=True))
    np.testing.assert_allclose(shown(rule_of(WeightedAverage(WEIGHTS))), expected, rtol=1e-14)


def test_the_random_point_is_one_that_a_step_starts_from_each_alike_likely() -> None:
    drawn = [int(shown(rule_of(RandomIterate(), seed))[0]) for seed in range(3000)]
    assert set(drawn) == {0, 1, 2, 3, 4}
    assert stats.chisquare(np.bincount(drawn)).pvalue > 1e-3


@pytest.mark.parametrize("release", [LAST_ITERATE, AverageIterate(), RandomIterate(), WeightedAverage(WEIGHTS)])
@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_restored_rules_go_on(release: Release, steps: int) -> None:
    for seed in range(8):
        one, other = rule_of(release, seed), rule_of(release, seed + 100)
        shown(one, range(steps))
        other.restore(one.state())
        np.testing.assert_array_equal(shown(other, range(steps, 5)), shown(one, range(steps, 5)))


def test_points_that_a_caller_changes_later_are_released_as_they_were_seen() -> None:
    """Rules keep what they are shown; a step makes a new point and leaves the old one alone."""
    start = np.array([1.0, 2.0])
    rule = rule_for(AverageIterate(), 2, start, random_streams(0).release)
    rule.see(0, start, start + 1.0)
    assert start.tolist() == [1.0, 2.0]
