"""The reduction to strong convexity: its sizes and its certified chain, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from accounting.errors import AccountingError
from accounting.targets import ZcdpTarget
from calibrators.geometry import L2Penalty
from calibrators.lowy_razaviyayn.localization import (
    Blocks,
    Localization,
    LocalizedProblem,
    UniformMoments,
    block_sizes,
)
from calibrators.lowy_razaviyayn.localized_setting import balanced_thresholds
from calibrators.lowy_razaviyayn.planned_reduction import first_distance, next_distance, run_sizes
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown

NAME = "localized_clipped_strongly_convex"
GIVEN = {
    "strong_convexity": 1.0,
    "diameter": 2.0,
    "moment_order": 4.0,
    "moment_bound_2k": 1.5,
    "moment_bound_2": 1.2,
    "moment_bound_1": 1.0,
    "lipschitz": 3.0,
}
Z = math.sqrt(2.0)  # rho = 1


def found(records: int = 2**24, **changes: Any) -> Calibration:
    given: dict[str, Any] = {"target": ZcdpTarget(1.0), "dimension": 2, "assumptions": GIVEN} | changes
    return calibrate(NAME, Spec(dataset_size=records, **given))


def bound_of(calibration: Calibration) -> float:
    [value] = [item.value for item in calibration.utility if item.name == "excess_risk_bound"]
    assert isinstance(value, float)
    return value


def test_the_worked_sizes() -> None:
    assert run_sizes(1024) == (32, 64, 128, 256)
    assert run_sizes(100_000) == (2048, 4096, 8192, 16384, 32768)
    assert run_sizes(2**24) == tuple(2**power for power in range(18, 23))
    for records in (16, 17, 1000, 10**6, 10**9):
        assert sum(run_sizes(records)) < records


@pytest.mark.parametrize("records", range(1, 16))
def test_fewer_than_16_records_are_refused(records: int) -> None:
    with pytest.raises(AccountingError, match="dataset_size must be at least 16") as caught:
        found(records)
    assert (caught.value.code, caught.value.pointer) == ("too_few_records", ("dataset_size",))


def test_the_worked_chain() -> None:
    """With the thresholds before they are capped at L_f."""
    unbounded = LocalizedProblem(2.0, 2, UniformMoments(4.0, 1.5, 1.2, 1.0), strong_convexity=1.0)
    bounded = UniformMoments(4.0, 1.5, 1.2, 1.0, 3.0)
    start, starts, bounds = first_distance(unbounded), [], []
    for total in run_sizes(2**24):
        sizes, power = block_sizes(total, total.bit_length() - 1), bounded.power(total)
        blocks = Blocks(sizes, power, balanced_thresholds(unbounded, sizes, power, Z))
        run = Localization(unbounded, blocks, 3.0, 0.0, Z)
        starts.append(start)
        bounds.append(run.bound(start, run.best_step_size(start)))
        start = next_distance(unbounded, bounds[-1])
    assert starts == pytest.approx([1.0, 0.42617201, 0.2330610702, 0.1444726531, 0.0953980881], rel=1e-8)
    assert bounds == pytest.approx(
        [0.09081129107, 0.02715873122, 0.01043617375, 0.004550397607, 0.002115184193], rel=1e-9
    )
    answer = found()
    assert 0.98 * bounds[-1] < bound_of(answer) < bounds[-1], "longer thresholds than L_f are for nothing"
    assert [item.value for item in answer.utility if item.name == "trivial_excess_risk"] == [0.5]


def test_without_a_lipschitz_constant_the_power_keeps_the_rate() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "lipschitz"} | {"moment_order": 2.0}
    assert bound_of(found(2**28, assumptions=given)) == pytest.approx(0.00249, rel=2e-3)
    slower = found(2**28, assumptions=given | {"localization_power": 1.25})
    assert bound_of(slower) == pytest.approx(0.0559, rel=2e-3)


def test_all_runs_are_one_mechanism_on_disjoint_blocks() -> None:
    answer = found(100_000)
    [phase] = answer.plan.phases
    assert isinstance(phase, LocalizedPhase)
    assert sum(phase.records) == sum(total - 1 for total in run_sizes(100_000))
    each = zip(phase.records, phase.inner_iterations, phase.max_grad_norm, phase.noise_stddev_on_mean, strict=True)
    for size, steps, bound, stddev in each:
        assert steps * (2.0 * bound / size) ** 2 / (2.0 * stddev**2) == pytest.approx(1.0, rel=1e-5)
    assert any("not read" in warning for warning in answer.warnings)
    fewer = found(100_000, iterations=2).plan.phases[0]
    assert isinstance(fewer, LocalizedPhase)
    assert fewer.records == phase.records[: len(fewer.records)]


def test_the_penalty_is_part_of_strong_convexity_and_of_no_threshold() -> None:
    given = GIVEN | {"strong_convexity": 0.2}
    plain, ridge = found(assumptions=given), found(assumptions=given, penalty=L2Penalty(0.2))
    assert bound_of(ridge) > bound_of(plain)
    bounds = [getattr(answer.plan.phases[0], "max_grad_norm", ()) for answer in (plain, ridge)]
    assert bounds[0] == bounds[1] != ()


@pytest.mark.parametrize(
    ("records", "changes", "pointer"),
    [
        (2, {}, ("dataset_size",)),
        (15, {}, ("dataset_size",)),
        (1024, {"iterations": 5}, ("iterations",)),
        (1024, {"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 1.0}, ("solve_for",)),
        (1024, {"assumptions": GIVEN | {"strong_convexity": 1.1}}, ("assumptions", "strong_convexity")),
        (1024, {"penalty": L2Penalty(1.5)}, ("assumptions", "strong_convexity")),
        (1024, {"assumptions": {}}, ("gradient_bound",)),
    ],
)
def test_what_does_not_fit_is_refused(records: int, changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        found(records, **changes)
    assert refused.value.pointer == pointer


def test_without_the_constants_the_noise_is_solved_all_the_same() -> None:
    answer = found(16, assumptions={}, gradient_bound=Clip(0.5))
    assert "strong_convexity" in answer.missing_assumptions
    assert not answer.plan.is_executable
    assert answer.value == pytest.approx(Z, rel=1e-6)
