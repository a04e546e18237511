"""Rules for guessing and what they count."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.audit.methods import GUESSES, METHODS, best_rule
from trainer.audit.trials import Counts, Ranks, Thresholds, Trials, ranks, thresholds


def some_trials(count: int = 400, seed: int = 3) -> Trials:
    rng = np.random.default_rng(seed)
    members = rng.random(count) < 0.5
    score = rng.normal(size=count) + 1.5 * members
    return Trials({"fine": score, "coarse": np.rint(score)}, members)


def test_counts_are_of_what_was_said_and_true() -> None:
    trials = Trials({"s": np.array([3.0, 2.0, 1.0, 0.0, -1.0])}, np.array([True, False, True, True, False]))
    expected = Counts(trials=5, members=3, hits=1, alarms=1, rejections=1, misses=1, kinds=2)
    assert Thresholds("s", above=1.0, below=0.5).count(trials) == expected
    assert Ranks("s", top=2, bottom=2).count(trials) == expected
    assert (expected.guesses, expected.correct) == (4, 2)


@pytest.mark.parametrize("both", [True, False])
def test_rules_come_with_the_counts_that_they_have(both: bool) -> None:
    trials = some_trials()
    found = list(thresholds(trials, both=both))
    assert len(found) > 40
    for rule, counts in found:
        assert rule.count(trials) == counts
        assert rule.below <= rule.above
        assert both or counts.kinds == 1


def test_ranks_make_as_many_guesses_as_they_say_even_among_ties() -> None:
    trials = some_trials()
    other = some_trials(seed=4)
    for rule, counts in ranks(trials):
        assert counts.guesses == rule.top + rule.bottom == rule.count(other).guesses


def test_the_best_rule_beats_every_other_at_its_goal() -> None:
    trials = some_trials()
    goals = [(1e-3, 0.5), (0.2, 0.1)]
    rule, delta = best_rule(GUESSES, trials, goals, 0.95)
    excess = GUESSES.epsilon(rule.count(trials), delta, 0.95) - dict(goals)[delta]
    for other, _ in thresholds(trials, both=True):
        for at, claimed in goals:
            bound = GUESSES.epsilon(other.count(trials), at, 0.95)
            assert bound == 0.0 or bound - claimed <= excess


@pytest.mark.parametrize("name", METHODS)
def test_merit_grows_with_the_bound(name: str) -> None:
    method = METHODS[name]
    found = [
        (method.merit(c, 1e-5, 0.95), method.epsilon(c, 1e-5, 0.95)) for _, c in list(method.rules(some_trials()))[::7]
    ]
    bounds = [epsilon for _, epsilon in sorted(found)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > 0.3


def test_two_trials_have_a_rule() -> None:
    two = Trials({"s": np.array([0.5, 0.5])}, np.array([True, True]))
    for method in METHODS.values():
        rule, _ = best_rule(method, two, [(1e-5, 0.0)], 0.95)
        assert method.epsilon(rule.count(two), 1e-5, 0.95) == 0.0
