"""The calibrator of the clipped mean: worked numbers, its error against simulation, refusals, the printed noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import L1Penalty, L2Ball
from calibrators.lowy_razaviyayn.lower_bounds import mean_lower_bound
from calibrators.plan import Clip, plan_from_canonical
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown

NAME = "clipped_mean"
ASSUMPTIONS = {"moment_order": 3.0, "moment_bound": 2.0, "moment_bound_2": 1.5}
WORKED = Spec(100, ZcdpTarget(0.5), dimension=10, gradient_bound=Clip(3.0), assumptions=ASSUMPTIONS)


def solved(**changes: object) -> Calibration:
    return calibrate(NAME, replace(WORKED, **changes))


def numbers(found: Calibration) -> dict[str, float | tuple[float, ...] | None]:
    return {item.name: item.value for item in (*found.hyperparameters, *found.utility)}


def test_the_worked_example():
    found = solved()
    [phase] = found.plan.phases
    assert phase.event == Event(Gaussian(found.value), FullBatch(), 1)
    assert found.value == pytest.approx(2.0, rel=1e-8)
    assert (phase.divisor, phase.step_size) == (100, 1.0)
    assert phase.noise_stddev_on_mean == pytest.approx(0.06, rel=1e-8)
    assert phase.noise_stddev_on_mean**2 == pytest.approx(0.0036, rel=1e-8)
    values = numbers(found)
    assert values["bias"] == pytest.approx(0.4444444444, rel=1e-9)
    assert values["variance"] == pytest.approx(0.0585, rel=1e-8)
    assert values["mean_squared_error_bound"] == pytest.approx(0.1316872428**2 + 0.0585, rel=1e-8)
    assert values["mean_squared_error_bound_closed_form"] == pytest.approx(0.4444444444**2 + 0.0585, rel=1e-8)
    assert values["gradient_evaluations"] == 100
    assert plan_from_canonical(found.plan.canonical(), found.plan.plan_hash) == found.plan


def test_the_preset_threshold_is_that_of_the_theorems_for_one_round_and_near_the_best():
    found = solved(gradient_bound=None, dataset_size=10_000)
    preset = found.plan.phases[0].gradient_bound.max_grad_norm
    assert preset == pytest.approx(2.0 * (10_000 / math.sqrt(10)) ** (1 / 3), rel=1e-8)
    assert numbers(found)["max_grad_norm"] == preset
    errors = [
        numbers(solved(dataset_size=10_000, gradient_bound=Clip(preset * 2.0 ** (i / 4))))["mean_squared_error_bound"]
        for i in range(-12, 13)
    ]
    assert min(errors) <= numbers(found)["mean_squared_error_bound"] <= 2.0 * min(errors)


def test_the_error_is_below_its_bound_and_above_its_lower_bound():
    """Records of two points, the law that attains the sharp bias; in one coordinate, so that the sums are quick."""
    records, moment, clip = 2000, 2.0, 6.0
    far = clip * 3.0 / 2.0  # where the sharp constant is attained for k = 3
    share = (moment / far) ** 3
    constants = {"moment_order": 3.0, "moment_bound": moment, "moment_bound_2": far * math.sqrt(share)}
    found = solved(dataset_size=records, dimension=1, gradient_bound=Clip(clip), assumptions=constants)
    rng = np.random.default_rng(3)
    counts = rng.binomial(records, share, size=200_000)
    noise = found.plan.phases[0].noise_stddev_on_mean * rng.normal(size=200_000)
    errors = (counts * clip / records + noise - share * far) ** 2
    values = numbers(found)
    assert values["lower_bound"] < 0.5 * values["mean_squared_error_bound"] <= errors.mean()
    assert errors.mean() <= values["mean_squared_error_bound"]


def test_no_mechanism_with_the_noise_beats_the_lower_bound_on_the_laws_of_its_proof():
    """Two laws whose means differ in sign: the clipped mean, with the best threshold for them, is above it."""
    records, rho = 500, 0.5
    q = min(1.0, 1.0 / (records * math.sqrt(2.0 * rho)))
    h, k = 2.0, 3.0
    point, mean = h * q ** (-1.0 / k), h * q ** (1.0 - 1.0 / k)
    assert point**k * q == pytest.approx(h**k)
    rng = np.random.default_rng(0)
    least = math.inf
    for clip in point * np.geomspace(1e-3, 1.0, 25):
        counts = rng.binomial(records, q, size=20_000)
        released = counts * clip / records + 2.0 * clip / records * rng.normal(size=20_000)
        least = min(least, float(np.mean((released - mean) ** 2)))
    assert mean_lower_bound(k, h, records, rho) <= least


def test_every_relation_is_one_mechanism():
    one = solved(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert one.value == pytest.approx(1.0, rel=1e-8)
    assert one.plan.events[0].sampling == FullBatch()
    assert solved(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL).value == pytest.approx(1.0, rel=1e-8)


def test_without_moments_the_noise_is_solved_and_the_plan_runs():
    found = solved(assumptions={}, dimension=None)
    assert found.value == solved().value
    assert found.missing_assumptions == ("moment_order", "moment_bound", "dimension")
    assert found.plan == solved().plan
    assert [item.name for item in found.utility] == ["gradient_evaluations"]


@pytest.mark.parametrize(
    ("changes", "error", "pointer", "words"),
    [
        ({"sampling": "poisson"}, Unsupported, ("sampling",), "full_batch"),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0}, Unsupported, ("solve_for",), "one step"),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 2.0}, Unsupported, ("solve_for",), "one step"),
        ({"iterations": 2}, InvalidValue, ("iterations",), "iterations must be 1"),
        ({"batch_size": 99}, InvalidValue, ("batch_size",), "100"),
        ({"step_size": 0.5}, InvalidValue, ("step_size",), "size 1"),
        ({"gradient_bound": None, "dimension": None}, InvalidValue, ("gradient_bound",), "no preset"),
        ({"domain": L2Ball(1.0)}, Unsupported, ("domain", "kind"), "project"),
        ({"penalty": L1Penalty(1.0)}, Unsupported, ("penalty", "kind"), "shrink"),
    ],
)
def test_what_is_no_mean_is_refused(changes, error, pointer, words):
    with pytest.raises(error) as refused:
        solved(**changes)
    assert refused.value.pointer == pointer
    assert words in refused.value.detail


def test_the_only_sizes_may_be_given():
    assert solved(iterations=1, batch_size=100, step_size=1.0).plan == solved().plan


def test_the_printed_noise_is_the_least_there_is():
    found = solved()
    assert found.as_published.verdict is Verdict.SOUND
    assert found.as_published.noise_multiplier == pytest.approx(2.0)
    assert "Algorithm 1 (Proposition 3" in found.as_published.source
    assert solved(target=ApproximateDpTarget(1.0, 1e-6)).as_published.verdict is Verdict.LOOSE
    assert solved(target=GaussianDpTarget(1.0)).as_published is None
