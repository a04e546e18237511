"""Which way numbers move: more privacy costs noise, more data saves it, more parameters never help."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError
from accounting.events.regularity import kappa_pair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.phases.median_of_means import MedianPhase
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.provenance import PURE, ProvenanceKind
from calibrators.spec import Calibration, Spec
from tests.conformance.subjects import (
    algorithm_of,
    bounds_of,
    calibrated,
    every_bounded_case,
    every_case,
    every_example,
    noise_of,
    pinned,
    sized_for,
)

#: What the solver may be off by.
_SOLVED = 1.0 + 1e-5


def along(name: str, spec: Spec, changes: Sequence[dict[str, Any]]) -> list[Calibration]:
    """The spec with its own choices pinned, along changes of one thing."""
    fixed = pinned(name, spec)
    return [calibrated(name, fixed, **change) for change in changes]


def assert_falls(numbers: Sequence[Sequence[float]]) -> None:
    """No number rises from one to the next, and each is lower at the end."""
    for before, after in itertools.pairwise(numbers):
        assert len(before) == len(after)
        assert all(new <= old * _SOLVED for old, new in zip(before, after, strict=True)), numbers
    assert all(last < first for first, last in zip(numbers[0], numbers[-1], strict=True)), numbers


def losses_of(found: Calibration) -> dict[str, float]:
    """Bounds and rates: all of the utility that is measured in units of the problem."""
    return {item.name: item.value for item in found.utility if isinstance(item.value, float) and item.units != PURE}


@every_case
def test_more_epsilon_is_less_noise(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    targets = [{"target": replace(spec.target, epsilon=epsilon)} for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert_falls([noise_of(found.plan) for found in along(name, spec, targets)])


@pytest.mark.one_in(6)
@every_example
def test_more_delta_is_less_noise(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    targets = [{"target": replace(spec.target, delta=delta)} for delta in (1e-9, 1e-5)]
    assert_falls([noise_of(found.plan) for found in along(name, spec, targets)])


@every_example
@pytest.mark.one_in(6)
def test_more_records_are_less_noise_on_the_mean(name: str, spec: Spec) -> None:
    sizes = [{"dataset_size": spec.dataset_size * factor} for factor in (1, 2, 4)]
    noises = [noise_of(found.plan) for found in along(name, spec, sizes)]
    # Where there are more blocks of more records, only the first ones are the same ones.
    shared = len(noises[0]) if len({len(noise) for noise in noises}) == 1 else 1
    assert_falls([noise[:shared] for noise in noises])


@every_case
def test_more_steps_are_no_less_noise(name: str, spec: Spec) -> None:
    fixed = pinned(name, spec)
    assert fixed.iterations is not None
    fewer, more = (
        calibrated(name, fixed, iterations=count) for count in (max(1, fixed.iterations // 2), fixed.iterations)
    )
    # Trees differ in number; those that both have are compared.
    for few, many in zip(noise_of(fewer.plan), noise_of(more.plan), strict=False):
        assert many >= few / _SOLVED


@every_case
def test_the_noise_does_not_depend_on_the_number_of_parameters(name: str, spec: Spec) -> None:
    assert spec.dimension is not None
    own: dict[str, Any] = {}
    if isinstance(calibrated(name, spec).plan.phases[0], RecursiveSelections):
        # The paper's step size depends on the number of vertices, and a record's part in later steps on that.
        own = {"step_size": _scalar_step(calibrated(name, spec))}
    few, many = along(name, spec, [{"dimension": spec.dimension * factor} | own for factor in (1, 100)])
    assert few.plan.events == many.plan.events
    if isinstance(few.plan.phases[0], LocalizedPhase | MedianPhase):
        # A block's threshold may depend on it, and the noise on nothing else that does.
        assert noise_over_bounds(few) == pytest.approx(noise_over_bounds(many), rel=1e-12)
        return
    if isinstance(few.plan.phases[0], ShuffledCounts | ShuffledMedians):
        # Coordinates share the budget, each with a failure probability of its own, and rounding moves each of them.
        assert noise_of(many.plan) > noise_of(few.plan)
        assert noise_over_shares(few) == pytest.approx(noise_over_shares(many), rel=1e-4)  # bits are whole
        return
    order = getattr(few.plan.phases[0], "norm_order", None)
    if order is not None:
        # Noise in an l_p norm is scaled to its constant of regularity, and depends on it through nothing else.
        roots = [math.sqrt(kappa_pair(order, spec.dimension * factor).kappa) for factor in (1, 100)]
        expected = [scale * roots[1] / roots[0] for scale in noise_of(few.plan)]
        assert noise_of(many.plan) == pytest.approx(expected, rel=1e-12)
        return
    assert noise_of(few.plan) == noise_of(many.plan)


def noise_over_shares(found: Calibration) -> float:
    """Of the sum, over what the number of coordinates has a part in: sqrt(ln(4 d / delta)) and what they move."""
    [phase] = found.plan.phases
    assert isinstance(phase, ShuffledCounts | ShuffledMedians)
    root = math.sqrt(phase.dimension)
    reach = root if isinstance(phase, ShuffledMedians) else 1.0 + 2.0 * root / phase.levels
    share = math.sqrt(math.log(2.0 / phase.coordinate_delta)) * reach
    bound = phase.truncation_radius if isinstance(phase, ShuffledMedians) else phase.max_grad_norm
    return phase.noise_scale[0] * phase.users / (bound * share)


def noise_over_bounds(found: Calibration) -> list[float]:
    """Of each block, over the longest gradient that counts in it."""
    [phase] = found.plan.phases
    if isinstance(phase, MedianPhase):  # on the mean of a group, whose size depends on it too
        return [phase.noise_stddev * phase.group_size / phase.contribution_bound]
    assert isinstance(phase, LocalizedPhase)
    return [noise / bound for noise, bound in zip(phase.noise_scale, phase.max_grad_norm, strict=True)]


@every_bounded_case
def test_more_parameters_are_no_smaller_bound(name: str, spec: Spec) -> None:
    assert spec.dimension is not None
    found = along(name, spec, [{"dimension": spec.dimension * factor} for factor in (1, 10, 100)])
    assert_falls_by_name([bounds_of(each) for each in reversed(found)])


@every_bounded_case
def test_more_epsilon_is_no_larger_bound_or_rate(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    targets = [{"target": replace(spec.target, epsilon=epsilon)} for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert_falls_by_name([losses_of(found) for found in along(name, spec, targets)], strictly=False)


@every_bounded_case
def test_more_records_are_no_larger_bound_or_rate(name: str, spec: Spec) -> None:
    sizes = [{"dataset_size": spec.dataset_size * factor} for factor in (1, 4)]
    assert_falls_by_name([losses_of(found) for found in along(name, spec, sizes)], strictly=False)


def assert_falls_by_name(found: Sequence[dict[str, float]], *, strictly: bool = True) -> None:
    names = set.intersection(*(set(each) for each in found))
    assert names
    for name in names:
        numbers = [each[name] for each in found]
        for before, after in itertools.pairwise(numbers):
            assert after <= before * _SOLVED, (name, numbers)
        assert not strictly or numbers[-1] < numbers[0], (name, numbers)


@pytest.mark.one_in(48)
@every_case
def test_replacing_a_record_by_a_null_one_never_needs_more_noise_than_replacing_it_by_any(
    name: str, spec: Spec
) -> None:
    compared = 0
    for sampling in algorithm_of(name).samplings:
        noise: dict[NeighboringRelation, tuple[float, ...]] = {}
        for relation in (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL):
            change = {"sampling": sampling.kind, "neighboring_relation": relation} | sized_for(sampling.kind, spec)
            try:
                noise[relation] = noise_of(calibrated(name, pinned(name, spec), **change).plan)
            except AccountingError:
                continue
        if len(noise) == 2:
            any_record, null = noise[NeighboringRelation.REPLACE_ONE], noise[NeighboringRelation.REPLACE_SPECIAL]
            assert all(less <= more * _SOLVED for less, more in zip(null, any_record, strict=True))
            compared += 1
    assert compared


@every_case
def test_the_order_constant_moves_what_is_known_up_to_a_constant_and_nothing_else(name: str, spec: Spec) -> None:
    if not any(assumption.name == "order_constant" for assumption in algorithm_of(name).assumptions):
        assert all(item.kind is not ProvenanceKind.ORDER for item in calibrated(name, spec).utility)
        return
    fixed = pinned(name, spec)
    own = {"step_size": fixed.step_size or _scalar_step(calibrated(name, fixed))}
    before, after = (
        calibrated(name, fixed, **own, assumptions=dict(fixed.assumptions) | {"order_constant": value})
        for value in (1.0, 2.0)
    )
    moved = {item.name for item in before.utility if item.value is not None} - {
        item.name for item in before.utility if item in after.utility
    }
    order = {item.name for item in before.utility if item.kind is ProvenanceKind.ORDER and item.value is not None}
    # A printed formula that is false or unproved may have constants of its own, and then says whose they are.
    own_constants = {item.name for item in before.utility if "constants" in " ".join(item.assumptions)} & order
    assert moved | own_constants == order
    for item in before.utility:
        if item.name in moved and isinstance(item.value, float):
            larger = next(other.value for other in after.utility if other.name == item.name)
            assert isinstance(larger, float)
            assert larger > item.value


def _scalar_step(found: Calibration) -> float | None:
    """The recommended step, so that a constant inside it does not move the bounds; None where it is a schedule."""
    first = found.plan.phases[0]
    size = getattr(first, "step_size", None)
    return size if isinstance(size, float) else None


@every_bounded_case
def test_a_bound_under_hopeless_privacy_is_called_vacuous(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    found = calibrated(
        name, pinned(name, spec), target=replace(spec.target, epsilon=5e-4, delta=spec.target.delta / 10.0)
    )
    flags = {item.name: item.vacuous for item in found.utility if item.name in bounds_of(found)}
    assert flags
    assert all(flags.values()), flags
