"""What a plan costs is what was said, by the engine's own word, and meets the target; and the plan travels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import NoCostInFilter, Unsupported
from accounting.events import ApproximateDp, CorrelatedGaussian, Gaussian, RenyiDp
from accounting.targets import ApproximateDpTarget, PureDpTarget, ZcdpTarget
from calibrators import noise
from calibrators.plan import plan_from_canonical
from calibrators.registry import calibrate
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown
from tests.conformance.subjects import (
    algorithm_of,
    calibrated,
    every_case,
    every_example,
    noise_multiplier_of,
    noise_of,
    pinned,
)


@every_case
def test_the_plans_events_cost_what_is_said_and_meet_the_target(name: str, spec: Spec) -> None:
    found = calibrated(name, spec)
    assert isinstance(spec.target, ApproximateDpTarget)
    again = spec.target.assess(found.plan.events, found.plan.neighboring_relation)
    assert again == found.achieved
    assert again.value.upper <= spec.target.epsilon
    assert again.value.upper > 0.98 * spec.target.epsilon, "the target is used up"


@every_case
def test_the_cost_is_of_the_whole_list_at_the_targets_delta(name: str, spec: Spec) -> None:
    """The accountant's own answer, beside the target's."""
    found = calibrated(name, spec)
    assert isinstance(spec.target, ApproximateDpTarget)
    cost = epsilon_for_delta(found.plan.events, found.plan.neighboring_relation, spec.target.delta).value
    assert cost.upper <= spec.target.epsilon
    assert sum(phase.event.count for phase in found.plan.phases) == sum(event.count for event in found.plan.events)
    assert found.plan.cost_of_prefix(found.plan.iterations) == found.plan.events


@every_case
def test_a_little_less_noise_misses_the_target(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    less = 0.99 * noise_multiplier_of(calibrated(name, spec))
    found = calibrated(
        name, pinned(name, spec), unknown=Unknown.EPSILON, target=OpenEpsilon(spec.target.delta), noise_multiplier=less
    )
    assert found.achieved.value.upper > spec.target.epsilon


@every_case
def test_epsilon_and_delta_of_the_noise_are_the_targets(name: str, spec: Spec) -> None:
    assert isinstance(spec.target, ApproximateDpTarget)
    multiplier, fixed = noise_multiplier_of(calibrated(name, spec)), pinned(name, spec)
    open_epsilon = OpenEpsilon(spec.target.delta)
    epsilon = calibrated(name, fixed, unknown=Unknown.EPSILON, target=open_epsilon, noise_multiplier=multiplier)
    assert epsilon.unknown is Unknown.EPSILON
    assert epsilon.value == epsilon.achieved.value.upper
    assert epsilon.value == pytest.approx(spec.target.epsilon, rel=0.02)
    assert noise_of(epsilon.plan) == pytest.approx(noise_of(calibrated(name, fixed).plan), rel=1e-9)
    if spec.target.delta > 0.0:
        open_delta = OpenDelta(spec.target.epsilon)
        delta = calibrated(name, fixed, unknown=Unknown.DELTA, target=open_delta, noise_multiplier=multiplier)
        assert delta.value == delta.achieved.value.upper
        assert delta.value <= spec.target.delta * (1.0 + 1e-9)


@pytest.mark.parametrize("target", [ZcdpTarget(0.1), PureDpTarget(1.0)], ids=["zcdp", "pure_dp"])
@every_case
def test_other_targets_are_met_or_refused(name: str, spec: Spec, target: ZcdpTarget | PureDpTarget) -> None:
    """Gaussian noise has no pure epsilon; where a selection has one, it is met."""
    fixed = pinned(name, spec)
    if any(isinstance(event.mechanism, RenyiDp | ApproximateDp) for event in calibrated(name, spec).plan.events):
        why = r"Renyi divergences at some orders|known (only )?as (an )?epsilon at a delta"
        with pytest.raises((Unsupported, NoCostInFilter), match=why):
            calibrated(name, fixed, target=target)
        return
    if isinstance(target, PureDpTarget) and all(
        isinstance(event.mechanism, Gaussian | CorrelatedGaussian) for event in calibrated(name, spec).plan.events
    ):
        with pytest.raises(ValueError, match=r"(?i)gaussian"):
            calibrated(name, fixed, target=target)
        return
    if isinstance(target, PureDpTarget) and not has_a_pure_cost(name, fixed):
        with pytest.raises(NoCostInFilter, match=r"(?i)gaussian") as refused:
            calibrated(name, fixed, target=target)
        assert refused.value.pointer[0] == "target", "it is refused for its noise"
        return
    changes = {} if not isinstance(target, ZcdpTarget) else zcdp_changes(name)
    found = calibrated(name, replace(fixed, **changes), target=target)
    assert found.achieved == target.assess(found.plan.events, found.plan.neighboring_relation)
    assert found.achieved.value.upper <= target.limit
    assert set(found.achieved.warnings) <= set(found.warnings)


def has_a_pure_cost(name: str, spec: Spec) -> bool:
    """Selections have one."""
    try:
        calibrated(name, spec, target=PureDpTarget(1.0))
    except NoCostInFilter:
        return False
    return True


def zcdp_changes(name: str) -> dict[str, object]:
    """Sampling that has a zCDP cost: a fixed-size sample has none."""
    kinds = [scheme.kind for scheme in algorithm_of(name).samplings]
    return {"sampling": "full_batch", "batch_size": None} if "full_batch" in kinds else {}


@every_case
def test_a_plan_travels_as_bytes_and_is_known_by_its_hash(name: str, spec: Spec) -> None:
    plan = calibrated(name, spec).plan
    assert plan_from_canonical(plan.canonical(), plan.plan_hash) == plan


@every_example
def test_the_same_request_has_the_same_answer(name: str, spec: Spec) -> None:
    first = calibrate(name, spec)
    noise._solve.cache_clear()
    second = calibrate(name, spec)
    assert first == second
    assert first.plan.plan_hash == second.plan.plan_hash


@every_case
def test_a_domain_and_a_penalty_never_change_the_price(name: str, spec: Spec) -> None:
    """They look at no data; the noise multiplier is that of the same request without them."""
    found = calibrated(name, spec)
    bare = [phase.event for phase in replace(found.plan, domain=None, penalty=None).phases]
    assert tuple(bare) == found.plan.events
