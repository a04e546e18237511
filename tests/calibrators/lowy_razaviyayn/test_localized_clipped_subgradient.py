"""What the localised calibrators answer and refuse; their one event is what all blocks cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue
from accounting.events import Event, Gaussian, Poisson, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import L1Ball, L1Penalty, L2Ball, L2Penalty
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown

NAME = "localized_clipped_subgradient"
GIVEN = {
    "diameter": 2.0,
    "moment_order": 2.0,
    "moment_bound_2k": 1.5,
    "moment_bound_2": 1.2,
    "moment_bound_1": 1.0,
    "localization_power": 1.0,
}


def found(records: int = 1024, **changes: Any) -> Calibration:
    given: dict[str, Any] = {"target": ZcdpTarget(1.0), "dimension": 5, "assumptions": GIVEN} | changes
    return calibrate(NAME, Spec(dataset_size=records, **given))


def phase_of(calibration: Calibration) -> LocalizedPhase:
    [phase] = calibration.plan.phases
    assert isinstance(phase, LocalizedPhase)
    return phase


def value(calibration: Calibration, name: str) -> Any:
    return next(item.value for item in (*calibration.utility, *calibration.hyperparameters) if item.name == name)


def test_the_worked_plan() -> None:
    answer = found()
    assert answer.value == pytest.approx(math.sqrt(2.0), rel=1e-6)
    assert value(answer, "excess_risk_bound") == pytest.approx(13.24415402, rel=1e-6)
    assert value(answer, "trivial_excess_risk") == 2.0
    assert value(answer, "excess_risk_rate") == pytest.approx(0.2850269525, rel=1e-6)
    assert value(answer, "gradient_evaluations") == 4205409.0
    assert value(answer, "max_grad_norm_printed")[:3] == pytest.approx(
        [16.63546221, 11.76304814, 8.317731106], rel=1e-6
    )
    assert [item.vacuous for item in answer.utility if item.name == "excess_risk_bound"] == [True]
    bounded = found(assumptions=GIVEN | {"lipschitz": 3.0, "localization_power": 1.2})
    assert value(bounded, "step_size_printed") == pytest.approx(0.005105489643, rel=1e-6)
    assert max(phase_of(bounded).max_grad_norm) == 3.0, "no gradient is longer"


@pytest.mark.parametrize(("relation", "factor"), [("replace_one", 2.0), ("replace_special", 1.0)])
def test_the_one_event_is_the_gaussian_mechanism_that_every_block_is(relation: str, factor: float) -> None:
    """mu^2 of a block is T (s C/n)^2 / sigma^2, with s = 2 where a record is replaced."""
    answer = found(target=GaussianDpTarget(0.8), neighboring_relation=NeighboringRelation(relation))
    phase = phase_of(answer)
    assert isinstance(answer.value, float)
    assert answer.plan.events == (Event(Gaussian(answer.value)),)
    each = zip(phase.records, phase.inner_iterations, phase.max_grad_norm, phase.noise_stddev_on_mean, strict=True)
    for size, steps, bound, stddev in each:
        assert math.sqrt(steps) * factor * bound / (size * stddev) == pytest.approx(0.8, rel=1e-5)
        assert math.sqrt(steps) * factor * bound / (size * stddev) <= 0.8 * (1.0 + 1e-15), "but for rounding"
    assert answer.achieved.value.upper <= 0.8


@pytest.mark.parametrize("records", [2, 3, 1000, 10**6, 10**9])
def test_blocks_halve_and_fit(records: int) -> None:
    phase = phase_of(found(records))
    assert sum(phase.records) < records
    assert phase.records == tuple(1 << index for index in reversed(range(int(math.log2(records)))))
    if records >= 8:
        fewer = phase_of(found(records, iterations=2))
        assert fewer.records == (records // 4 * 2, records // 4)


def test_without_the_constants_the_noise_is_solved_all_the_same() -> None:
    answer = found(assumptions={}, gradient_bound=Clip(0.5))
    assert set(answer.missing_assumptions) == {"diameter", "moment_order", "moment_bound_2k"}
    assert not answer.plan.is_executable
    assert phase_of(answer).noise_stddev_on_mean[0] == pytest.approx(math.sqrt(2.0 * 6394) * 0.5 / 512, rel=1e-6)
    runs = found(assumptions={}, gradient_bound=Clip(0.5), step_size=0.1, domain=L2Ball(1.0))
    assert runs.plan.is_executable
    assert (phase_of(runs).radius, runs.plan.domain) == ((), L2Ball(1.0))


def test_the_callers_own_threshold_step_and_penalty_are_in_the_bound() -> None:
    plain = found()
    own = found(step_size=0.001, gradient_bound=Clip(4.0), penalty=L2Penalty(0.1))
    assert phase_of(own).step_size[0] == 0.00025
    assert set(phase_of(own).max_grad_norm) == {4.0}
    assert value(own, "excess_risk_bound") > value(plain, "excess_risk_bound")
    assert value(own, "excess_risk_rate") is None
    assert value(own, "trivial_excess_risk") == pytest.approx(2.2)


def test_the_printed_noise_is_what_zcdp_needs_and_loose_in_epsilon_and_delta() -> None:
    verdicts = [found(target=target).as_published for target in (ZcdpTarget(0.5), ApproximateDpTarget(1.0, 1e-6))]
    assert [published.verdict for published in verdicts if published] == [Verdict.SOUND, Verdict.LOOSE]
    assert verdicts[0] is not None
    assert verdicts[0].noise_multiplier == 2.0


@pytest.mark.parametrize(
    ("records", "changes", "pointer"),
    [
        (1, {}, ("dataset_size",)),
        (1024, {"iterations": 11}, ("iterations",)),
        (1024, {"batch_size": 10}, ("batch_size",)),
        (1024, {"unknown": Unknown.ITERATIONS, "noise_multiplier": 1.0}, ("solve_for",)),
        (1024, {"domain": L1Ball(1.0)}, ("domain", "kind")),
        (1024, {"domain": L2Ball(2.0)}, ("assumptions", "diameter")),
        (1024, {"penalty": L1Penalty(1.0)}, ("penalty", "kind")),
        (1024, {"assumptions": {}}, ("gradient_bound",)),
        (1024, {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, ("neighboring_relation",)),
        (10**9, {"assumptions": GIVEN | {"localization_power": 3.0}}, ("assumptions", "localization_power")),
    ],
)
def test_what_does_not_fit_is_refused(records: int, changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        found(records, **changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    "change",
    [
        {"event": Event(ZcDp(1.0))},
        {"event": Event(Gaussian(1.0), Poisson(0.5))},
        {"event": Event(Gaussian(1.0), count=2)},
        {"noise_stddev_on_mean": (1.0, 0.99)},
        {"event": Event(Gaussian(1.01))},
        {"records": (4,)},
        {"step_size": (1.0,)},
        {"regularizer": ()},
        {"radius": (0.0, 1.0)},
        {"inner_iterations": (0, 1)},
    ],
)
def test_a_phase_whose_noise_is_below_its_price_or_whose_blocks_do_not_fit_is_refused(change: dict[str, Any]) -> None:
    phase = LocalizedPhase(
        Event(Gaussian(1.0)), (4, 2), (16, 4), (1.0, 1.0), (1.0, 1.0), (1.0, 0.5), (1.0, 2.0), (1.0, 1.0)
    )
    assert (phase.steps, phase.gradient_evaluations, phase.is_executable) == (20, 72, True)
    with pytest.raises(InvalidValue):
        replace(phase, **change)
