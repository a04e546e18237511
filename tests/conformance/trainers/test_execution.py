"""What was charged is what runs: as many steps, the sampling, the noise at its scale, the transcription's points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from calibrators.phases import TreePhase
from calibrators.plan import Phase, Plan
from calibrators.release import LAST_ITERATE
from tests.conformance.trainers.examples import (
    FEATURES,
    every_dtype,
    every_gradient_plan,
    every_own_plan,
    every_plan,
    model,
    plan_of,
    records_of,
)
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.transcriptions import TRANSCRIPTIONS, Drawn
from tests.reference.models import regression_gradient
from trainer.algorithms import ALGORITHMS
from trainer.clipping import margin
from trainer.loop import Task, Trainer
from trainer.records import lanes_for, prepare
from trainer.run import rows_per_step, run
from trainer.streams import RandomStreams, random_streams

#: With it a random release is no starting point, which nothing has touched.
SEED = 4


def trainer_of(plan: Plan, streams: RandomStreams, features: np.ndarray, labels: np.ndarray) -> Trainer:
    """A trainer that is carried out step by step."""
    some = model(features.shape[1])
    records = prepare(some, features, labels, "float64", lanes_for(rows_per_step(plan)), streams.lanes)
    return ALGORITHMS[plan.algorithm].make(Task(plan, some, records, streams, "float64"))


@every_plan
def test_as_many_steps_as_were_charged(name: str, plan: Plan) -> None:
    streams = RecordingStreams(SEED)
    result = run(plan, model(), *records_of(plan), streams=streams)
    assert result.steps == plan.iterations
    drawn = streams.drawn
    assert len(drawn.noises) == plan.iterations
    gradient_phases = [phase for phase in plan.phases if isinstance(phase, Phase)]
    for noise in drawn.noises:
        assert noise.shape == ((FEATURES,) if gradient_phases else (2 * FEATURES,))
    assert drawn.phases == [
        (phase.event.sampling, phase.event.count, phase.divisor, plan.dataset_size) for phase in gradient_phases
    ]
    assert len(drawn.batches) == sum(phase.event.count for phase in gradient_phases)


@every_gradient_plan
def test_phases_follow_one_another(name: str, plan: Plan) -> None:
    """Twice the plan's phase, the second with other sizes: charged one after the other, and run so."""
    [first] = plan.phases
    assert isinstance(first, Phase)
    second = replace(first, event=replace(first.event, count=2), step_size=0.05)
    twice = replace(plan, phases=(first, second), release=LAST_ITERATE)
    streams = RecordingStreams(SEED)
    assert run(twice, model(), *records_of(plan), streams=streams).steps == plan.iterations + 2
    assert [steps for _, steps, _, _ in streams.drawn.phases] == [event.count for event in twice.events]
    assert len(streams.drawn.noises) == sum(event.count for event in twice.events)


@every_dtype
@every_plan
def test_the_released_point_is_the_transcriptions(name: str, plan: Plan, dtype: str) -> None:
    features, labels = records_of(plan)
    some, streams = model(), RecordingStreams(SEED)
    ours = run(plan, some, features, labels, streams=streams, dtype=dtype).parameters
    lengths: list[float] = []

    def gradient(x: np.ndarray, i: int) -> np.ndarray:
        found = regression_gradient(lambda error: error, x, features[i], float(labels[i]))
        lengths.append(float(np.linalg.norm(found)))
        return found

    fresh = random_streams(SEED)
    theirs = TRANSCRIPTIONS[name](
        Drawn(
            plan,
            start=some.initial(fresh.initialisation),
            gradient=gradient,
            batches=[batch.tolist() for batch in streams.drawn.batches],
            noises=streams.drawn.noises,
            order=np.random.Generator(fresh.sampling).permutation(plan.dataset_size).tolist(),
            chosen=int(np.random.Generator(fresh.release).integers(plan.iterations)),
            # Trees sum in float64 whatever the dtype of the records.
            margin=margin(dtype if isinstance(plan.phases[0], Phase) else "float64"),
        )
    )
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    for key, value in some.parameters(theirs).items():
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance)
    assert np.linalg.norm(theirs) > 0.0
    if name != "dp_nsgd":
        assert min(lengths) < 0.8 < max(lengths), "some records are clipped and some are not"


@every_gradient_plan
def test_the_noise_is_normal_at_the_planned_scale(name: str, plan: Plan) -> None:
    """Records of zeros have no gradient, so that what a step adds is noise alone: Kolmogorov and Smirnov find none."""
    width = 10_000
    bare = replace(plan, domain=None, penalty=None, release=LAST_ITERATE)
    [phase] = bare.phases
    assert isinstance(phase, Phase)
    trainer = trainer_of(bare, random_streams(SEED), np.zeros((plan.dataset_size, width)), np.zeros(plan.dataset_size))
    before, noises = np.zeros(width), []
    for index in range(3):
        trainer.step()
        after = np.asarray(trainer.state()["point"])
        noises.append((before - after) * phase.divisor / phase.step_size_at(index))
        before = after
    trainer.close()
    for noise in (*noises, np.concatenate(noises)):
        assert stats.kstest(noise / phase.noise_stddev_on_sum, "norm").pvalue > 1e-3
    # Steps are independent: their sample correlations have a standard deviation of 1 / sqrt(width).
    correlations = np.corrcoef(noises)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(width)


@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_a_selection_has_the_law_of_gumbel_noise_at_the_planned_scale(scale: float) -> None:
    """The vertex +-D e_i of score <u, g> is selected with probability proportional to exp(-<u, g> / lambda)."""
    for name in ALGORITHMS:
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


@every_own_plan
def test_other_noise_is_another_model(name: str, plan: Plan) -> None:
    """Else the comparison with the transcription would not see the noise."""
    loud, silent = RecordingStreams(SEED), RecordingStreams(SEED, noise_factor=0.0, gumbel=quiet(plan))
    some = [run(plan, model(), *records_of(plan), streams=streams).parameters["weights"] for streams in (loud, silent)]
    assert not np.allclose(*some)


def quiet(plan: Plan) -> list[np.ndarray]:
    return [np.zeros(2 * FEATURES) for _ in range(plan.iterations)]
