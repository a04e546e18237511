"""Effort: what reaches it is answered with bounds that hold, the same ones every time."""

from __future__ import annotations

import math

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.intersection import QUICK_EVALUATORS
from accounting.events import Event, Gaussian, Poisson, WithoutReplacement
from accounting.fourier.effort import Effort, OutOfEffort, left, limited, question, renew, share_of_effort, spend
from accounting.relations import NeighboringRelation

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
FEW = [Event(Gaussian(0.5), Poisson(1e-6), 1000)]
LEAST = 2_000_000


def test_operations_are_counted_in_each_direction_against_the_limit_of_the_block() -> None:
    spend(10**12)  # Outside a question nothing is counted.
    with limited(100), question() as effort:
        assert effort == Effort(100)
        spend(60)
        renew()
        spend(100)
        assert not effort.is_reached
        with pytest.raises(OutOfEffort, match="more than the limit of 100 operations"):
            spend(1)
        assert effort.is_reached
    with question() as effort:
        assert effort.limit > 100


def test_what_is_refused_does_not_count_and_a_block_takes_its_share() -> None:
    with limited(100), question() as effort:
        with pytest.raises(OutOfEffort):
            spend(101)
        assert effort.spent == 0
        spend(20)
        with share_of_effort(0.5, 20.0):
            assert left() == 30.0
            spend(30)
            with pytest.raises(OutOfEffort):
                spend(1)
        assert left() == 50.0
        with share_of_effort(0.5, 60.0), pytest.raises(OutOfEffort):
            spend(1)
        spend(50)
    with share_of_effort(0.5, 0.0):
        spend(10**12)
    assert left() == math.inf


@pytest.mark.thorough
@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
@pytest.mark.one_in(1000)
def test_what_reaches_its_effort_holds_and_is_no_worse_than_moments(relation: NeighboringRelation) -> None:
    tight = epsilon_for_delta(FEW, relation, 1e-7)
    with limited(LEAST):
        wide, again = (epsilon_for_delta(FEW, relation, 1e-7) for _ in range(2))
        delta = delta_for_epsilon(FEW, relation, tight.value.upper)
    assert wide == again
    assert wide.value.lower <= tight.value.lower <= tight.value.upper <= wide.value.upper
    assert wide.value.upper <= epsilon_for_delta(FEW, relation, 1e-7, evaluators=QUICK_EVALUATORS).value.upper
    assert delta.value.lower <= 1e-7 <= delta.value.upper * (1.0 + 1e-6)
    assert [warning for warning in wide.warnings if f"its limit of {LEAST} operations" in warning]
    assert not tight.warnings


@pytest.mark.thorough
def test_the_warning_survives_where_a_pair_encloses_the_truth() -> None:
    """Batches of a fixed size under replace_one are bounded by one pair from above, by another from below."""
    events = [Event(Gaussian(0.6), WithoutReplacement(1, 10**6), 500)]
    with limited(LEAST):
        warnings = epsilon_for_delta(events, REPLACE, 1e-8).warnings
    assert any("effort" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("noise", "q", "steps", "delta"), [(0.527, 1.16e-8, 98284, 1.58e-5), (1.236, 1.489e-8, 1420, 5.38e-9)]
)
@pytest.mark.one_in(2)
def test_corners_of_small_q_are_answered(noise: float, q: float, steps: int, delta: float) -> None:
    """They took more than 20 s."""
    with limited(20_000_000):
        answer = epsilon_for_delta([Event(Gaussian(noise), Poisson(q), steps)], REPLACE, delta)
    assert 0.0 <= answer.value.lower <= answer.value.upper < 1e-2
