"""A plan is carried out in the requested numeric type, or in float32 unless there is a reason against it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, Gaussian, Poisson, PureDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import Clip, Normalize, Phase, Plan
from tests.conformance.trainers.examples import plan_of
from trainer.grid import Grid, grid_for
from trainer.models import logistic_regression
from trainer.numeric_types import SMALLEST_CHANGE, SMALLEST_NOISE, carried_out
from trainer.run import run

UNIT = Clip(1.0)


def steps(bound: Clip | Normalize = UNIT, noise: float = 1.0, algorithm: str = "dp_sgd") -> Plan:
    phase = Phase(Event(Gaussian(noise), Poisson(0.5), 3), bound, 4, 0.5)
    return Plan(algorithm, 8, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))


def chosen(plan: Plan) -> tuple[str, str]:
    narrow, reason = carried_out(plan, None)
    assert replace(narrow, dtype="float64") == plan, "nothing else of the plan changes"
    assert narrow.events == plan.events
    return narrow.dtype, reason or ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_named_type_is_taken(dtype: str) -> None:
    for plan in (steps(), steps(Clip(1e-13)), plan_of("clipped_mean"), plan_of("dp_sgd_output")):
        assert carried_out(plan, dtype) == (replace(plan, dtype=dtype), None)


def test_a_type_that_is_none_and_an_algorithm_that_is_none_are_refused() -> None:
    with pytest.raises(InvalidValue, match="float64 or float32"):
        carried_out(steps(), "float16")
    with pytest.raises(Unsupported, match="no trainer"):
        carried_out(steps(algorithm="none"), None)


@pytest.mark.parametrize(
    ("plan", "because"),
    [
        (plan_of("clipped_mean"), "reads every record once"),
        (plan_of("coordinatewise_mean"), "reads every record once"),
        (plan_of("dp_sgd_output"), "one record in float64"),
        (steps(Clip(0.99e-12)), "at least 1e-12, but this plan has 9.9e-13"),
        (steps(noise=0.9 * SMALLEST_NOISE), "less than the margin 0.00781"),
        (plan_of("localized_clipped_subgradient"), ""),
        (steps(Clip(1e-12)), ""),
        (steps(Normalize(0.0)), ""),
        (steps(noise=SMALLEST_NOISE), ""),
    ],
)
def test_float64_has_a_reason(plan: Plan, because: str) -> None:
    dtype, reason = chosen(plan)
    assert dtype == ("float64" if because else "float32")
    assert because in reason
    assert bool(because) == bool(reason)


@pytest.mark.parametrize("name", ["dp_svrg", "proximal_weakly_convex", "localized_clipped_subgradient"])
def test_little_noise_of_other_sums_is_a_reason_too(name: str) -> None:
    """The noise of these is on means; it is made smaller with the bound that it is charged against."""
    plan = plan_of(name)
    phase: Any = plan.phases[0]
    assert chosen(plan) == ("float32", "")
    fields: Any = {"max_grad_norm": phase.max_grad_norm, "noise_stddev_on_mean": phase.noise_stddev_on_mean}
    small: Any = {
        key: tuple(1e-13 * each for each in value) if isinstance(value, tuple) else 1e-13 * value
        for key, value in fields.items()
    }
    dtype, reason = chosen(replace(plan, phases=(replace(phase, **small),)))
    assert (dtype, "at least 1e-12" in reason) == ("float64", True)


def test_changes_of_gradients_that_float32_would_round_off_are_a_reason() -> None:
    def plan(smoothness: float) -> Plan:
        [phase] = plan_of("poly_sfw").phases
        assert isinstance(phase, RecursiveSelections)
        # A charge that is as large as any: what is chosen does not depend on it.
        return replace(plan_of("poly_sfw"), phases=(replace(phase, smoothness=smoothness),))

    [phase] = plan_of("poly_sfw").phases
    assert isinstance(phase, RecursiveSelections)
    assert isinstance(plan_of("poly_sfw").domain, L1Ball)
    assert phase.event.mechanism != PureDp(0.0)
    moved = 2.0 * 0.5 * phase.step_size  # of points, in the ball of radius 1/2
    least = SMALLEST_CHANGE * phase.lipschitz / moved
    assert chosen(plan(1.001 * least)) == ("float32", "")
    dtype, reason = chosen(plan(0.999 * least))
    assert dtype == "float64"
    assert "round off most of the digits" in reason
    assert chosen(plan(0.0)) == ("float32", ""), "gradients that do not change have no changes to round"


@pytest.mark.parametrize("dimension", [1, 7850, 2**26])
@pytest.mark.parametrize("noise", [1e-3, 1.0, 1e4, 1e9])
def test_neither_parameters_nor_noise_are_a_reason(dimension: int, noise: float) -> None:
    """A grid is refused in both types or in none, and a widened one is the same: so the model need not be known."""
    found: list[Grid | None] = []
    for dtype in ("float64", "float32"):
        try:
            found.append(grid_for(noise, dimension, dtype, 1000))
        except InvalidValue:
            found.append(None)
    wide, narrow = found
    assert (wide is None) == (narrow is None)
    if wide and narrow:
        assert narrow.step >= wide.step
        assert narrow.scale <= wide.scale


def test_every_type_that_is_chosen_runs() -> None:
    features, labels = [[0.1, 0.2, 0.3]] * 8, [0, 1] * 4
    for plan in (steps(), steps(Clip(1e-13)), steps(noise=1e-3)):
        assert run(carried_out(plan, None)[0], logistic_regression(3), features, labels).steps == 3
