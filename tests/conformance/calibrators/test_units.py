"""Units by rescaling: other units of loss and parameters move every number by the power that it declares."""

from __future__ import annotations

import math

import pytest

from calibrators.provenance import GRADIENT, PURE, STEP, Provenance, Units
from calibrators.spec import Calibration, Spec
from tests.conformance.rescaling import Rescaling
from tests.conformance.subjects import (
    EXAMPLES,
    algorithm_of,
    calibrated,
    every_bounded_case,
    every_case,
    noise_multiplier_of,
)

Number = float | tuple[float, ...] | None

#: Factors on the loss and on the parameters.
FACTORS = [(10.0, 1.0), (1.0, 10.0), (0.1, 1.0), (1.0, 0.1), (1000.0, 100.0), (0.1, 0.1)]
every_factor = pytest.mark.parametrize(("loss", "parameter"), FACTORS)


def rescaling(name: str, spec: Spec, loss: float, parameter: float) -> Rescaling:
    # The exponent is the constant of that name, or 0 where gradients are bounded and no more is said.
    exponent = spec.assumptions.get("holder_exponent", 0.0)
    return Rescaling(loss, parameter, exponent, step_size_units(calibrated(name, EXAMPLES[name].spec)))


def step_size_units(found: Calibration) -> Units:
    """As the algorithm declares them; where it recommends no step size, those of a step along a gradient."""
    return next((item.units for item in found.hyperparameters if item.name == "step_size"), STEP)


def assert_scaled(what: str, number: Number, base: Number, factor: float) -> None:
    if base is None or number is None:
        assert number is base, what
        return
    numbers = number if isinstance(number, tuple) else (number,)
    expected = base if isinstance(base, tuple) else (base,)
    assert len(numbers) == len(expected), what
    for one, other in zip(numbers, expected, strict=True):
        assert math.isclose(one, factor * other, rel_tol=1e-9), (what, one, factor * other)


def both(name: str, spec: Spec, loss: float, parameter: float) -> tuple[Rescaling, Calibration, Calibration]:
    units = rescaling(name, spec, loss, parameter)
    return units, calibrated(name, spec), calibrated(name, units.spec(algorithm_of(name), spec))


@pytest.mark.one_in(3)
@every_factor
@every_case
def test_noise_multipliers_and_events_have_no_units(name: str, spec: Spec, loss: float, parameter: float) -> None:
    _, base, found = both(name, spec, loss, parameter)
    assert noise_multiplier_of(found) == pytest.approx(noise_multiplier_of(base), rel=1e-9)
    assert [event.count for event in found.plan.events] == [event.count for event in base.plan.events]
    assert [event.sampling for event in found.plan.events] == [event.sampling for event in base.plan.events]
    assert found.achieved.value.upper == pytest.approx(base.achieved.value.upper, rel=1e-9)


@pytest.mark.one_in(3)
@every_factor
@every_case
def test_the_plan_is_the_same_plan_in_other_units(name: str, spec: Spec, loss: float, parameter: float) -> None:
    units, base, found = both(name, spec, loss, parameter)
    assert len(found.plan.phases) == len(base.plan.phases)
    for phase, before in zip(found.plan.phases, base.plan.phases, strict=True):
        assert phase.steps == before.steps
        expected = units.numbers(before)
        for what, (number, _) in units.numbers(phase).items():
            value, its_units = expected[what]
            assert_scaled(what, number, value, units.factor(its_units))
    for after, before_it, rescale in (
        (found.plan.domain, base.plan.domain, units.domain),
        (found.plan.penalty, base.plan.penalty, units.penalty),
    ):
        assert (after is None) == (before_it is None)
        if after is not None and before_it is not None:
            scaled = rescale(before_it).to_json()  # type: ignore[operator]
            for what, number in after.to_json().items():
                assert number == (scaled[what] if what == "kind" else pytest.approx(scaled[what], rel=1e-9))
    assert found.plan.release == base.plan.release


@pytest.mark.one_in(3)
@every_factor
@every_case
def test_every_number_moves_by_the_power_of_its_units(name: str, spec: Spec, loss: float, parameter: float) -> None:
    units, base, found = both(name, spec, loss, parameter)
    before = {item.name: item for item in numbers(base)}
    after = {item.name: item for item in numbers(found)}
    assert set(before) == set(after)
    for item_name, item in before.items():
        assert_scaled(item_name, after[item_name].value, item.value, units.factor(item.units))
        assert after[item_name].vacuous is item.vacuous, item_name


@pytest.mark.one_in(3)
@every_factor
@every_case
def test_the_papers_own_noise_moves_like_the_engines(name: str, spec: Spec, loss: float, parameter: float) -> None:
    units, base, found = both(name, spec, loss, parameter)
    assert (found.as_published is None) == (base.as_published is None)
    if found.as_published is None or base.as_published is None:
        return
    assert found.as_published.verdict is base.as_published.verdict
    assert_scaled("noise_multiplier", found.as_published.noise_multiplier, base.as_published.noise_multiplier, 1.0)
    numbers_of = units.numbers(base.plan.phases[0])
    clipped = numbers_of.get("noise_stddev_on_sum", numbers_of.get("noise_stddev", (None, GRADIENT)))[1]
    assert_scaled(
        "noise_stddev_on_mean",
        found.as_published.noise_stddev_on_mean,
        base.as_published.noise_stddev_on_mean,
        units.factor(clipped),
    )


@every_bounded_case
def test_some_number_has_units(name: str, spec: Spec) -> None:
    """Else everything above would hold of numbers that ignore their inputs."""
    found = calibrated(name, spec)
    assert any(item.units != PURE and item.value is not None for item in found.utility)


def numbers(found: Calibration) -> tuple[Provenance, ...]:
    return (*found.hyperparameters, *found.utility)
