"""The calibrator of the mean from shuffled bits: worked numbers, what is charged, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import ApproximateDp, Event, FullBatch
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown

NAME = "shuffle_vector_mean"
MOMENTS = {"moment_order": 3.0, "moment_bound": 2.0, "moment_bound_2": 1.5}
WORKED = Spec(400, ApproximateDpTarget(1.0, 1e-6), dimension=10, gradient_bound=Clip(2.0), assumptions=MOMENTS)


def solved(**changes: object) -> Calibration:
    return calibrate(NAME, replace(WORKED, **changes))


def phase_of(found: Calibration) -> ShuffledCounts:
    [phase] = found.plan.phases
    assert isinstance(phase, ShuffledCounts)
    return phase


def numbers(found: Calibration) -> dict[str, float]:
    return {item.name: item.value for item in (*found.hyperparameters, *found.utility)}


def test_the_worked_examples():
    found = solved()
    phase, values = phase_of(found), numbers(found)
    assert (phase.levels, phase.noise_bits, phase.flip_probability) == (20, 163808, 0.5)
    assert phase.coordinate_epsilon == pytest.approx(0.1386894102, rel=1e-9)
    assert phase.coordinate_delta == 5e-8
    assert phase.event.mechanism == ApproximateDp(1.0 * (1.0 - 1e-12), 1e-6)
    assert values["protocol_variance"] == pytest.approx(40.95225, rel=1e-12)
    assert values["protocol_variance"] / 10 * 400**2 == pytest.approx(655236.0, rel=1e-12)  # of a coordinate's sum
    assert values["message_bits"] == 400 * 10 * (20 + 163808)
    assert phase.noise_stddev_on_mean == pytest.approx(found.value * 2.0 / 400, rel=1e-12)
    small = solved(dataset_size=100, dimension=1, gradient_bound=Clip(1.0), target=ApproximateDpTarget(2.0, 1e-5))
    assert (phase_of(small).levels, phase_of(small).noise_bits) == (10, 22046)
    assert phase_of(small).coordinate_epsilon == pytest.approx(0.3245329961, rel=1e-9)
    assert numbers(small)["protocol_variance"] == pytest.approx(2.204699998, rel=1e-8)


def test_a_trusted_curator_needs_a_thirty_eighth_of_the_noise():
    """With Proposition 3's rho, the largest for the target."""
    rho = (math.sqrt(math.log(1e6) + 1.0) - math.sqrt(math.log(1e6))) ** 2
    curator = math.sqrt(2.0 * 2.0**2 / (rho * 400**2))
    assert math.sqrt(numbers(solved())["protocol_variance"] / 10) / curator == pytest.approx(38.0, rel=0.01)


def test_the_error_is_that_of_clipping_sampling_rounding_and_coins():
    found = solved()
    phase, values = phase_of(found), numbers(found)
    bias = 4.0 / 27.0 * 2.0**3 / 2.0**2
    noise = 10 * 4.0 * (1 + phase.noise_bits) / (20**2 * 400)
    assert values["mean_squared_error_bound"] == pytest.approx(bias**2 + noise + 1.5**2 / 400, rel=1e-12)
    assert values["bias"] == pytest.approx(1.0)
    rate = 10 * 4.0 * math.log(10 / 1e-6) ** 2 / 400**2 + 1.5**2 / 400
    assert values["variance_rate"] == pytest.approx(rate, rel=1e-9)
    preset = phase_of(solved(gradient_bound=None)).max_grad_norm
    assert preset == pytest.approx(2.0 * (2.0 / found.value * 400 / math.sqrt(10)) ** (1 / 3), rel=1e-12)


def test_a_null_record_moves_half_as_far():
    null = phase_of(solved(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL))
    assert (phase_of(solved()).change, null.change) == (2.0, 1.0)
    assert null.reach == pytest.approx(0.5 + 2.0 * math.sqrt(10) / 20)
    assert null.noise_bits < phase_of(solved()).noise_bits


def test_epsilon_and_delta_of_given_noise_are_solved_for():
    multiplier = solved().value
    given = {"noise_multiplier": multiplier}
    epsilon = solved(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, **given)
    delta = solved(target=OpenDelta(1.0), unknown=Unknown.DELTA, **given)
    assert phase_of(epsilon).noise_bits == phase_of(delta).noise_bits == phase_of(solved()).noise_bits
    assert 0.99999 < epsilon.value <= 1.0
    assert 0.9999e-6 < delta.value <= 1e-6
    more = solved(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, noise_multiplier=2.0 * multiplier)
    assert more.value < epsilon.value


def test_parameters_of_the_earlier_paper_are_loose():
    published = solved().as_published
    assert published is not None
    assert published.verdict is Verdict.LOOSE
    assert published.noise_multiplier / solved().value == pytest.approx(9.509, rel=1e-3)
    assert solved(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, noise_multiplier=500.0).as_published is None


@pytest.mark.parametrize(
    ("changes", "kind", "pointer"),
    [
        ({"target": ZcdpTarget(0.5)}, Unsupported, ("target", "kind")),
        ({"target": ApproximateDpTarget(1.0, 0.5)}, Unsupported, ("target", "delta")),
        ({"target": ApproximateDpTarget(500.0, 1e-6), "dimension": 1}, Unsupported, ("target", "epsilon")),
        ({"dimension": None}, InvalidValue, ("dimension",)),
        ({"assumptions": {}, "gradient_bound": None}, InvalidValue, ("gradient_bound",)),
        ({"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, Unsupported, ("neighboring_relation",)),
        ({"iterations": 2}, InvalidValue, ("iterations",)),
        ({"domain": L2Ball(1.0)}, Unsupported, ("domain", "kind")),
        ({"penalty": L2Penalty(1.0)}, Unsupported, ("penalty", "kind")),
        (
            {"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON, "noise_multiplier": 1.0},
            Unsupported,
            ("noise_multiplier",),
        ),
        (
            {"target": OpenDelta(1e-9), "unknown": Unknown.DELTA, "noise_multiplier": 100.0},
            AccountingError,
            ("target", "epsilon"),
        ),
    ],
)
def test_what_has_no_answer_is_refused(changes, kind, pointer):
    with pytest.raises(kind) as refused:
        solved(**changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"noise_bits": 163806}, ("coordinate_epsilon",)),
        ({"coordinate_epsilon": 0.1386}, ("coordinate_epsilon",)),
        ({"coordinate_epsilon": 0.139}, ("event", "mechanism", "epsilon")),
        ({"coordinate_delta": 1e-7}, ("coordinate_delta",)),
        ({"coordinate_delta": 6e-8, "coordinate_epsilon": 0.1387}, ("event", "mechanism", "epsilon")),
        ({"levels": 5}, ("levels",)),
        ({"flip_probability": 0.4999}, ("flip_probability",)),
        ({"dimension": 11}, ("event", "mechanism", "epsilon")),
        ({"change": 2.5}, ("change",)),
        ({"event": Event(ApproximateDp(0.999, 1e-6), FullBatch(), 1)}, ("event", "mechanism", "epsilon")),
        ({"event": Event(ApproximateDp(1.0, 1e-6), FullBatch(), 2)}, ("event", "mechanism")),
    ],
)
def test_a_phase_that_is_charged_too_little_is_refused(changes, pointer):
    with pytest.raises(InvalidValue) as refused:
        replace(phase_of(solved()), **changes)
    assert refused.value.pointer == pointer
