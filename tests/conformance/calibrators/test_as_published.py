"""The verdict on a paper's own noise, recomputed: the printed noise through the engine, in the paper's own setting."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace

import pytest

from accounting.errors import AccountingError, Unreachable
from accounting.events import Event, Gaussian, WithoutReplacement, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.noise import GaussianSteps
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.phases.median_of_means import MedianPhase
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.plan import CorrelatedSteps, Phase
from calibrators.spec import Calibration, Spec
from calibrators.wang_nonsmooth.dp_sgd_output import mixture_of
from calibrators.wang_nonsmooth.mixture import Mixture
from calibrators.wang_nonsmooth.stability import Stability
from tests.conformance.subjects import (
    algorithm_of,
    calibrated,
    every_case,
    every_example,
    noise_multiplier_of,
    pinned,
)

#: Algorithms whose default is not the paper's setting: it draws batches of a fixed size, and replaces a record.
FIXED_SIZES = ("dp_sgd", "dp_nsgd", "dp_adam", "dp_nadam")
EPSILONS = [0.1, 1.0, 8.0]
every_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)


def published_at(name: str, spec: Spec, epsilon: float) -> tuple[Calibration, AsPublished]:
    """The paper's own setting, sizes pinned, at another epsilon."""
    assert isinstance(spec.target, ApproximateDpTarget)
    own: dict[str, object] = {}
    if name in FIXED_SIZES:
        own = {"sampling": WithoutReplacement.kind, "neighboring_relation": NeighboringRelation.REPLACE_ONE}
    found = calibrated(name, pinned(name, spec), target=replace(spec.target, epsilon=epsilon), **own)
    assert found.as_published is not None
    return found, found.as_published


def printed_multiplier(found: Calibration, published: AsPublished) -> float | None:
    """Of the printed noise, on the sum over the contribution bound; None where it prints no Gaussian noise."""
    first = found.plan.phases[0]
    if isinstance(
        first, EstimatePhase | LocalizedPhase | MedianPhase | RecursiveSelections | ShuffledCounts | ShuffledMedians
    ):
        return published.noise_multiplier  # of all estimates, blocks or selections together
    if isinstance(first, OutputPerturbation):
        assert published.noise_stddev_on_mean is not None
        return published.noise_stddev_on_mean / (first.gradient_norm * first.step_size)
    if isinstance(first, CorrelatedSteps):
        return published.noise_multiplier
    if not isinstance(first, Phase):
        return None
    if published.noise_multiplier is not None:
        return published.noise_multiplier
    if published.noise_stddev_on_mean is None:
        return None
    return published.noise_stddev_on_mean * first.divisor / first.gradient_bound.contribution_bound


@every_epsilon
@every_case
@pytest.mark.one_in(12)
def test_noise_that_is_called_sound_or_loose_meets_the_target(name: str, spec: Spec, epsilon: float) -> None:
    found, published = published_at(name, spec, epsilon)
    multiplier = printed_multiplier(found, published)
    if multiplier is None:
        assert published.verdict is Verdict.UNSOUND, "noise that is not printed cannot be certified"
        return
    if published.verdict is Verdict.UNSOUND:
        assert published.why
        return
    assert assessed(name, found, spec, multiplier, epsilon) <= epsilon


@pytest.mark.one_in(3)
@every_epsilon
@every_case
def test_noise_that_misses_the_target_is_called_unsound(name: str, spec: Spec, epsilon: float) -> None:
    found, published = published_at(name, spec, epsilon)
    multiplier = printed_multiplier(found, published)
    if multiplier is not None and assessed(name, found, spec, multiplier, epsilon) > epsilon:
        assert published.verdict is Verdict.UNSOUND
        assert f"{epsilon:.6g}" in published.why


@pytest.mark.one_in(3)
@every_epsilon
@every_case
def test_loose_is_more_noise_than_is_needed_and_says_how_much(name: str, spec: Spec, epsilon: float) -> None:
    found, published = published_at(name, spec, epsilon)
    multiplier = printed_multiplier(found, published)
    if published.verdict is Verdict.UNSOUND or multiplier is None:
        return
    # Sampling and relation are the paper's, so that the engine's noise is the least in its setting.
    excess = multiplier / noise_multiplier_of(found)
    assert excess > 0.999
    assert (published.verdict is Verdict.LOOSE) == (excess > 1.01)
    if published.verdict is Verdict.LOOSE:
        said = re.search(r"with ([\d.e+]+) times the noise", published.why)
        assert said is not None
        assert float(said[1]) == pytest.approx(excess, rel=1e-3)


def assessed(name: str, found: Calibration, spec: Spec, multiplier: float, epsilon: float) -> float:
    """The certified epsilon of the printed noise under the paper's own sampling and relation."""
    algorithm = algorithm_of(name)
    relation = NeighboringRelation.REPLACE_ONE if name in FIXED_SIZES else algorithm.relations[0]
    [phase] = found.plan.phases
    if isinstance(phase, ShuffledCounts | ShuffledMedians):
        return shuffled_counts(phase, multiplier, spec.target)
    assert isinstance(
        phase,
        Phase
        | CorrelatedSteps
        | EstimatePhase
        | LocalizedPhase
        | MedianPhase
        | OutputPerturbation
        | RecursiveSelections,
    )
    assert isinstance(spec.target, ApproximateDpTarget)
    try:
        if isinstance(phase, OutputPerturbation):
            return output_perturbation(found, phase).epsilon(spec.target.delta, multiplier)
        if isinstance(phase, Phase):
            sampling = WithoutReplacement if name in FIXED_SIZES else algorithm.samplings[0]
            usual = GaussianSteps(sampling.kind, spec.dataset_size, relation)
            event = Event(Gaussian(multiplier), usual(1.0, 1, phase.divisor).sampling, phase.steps)
        elif isinstance(phase, CorrelatedSteps):
            event = replace(phase.event, mechanism=replace(phase.event.mechanism, noise_multiplier=multiplier))
        elif isinstance(phase, EstimatePhase | RecursiveSelections):
            event = Event(ZcDp(2.0 / multiplier**2))  # under replacement, at this noise multiplier
        else:
            event = replace(phase.event, mechanism=Gaussian(multiplier))
        target = replace(spec.target, epsilon=epsilon)
        return target.assess([event], relation).value.upper
    except AccountingError:
        return float("inf")


def shuffled_counts(phase: ShuffledCounts | ShuffledMedians, multiplier: float, target: object) -> float:
    """Lemma 56 in each coordinate, approximate zCDP for all, at the plan's levels; a record is replaced."""
    assert isinstance(target, ApproximateDpTarget)
    log_coordinate, log_rest = math.log(4.0 * phase.dimension / target.delta), math.log(2.0 / target.delta)
    each = math.sqrt(180.0 * log_coordinate) / multiplier
    root = math.sqrt(phase.dimension)
    reach = root if isinstance(phase, ShuffledMedians) else 1.0 + 2.0 * root / phase.levels
    rho = 0.5 * (each * reach) ** 2
    return rho + 2.0 * math.sqrt(rho * log_rest)


def output_perturbation(found: Calibration, phase: OutputPerturbation) -> Mixture:
    """The paper's own release: a record that is replaced is drawn in some of the steps."""
    cap = math.inf if found.plan.domain is None else phase.radius
    stability = Stability(
        phase.holder_exponent, phase.holder_constant, phase.gradient_norm, phase.step_size, phase.iterations, cap
    )
    return mixture_of(stability, found.plan.dataset_size, 2.0)


@every_epsilon
@every_case
def test_what_is_executed_is_the_engines_noise_whatever_the_paper_prints(name: str, spec: Spec, epsilon: float) -> None:
    found, published = published_at(name, spec, epsilon)
    assert found.achieved.value.upper <= epsilon
    if published.verdict is Verdict.UNSOUND and isinstance(found.value, float):
        assert published.noise_multiplier != found.value


@pytest.mark.one_in(4)
@every_case
def test_other_samplings_and_relations_leave_the_papers_own_calibration_alone(name: str, spec: Spec) -> None:
    """It is of the paper's setting, so that it says the same whatever was asked for beside it."""
    fixed = pinned(name, spec)
    own = calibrated(name, fixed).as_published
    assert own is not None
    for relation in algorithm_of(name).relations[1:]:
        try:
            other = calibrated(name, fixed, neighboring_relation=relation).as_published
        except AccountingError:
            continue
        assert other is not None
        assert (other.verdict, other.noise_multiplier, other.noise_stddev_on_mean) == (
            own.verdict,
            own.noise_multiplier,
            own.noise_stddev_on_mean,
        )


@every_example
@pytest.mark.one_in(48)
def test_printed_noise_that_the_engine_does_not_take_refuses_no_request(name: str, spec: Spec) -> None:
    """It is for comparison: at a tiny epsilon the printed noise may be out of every range, and the answer stands."""
    fixed = pinned(name, spec)
    assert isinstance(spec.target, ApproximateDpTarget)
    for epsilon, delta in ((1e-6, 1e-6), (1e-4, 1e-3)):
        with suppress(Unreachable):
            found = calibrated(name, fixed, target=ApproximateDpTarget(epsilon, delta))
            assert found.achieved.value.upper <= epsilon
