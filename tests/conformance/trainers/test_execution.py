"""What was charged is what runs: as many steps, the sampling, the noise at its scale, the transcription's points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from accounting.events import Sampling, WithoutReplacement
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import AnyPhase, BoundedSteps, Clip, CorrelatedSteps, Plan
from calibrators.release import LAST_ITERATE
from tests.conformance.trainers.examples import (
    RUNS,
    every_dtype,
    every_gradient_plan,
    every_own_plan,
    every_plan,
    model,
    plan_of,
    records_of,
)
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.subjects import SUBJECTS, Drawn
from tests.conformance.trainers.sums import given_sums
from tests.transcriptions.dp_bandmf import correlated
from tests.transcriptions.models import regression_gradient
from trainer.algorithms import EXECUTIONS
from trainer.loop import Task, Trainer
from trainer.records import prepare
from trainer.run import run, usual_capacity
from trainer.streams import RandomStreams, random_streams

#: With it a random release is no starting point, which nothing has touched.
SEED = 4


def trainer_of(plan: Plan, streams: RandomStreams, features: np.ndarray, labels: np.ndarray) -> Trainer:
    """A trainer that is carried out step by step."""
    some = model(features.shape[1])
    records = prepare(some, features, labels, plan.dtype, usual_capacity(plan), streams.slots)
    return EXECUTIONS[plan.algorithm].make(Task(plan, some, records, streams))


def noise_shapes(name: str, plan: Plan) -> list[tuple[int, ...]]:
    return [shape for phase in plan.phases for shape in RUNS[name].noise_shapes(phase)]


@pytest.mark.one_in(3)
@every_plan
def test_as_many_steps_as_were_charged(name: str, plan: Plan) -> None:
    streams = RecordingStreams(SEED)
    result = run(plan, model(), *records_of(plan), streams=streams)
    assert result.steps == plan.iterations
    drawn = streams.drawn
    assert [noise.shape for noise in drawn.noises] == noise_shapes(name, plan)
    asked = [sampling_of(phase, plan.dataset_size) for phase in plan.phases]
    assert drawn.phases == [each for each in asked if each is not None]
    assert len(drawn.batches) == sum(steps for _, steps, _, _ in drawn.phases)


def sampling_of(phase: AnyPhase, dataset_size: int) -> tuple[Sampling, int, int, int] | None:
    """What the phase asks of a sampler: scheme, steps, nominal size, declared records; None where it has none."""
    if isinstance(phase, VarianceReducedEpochs):
        size = phase.records_per_step
        return WithoutReplacement(size, dataset_size), phase.steps, size, dataset_size
    if isinstance(phase, OutputPerturbation):
        return WithoutReplacement(1, dataset_size), phase.steps, 1, dataset_size
    if isinstance(phase, BoundedSteps):
        return phase.event.sampling, phase.event.count, phase.divisor, dataset_size
    return None


@pytest.mark.one_in(2)
@every_gradient_plan
def test_phases_follow_one_another(name: str, plan: Plan) -> None:
    """The plan's last phase once more, with other sizes: charged one after the other, and run so."""
    last = plan.phases[-1]
    assert isinstance(last, BoundedSteps)
    more = replace(last, event=replace(last.event, count=2), step_size=0.05)
    twice = replace(plan, phases=(*plan.phases, more), release=LAST_ITERATE)
    streams = RecordingStreams(SEED)
    assert run(twice, model(), *records_of(plan), streams=streams).steps == plan.iterations + 2
    assert [steps for _, steps, _, _ in streams.drawn.phases] == [event.count for event in twice.events]
    assert len(streams.drawn.noises) == sum(event.count for event in twice.events)


@every_dtype
@every_plan
def test_the_released_point_is_the_transcriptions(name: str, plan: Plan, dtype: str) -> None:
    plan = replace(plan, dtype=dtype)
    features, labels = records_of(plan)
    some, streams = model(), RecordingStreams(SEED)
    ours = run(plan, some, features, labels, streams=streams).parameters
    lengths: list[float] = []

    def gradient(x: np.ndarray, i: int) -> np.ndarray:
        found = regression_gradient(lambda error: error, x, features[i], float(labels[i]))
        lengths.append(float(np.linalg.norm(found)))
        return found

    fresh = random_streams(SEED)
    theirs = SUBJECTS[name].transcription(
        Drawn(
            plan,
            start=some.initial(fresh.initialisation),
            gradient=gradient,
            batches=[batch[batch < len(features)].tolist() for batch in streams.drawn.batches],
            noises=streams.drawn.noises,
            order=fresh.sampling.generator().permutation(plan.dataset_size).tolist(),
            chosen=int(fresh.release.generator().integers(plan.iterations)),
            dtype=dtype,
        )
    )
    # Sums and noise are rounded to the grid: to 2^-20 of the bound in float64, to 2^-13 in float32.
    tolerance = 1e-5 if dtype == "float64" else 2e-3
    for key, value in some.parameters(theirs).items():
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance)
    assert np.linalg.norm(theirs) > 0.0
    for bound in lengths_that_are_kept(plan):
        assert min(lengths) < bound < max(lengths), "some records are clipped and some are not"


def lengths_that_are_kept(plan: Plan) -> set[float]:
    """The longest gradients that contribute as they are; where gradients are normalised, none does."""
    found = set()
    for phase in plan.phases:
        if not isinstance(phase, BoundedSteps):
            found.add(phase.contribution_bound)
        elif isinstance(phase.gradient_bound, Clip):
            found.add(phase.gradient_bound.max_grad_norm)
    return found


@every_gradient_plan
@pytest.mark.one_in(4)
def test_the_noise_is_normal_at_the_planned_scale(name: str, plan: Plan) -> None:
    """What is drawn is normal, as Kolmogorov and Smirnov find; and noise Z on a sum is sigma Z more in the sum.

    Given sums of the noise's size, all that a step leads to is compared: an update may forget the size of a noisy sum.
    """
    width = 10_000
    scales = [
        phase.noise_stddev_on_sum
        for phase in plan.phases
        if isinstance(phase, BoundedSteps)
        for _ in range(phase.steps)
    ]
    sums = [scale * np.random.default_rng(step).normal(size=width) for step, scale in enumerate(scales)]
    loud, silent = RecordingStreams(SEED), RecordingStreams(SEED, noise_factor=0.0)
    paths = [carried_out(plan, loud, sums)]
    noises = loud.drawn.noises
    added = as_added(plan, noises)
    noisy_sums = [total + scale * noise for total, scale, noise in zip(sums, scales, added, strict=True)]
    paths.append(carried_out(plan, silent, noisy_sums))
    for noisy, expected in zip(*paths, strict=True):
        assert noisy.keys() == expected.keys()
        for vector, same in zip(noisy.values(), expected.values(), strict=True):
            # What is given is rounded to the grid twice: before the noise is added, and with it.
            np.testing.assert_allclose(vector, same, rtol=1e-5, atol=1e-6 * np.abs(same).max())
    for noise in (*noises, np.concatenate(noises)):
        assert stats.kstest(noise, "norm").pvalue > 1e-3
    # Steps are independent: their sample correlations have a standard deviation of 1 / sqrt(width).
    correlations = np.atleast_2d(np.corrcoef(noises))[np.triu_indices(len(noises), 1)]
    assert np.abs(correlations).max(initial=0.0) < 5.0 / np.sqrt(width)


def as_added(plan: Plan, noises: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What is added to the sums at unit scale: the normal numbers, in some phases correlated."""
    added, left = [], list(noises)
    for phase in plan.phases:
        own, left = left[: phase.steps], left[phase.steps :]
        added += correlated(phase.coefficients, own) if isinstance(phase, CorrelatedSteps) else own
    return added


def carried_out(plan: Plan, streams: RecordingStreams, sums: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """What is carried from step to step, given a sum for each: all vectors of the trainer's state, by their names."""
    width, left = sums[0].size, list(sums)
    units = [
        phase.gradient_bound.contribution_bound
        for phase in plan.phases
        if isinstance(phase, BoundedSteps)
        for _ in range(phase.steps)
    ]
    trainer = trainer_of(plan, streams, np.zeros((plan.dataset_size, width)), np.zeros(plan.dataset_size))
    path = []
    with given_sums(lambda sum_at, grid: np.rint(left.pop(0) / (units.pop(0) * grid.step))):
        for _ in sums:
            trainer.step()
            path.append({key: value for key, value in trainer.state().items() if np.shape(value) == (width,)})
    trainer.close()
    return path


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_a_selection_has_the_law_of_gumbel_noise_at_the_planned_scale(scale: float) -> None:
    """The vertex +-D e_i of score <u, g> is selected with probability proportional to exp(-<u, g> / lambda)."""
    for name in EXECUTIONS:
        plan = plan_of(name)
        phase = plan.phases[0]
        if not isinstance(phase, TreePhase):
            continue
        scaled = replace(plan, phases=(replace(phase, noise_scales=(scale,) * phase.num_trees),))
        features = np.tile([0.5, -0.25], (plan.dataset_size, 1))
        labels = np.ones(plan.dataset_size)  # at 0 every gradient is minus the features
        counts = np.zeros(4)
        for seed in range(2000):
            trainer = trainer_of(scaled, random_streams(seed), features, labels)
            trainer.step()
            [index] = np.flatnonzero(trainer.state()["point"])
            counts[index + (2 if trainer.state()["point"][index] < 0.0 else 0)] += 1
        radius = getattr(plan.domain, "radius", 0.0)
        scores = radius * np.array([-0.5, 0.25, 0.5, -0.25])
        expected = np.exp(-scores / scale)
        assert stats.chisquare(counts, 2000.0 * expected / expected.sum()).pvalue > 1e-3


@pytest.mark.one_in(3)
@every_own_plan
def test_other_noise_is_another_model(name: str, plan: Plan) -> None:
    """Else the comparison with the transcription would not see the noise."""
    quiet = [np.zeros(shape) for shape in noise_shapes(name, plan)]
    loud, silent = RecordingStreams(SEED), RecordingStreams(SEED, noise_factor=0.0, gumbel=quiet)
    some = [run(plan, model(), *records_of(plan), streams=streams).parameters["weights"] for streams in (loud, silent)]
    assert not np.allclose(*some)
