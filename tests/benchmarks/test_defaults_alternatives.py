"""Choices that the preset could make in place of its own: what is compared is comparable, and the figures say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.relations import NeighboringRelation
from benchmarks import report
from benchmarks.defaults import correlated, step_sizes
from benchmarks.defaults.preset import preset_plan, with_steps
from benchmarks.defaults.protocol import DELTA, HELD_BACK, TUNED_ON
from calibrators.plan import BoundedSteps, CorrelatedSteps


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_all_sides_of_a_case_have_the_same_budget_and_work(epsilon: float) -> None:
    split = TUNED_ON["digits"]()
    for case, sides in correlated._cases(split, epsilon).items():
        plans = {side: plan for side, _, plan in sides}
        for plan in plans.values():
            [phase] = plan.phases
            spent = epsilon_for_delta([phase.event], NeighboringRelation.ADD_OR_REMOVE_ONE, DELTA)
            assert 0.98 * epsilon < spent.value.upper <= epsilon
            assert (phase.steps, phase.batch_size) == (
                correlated.STEPS,
                {"large batches": 337, "a few epochs": 22}[case],
            )
        [own], [independent] = plans["1"].phases, plans["independent"].phases
        assert isinstance(own, CorrelatedSteps)
        assert isinstance(independent, CorrelatedSteps)
        assert len(independent.coefficients) == 1
        assert own.step_size == independent.step_size
        assert with_steps(plans["1"], 4.0) == plans["4"]
        assert ("preset" in plans) == (case == "a few epochs")


def test_a_gain_counts_beyond_two_standard_errors() -> None:
    even = [0.88, 0.90, 0.92, 0.90, 0.90]
    sides = {"preset": {"scores": even}, "0.25": {"scores": [each - 0.1 for each in even]}}
    sides |= {"1": {"scores": [each + 0.015 for each in even]}, "4": {"scores": [each + 0.1 for each in even]}}
    rows = [("digits", "1", case, sides) for case in correlated.SHARES]
    counted = {(row[0], row[1]): row[2:] for row in correlated._summary(rows)}
    for case in correlated.SHARES:
        assert counted[case, "times 0.25"] == ["0", "1", "1", "-0.100", "-0.100"]
        assert counted[case, "times 1"] == ["0", "0", "1", "+0.015", "+0.015"]
        assert counted[case, "times 4"] == ["1", "0", "1", "+0.100", "+0.100"]


def test_no_step_size_of_correlated_noise_is_as_good_as_the_preset_on_every_set() -> None:
    """The measured reason why the preset does not choose it."""
    figures = report.read("defaults_correlated")
    assert not figures["sets"].keys() & HELD_BACK.keys()
    counted = [row for row in correlated._summary(correlated._rows(figures)) if row[0] != "the edge"]
    assert len(counted) == 2 * len(correlated.FACTORS)
    assert all(int(worse) > 0 for _, _, _, worse, *_ in counted)


def test_full_batches_are_better_than_correlated_noise_in_a_few_epochs() -> None:
    """Up to a fifth of a point, whatever its step size."""
    for of_set in report.read("defaults_correlated")["sets"].values():
        for cases in of_set.values():
            if "a few epochs" in cases:
                few = cases["a few epochs"]
                best = max(np.mean(few[f"{factor:g}"]["scores"]) for factor in correlated.FACTORS)
                assert np.mean(cases["large batches"]["preset"]["scores"]) > best - 0.0025


def test_a_step_size_is_multiplied_and_nothing_else() -> None:
    plan, _ = preset_plan(TUNED_ON["breast_cancer"](), 3.0)
    twice = with_steps(plan, 2.0)
    [before], [after] = plan.phases, twice.phases
    assert isinstance(before, BoundedSteps)
    assert isinstance(before.step_size, float)
    assert isinstance(after, BoundedSteps)
    assert after.step_size == 2.0 * before.step_size
    assert with_steps(twice, 0.5) == plan


def rows_with_best(best: Any) -> list[step_sizes.Row]:
    return [
        (
            "a",
            "1",
            {
                "noise": noise,
                "scores": [[0.9 - 0.1 * abs(np.log2(each / best(noise)))] * 5 for each in step_sizes.FACTORS],
            },
        )
        for noise in (0.0, 0.3, 1.5)
    ]


def test_hindsight_finds_a_factor_that_knows_the_noise_where_one_helps() -> None:
    def mean(row: list[str]) -> float:
        return float(row[1])

    _, constant, noisy = step_sizes._hindsight(rows_with_best(lambda noise: 2.0 * (1.0 + 10.0 * noise) ** -0.5))
    assert mean(noisy) == pytest.approx(0.9, abs=0.02)
    assert mean(constant) < 0.85
    assert "2 (1 + 10 noise)^-0.5" in noisy[0]
    today, constant, noisy = step_sizes._hindsight(rows_with_best(lambda _: 1.0))
    assert mean(today) == mean(constant) == pytest.approx(0.9)
    assert mean(noisy) < 0.9


def test_the_noise_gains_less_than_the_goals_margin() -> None:
    """The measured reason why the step size does not depend on it."""
    figures = report.read("defaults_step_sizes")
    assert not figures["sets"].keys() & HELD_BACK.keys()
    rows = [(name, epsilon, each) for name, found in figures["sets"].items() for epsilon, each in found.items()]
    today, _, noisy = step_sizes._hindsight(rows)
    assert float(noisy[1]) - float(today[1]) < 0.005
