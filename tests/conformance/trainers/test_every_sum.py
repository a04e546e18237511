"""Every sum that leaves the records, where an algorithm is no gradient steps: in both numeric types, as integers.

Gradients that are clipped in other norms, changes of gradients, coordinates that are clamped: each sum is watched where
it is made, and others are given in its place, so that both neighbours take the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Plan
from tests.conformance.trainers.examples import every_dtype, is_gradient_steps, plans
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.subjects import FEATURES
from tests.conformance.trainers.test_sensitivity import Data, neighbours, trainer_of
from trainer.algorithms import EXECUTIONS
from trainer.clipped_sums import ClippedSums
from trainer.grid import Grid
from trainer.kept_contributions import KeptContributions
from trainer.median_of_means import ClampedGroups
from trainer.numeric_types import carried_out
from trainer.sums import BoundedSum

#: A sum in whole steps, its grid, and the order of the norm in which one record moves it by 1 / gamma at most.
Watched = tuple[np.ndarray, Grid, float]
#: Those make no sum on a grid: their own tests count messages, and follow the points of one record's steps.
WITHOUT_SUMS = ("dp_sgd_output", "shuffle_vector_mean", "shuffle_coordinatewise_mean")
SUMMED = [case for case in plans() if not is_gradient_steps(case.values[1]) and case.values[0] not in WITHOUT_SUMS]


@contextmanager
def watched_sums(seen: list[Watched]) -> Iterator[None]:
    """Keep every sum of contributions, and give one that depends on its number alone."""
    bounded, clipped, clamped = BoundedSum.at, ClippedSums.of, ClampedGroups.next_sum
    kept_over = KeptContributions.over

    def given(total: Any, grid: Grid, order: float) -> np.ndarray:
        seen.append((np.array(total), grid, order))
        return np.rint(np.random.default_rng(len(seen)).normal(size=FEATURES) / grid.step)

    def at(sums: BoundedSum, point: Any, slots: Any, bound: Any, grid: Grid) -> np.ndarray:
        return given(bounded(sums, point, slots, bound, grid), grid, 2.0)

    def over(kept: KeptContributions, slots: Any) -> np.ndarray:
        return given(kept_over(kept, slots), vars(kept)["_grid"], 2.0)

    def of(sums: ClippedSums, slots: Any, grid: Grid, unit: float, *terms: Any) -> np.ndarray:
        return given(clipped(sums, slots, grid, unit, *terms), grid, sums._dual_order)

    def next_sum(groups: ClampedGroups, point: Any, grid: Grid) -> np.ndarray:
        return given(clamped(groups, point, grid), grid, math.inf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedSum, "at", at)
        patch.setattr(KeptContributions, "over", over)
        patch.setattr(ClippedSums, "of", of)
        patch.setattr(ClampedGroups, "next_sum", next_sum)
        yield


def sums_of(plan: Plan, some: Data, seed: int) -> list[Watched]:
    """All sums of a run on these records."""
    seen: list[Watched] = []
    with watched_sums(seen):
        trainer = trainer_of(plan, RecordingStreams(seed), some)
        for _ in range(plan.iterations):
            trainer.step()
        trainer.close()
    return seen


def distance(one: np.ndarray, other: np.ndarray, order: float) -> Fraction | float:
    """How far two sums of whole steps are apart in the l_r norm; to the power r where r is a whole number."""
    assert np.all(one == np.rint(one))
    assert np.all(other == np.rint(other))
    moved = [abs(int(a) - int(b)) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    if math.isinf(order):
        return Fraction(max(moved))
    if order == int(order):
        return Fraction(sum(each ** int(order) for each in moved))
    return math.fsum(float(each) ** order for each in moved)


def most(grid: Grid, order: float, sensitivity: float) -> Fraction | float:
    """What was charged for, in the same terms."""
    steps = Fraction(sensitivity) / Fraction(grid.step)
    if math.isinf(order):
        return steps
    return steps ** int(order) if order == int(order) else float(steps) ** order


@every_dtype
@pytest.mark.parametrize(("name", "plan"), SUMMED)
@pytest.mark.one_in(24)
def test_one_record_moves_every_sum_by_at_most_its_bound(name: str, plan: Plan, dtype: str) -> None:
    plan, sensitivity = replace(plan, dtype=dtype), plan.neighboring_relation.sensitivity
    reached = 0.0
    for seed, (one, other) in enumerate(neighbours(plan.neighboring_relation, plan.dataset_size)):
        pairs = list(zip(sums_of(plan, one, seed), sums_of(plan, other, seed), strict=True))
        assert pairs, "some sum leaves the records"
        for (here, grid, order), (there, same_grid, _) in pairs:
            assert grid == same_grid
            moved, allowed = distance(here, there, order), most(grid, order, sensitivity)
            assert moved <= allowed, (order, one[0][-1], other[0][-1])
            power = 1.0 if math.isinf(order) else 1.0 / order
            reached = max(reached, float(moved / allowed) ** power)
    assert reached >= 0.9, "the bound is nearly reached, so that the test has power"


def test_every_algorithm_is_watched_in_the_type_that_runs_take_by_default() -> None:
    """By this test, by that of gradient steps, or by its own."""
    watched = {case.values[0] for case in SUMMED}
    steps = {case.values[0] for case in plans() if is_gradient_steps(case.values[1])}
    assert watched | steps | set(WITHOUT_SUMS) == set(EXECUTIONS)
    for name, plan in (case.values for case in plans()):
        narrow, reason = carried_out(plan, None)
        expected = "float64" if EXECUTIONS[name].float64_because else "float32"
        assert narrow.dtype == expected, (name, reason)
        assert (reason is None) == (expected == "float32")
