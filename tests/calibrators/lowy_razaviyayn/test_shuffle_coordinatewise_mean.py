"""The calibrator of medians from shuffled bits: worked numbers, the printed composition, what is charged, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.as_published import Verdict
from calibrators.lowy_razaviyayn.printed_noise import printed_composition, printed_coordinate_epsilon
from calibrators.lowy_razaviyayn.shuffled_sums import reach_of_coordinates, share_of_delta
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.registry import calibrate
from calibrators.spec import Calibration, OpenEpsilon, Spec, Unknown

NAME = "shuffle_coordinatewise_mean"
KNOWN = {"moment_order": 3.0, "coordinate_moment_bound": 1.0, "mean_bound": 2.0}
WORKED = Spec(
    12_000,
    ApproximateDpTarget(1.0, 1e-5),
    dimension=8,
    assumptions=KNOWN | {"truncation_radius": 4.0, "num_groups": 30},
)


def solved(**changes: object) -> Calibration:
    return calibrate(NAME, replace(WORKED, **changes))


def phase_of(found: Calibration) -> ShuffledMedians:
    [phase] = found.plan.phases
    assert isinstance(phase, ShuffledMedians)
    return phase


def numbers(found: Calibration) -> dict[str, float]:
    return {item.name: item.value for item in (*found.hyperparameters, *found.utility)}


def test_the_worked_numbers_of_the_listing():
    assert share_of_delta(1e-5, 8) == 6.25e-7
    assert printed_coordinate_epsilon(1.0, 1e-5, 8) == pytest.approx(0.0165360615, rel=1e-9)
    assert printed_composition(1.0, 1e-5, 8) == pytest.approx(0.5088964235, rel=1e-9)
    limit = 2.0 * math.log(2 * 8 / 1e-5)
    assert limit == pytest.approx(28.57102837, rel=1e-9)
    # So far its composition holds; the printed condition, 8 ln(2 d / delta), reaches to 114, where it has long failed.
    assert printed_composition(limit, 1e-5, 8) <= limit
    assert printed_composition(40.0, 1e-5, 8) > 40.0


def test_a_plan_and_its_counts():
    phase, values = phase_of(solved()), numbers(solved())
    assert (phase.groups, phase.users, phase.levels) == (30, 400, 20)
    rest = math.log(2e5)
    each = math.sqrt(2.0 / 8) * (math.sqrt(rest + 1.0) - math.sqrt(rest))
    assert phase.coordinate_epsilon == pytest.approx(each, rel=1e-9)
    assert phase.noise_bits == math.floor(180.0 * 400 * math.log(2 / 6.25e-7) / (phase.coordinate_epsilon**2 * 400)) + 1
    variance = 16.0 * (1 + phase.noise_bits) / (400 * 400)
    assert values["group_variance"] == pytest.approx(variance, rel=1e-12)
    tail = math.log(16 / 0.01) / 30
    p = 0.5 * (1.0 - math.sqrt(1.0 - math.exp(-2.0 * tail)))
    bias = 4.0 / 27.0 * 1.0 * (2.0 / 4.0) ** 2
    error = math.sqrt(8) * (bias + math.sqrt((1.0 / 400 + variance) / p))
    assert values["error_bound"] == pytest.approx(error, rel=1e-9)
    rate = 64 * 16 * math.log(8e5) ** 2 / 12_000**2 + 8 * (1 / 12_000 + (2.0 / 4.0) ** 4)
    assert values["variance_rate"] == pytest.approx(rate, rel=1e-9)
    assert values["message_bits"] == 12_000 * 8 * (20 + phase.noise_bits)


def test_the_preset_radius_is_near_the_best():
    free = {**KNOWN, "num_groups": 30}
    preset = phase_of(solved(assumptions=free, dataset_size=3_000_000)).truncation_radius
    errors = [
        numbers(solved(dataset_size=3_000_000, assumptions=free | {"truncation_radius": max(4.0, preset * factor)}))
        for factor in (1.0, 0.5, 0.8, 1.25, 2.0)
    ]
    assert min(found["error_bound"] for found in errors) > 0.8 * errors[0]["error_bound"]


def test_a_null_record_moves_half_as_far():
    null = phase_of(solved(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL))
    assert null.reach == pytest.approx(0.5 * math.sqrt(8))
    assert phase_of(solved()).reach == pytest.approx(math.sqrt(8))
    assert reach_of_coordinates(1.0, 8, 21) == pytest.approx(math.sqrt(8) * 11 / 21)


def test_the_listing_is_loose():
    published = solved().as_published
    assert published is not None
    assert published.verdict is Verdict.LOOSE
    assert "0.508896" in published.why
    assert published.noise_multiplier / solved().value == pytest.approx(
        phase_of(solved()).coordinate_epsilon / 0.0165360615, rel=1e-3
    )


def test_below_twice_the_means_bound_there_is_no_bound():
    found = solved(assumptions=dict(WORKED.assumptions) | {"truncation_radius": 3.9})
    assert numbers(found)["error_bound"] is None
    assert any("2 L" in warning for warning in found.warnings)
    assert solved(assumptions={"truncation_radius": 3.9}).missing_assumptions == tuple(KNOWN)


@pytest.mark.parametrize(
    ("changes", "kind", "pointer"),
    [
        ({"target": PureDpTarget(1.0)}, Unsupported, ("target", "kind")),
        ({"dimension": None}, InvalidValue, ("dimension",)),
        ({"assumptions": {"num_groups": 3.0}}, InvalidValue, ("assumptions", "truncation_radius")),
        ({"dataset_size": 29}, InvalidValue, ("assumptions", "num_groups")),
        ({"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, Unsupported, ("neighboring_relation",)),
        (
            {"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON, "noise_multiplier": 1.0},
            Unsupported,
            ("noise_multiplier",),
        ),
    ],
)
def test_what_has_no_answer_is_refused(changes, kind, pointer):
    with pytest.raises(kind) as refused:
        solved(**changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    "changes", [{"noise_bits": 1000}, {"coordinate_epsilon": 0.2}, {"dimension": 9}, {"coordinate_delta": 1e-6}]
)
def test_a_phase_that_is_charged_too_little_is_refused(changes):
    with pytest.raises(InvalidValue):
        replace(phase_of(solved()), **changes)
