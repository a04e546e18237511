"""A run carries out its plan, and shows nothing of a row but the model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import DisjointBatches, Event, Gaussian, WithoutReplacement, WithReplacement, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Clip, Normalize, Phase, Plan
from calibrators.release import RandomIterate
from calibrators.spec import default_capacity
from tests.trainer.given import GivenStreams
from tests.trainer.plans import BOUNDS, phase_of, plan_of
from trainer.grid import grid_for
from trainer.models import Model, MultilayerPerceptron, build, logistic_regression, softmax_regression
from trainer.run import RunCancelled, RunResult, rows_per_step, run

ALGORITHMS = ["dp_sgd", "dp_nsgd"]
MODEL = softmax_regression(3, 3)
MODELS: list[Model] = [
    MODEL,
    logistic_regression(3, fit_intercept=False),
    MultilayerPerceptron(3, 3, hidden=(5,)),
    build(3, kind="huber_regression"),
    build(3, kind="q_norm_hinge"),
]


def data(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    return rng.normal(size=(rows, 3)), rng.integers(0, 3, rows)


def plan(algorithm: str, dtype: str = "float64", **changes: Any) -> Plan:
    phase = phase_of(BOUNDS[algorithm], **{"probability": 0.4, "steps": 7} | changes)
    return replace(plan_of(algorithm, phase, size=12), dtype=dtype)


@contextmanager
def watched() -> Iterator[list[logging.LogRecord]]:
    """Warnings and floating-point flags raise; log records are collected."""
    records: list[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    collector = Collector(0)
    logging.getLogger().addHandler(collector)
    try:
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            yield records
    finally:
        logging.getLogger().removeHandler(collector)


def visible(features: Any, labels: Any, model: Model, algorithm: str, dtype: str) -> tuple[object, ...]:
    """Everything a run shows, but for the numbers in the model."""
    progress: list[tuple[int, int]] = []
    with watched() as records:
        result = run(
            plan(algorithm, dtype=dtype),
            model,
            features,
            labels,
            seed=3,
            capacity=400,
            on_progress=lambda done, total: progress.append((done, total)),
        )
    shapes = [(name, value.shape, value.dtype) for name, value in result.parameters.items()]
    return progress, result.steps, shapes, all(np.all(np.isfinite(v)) for v in result.parameters.values()), records


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.one_in(20)
def test_rows_show_only_in_the_model(algorithm: str, model: Model, dtype: str) -> None:
    features, labels = data()
    expected = visible(features, labels, model, algorithm, dtype)
    assert expected[3:] == (True, [])
    for value in (np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 9e99, 9e17, 1e39, 5e-324, 0.0):
        changed = features.copy()
        changed[5] = value
        assert visible(changed, labels, model, algorithm, dtype) == expected
        changed[:] = value
        assert visible(changed, labels, model, algorithm, dtype) == expected
    for label in (0, 2, 17, -1):
        assert visible(features, np.where(np.arange(12) == 5, label, labels), model, algorithm, dtype) == expected
        assert visible(features, np.full(12, label), model, algorithm, dtype) == expected
    assert visible(features, np.where(np.arange(12) == 5, np.nan, labels), model, algorithm, dtype) == expected
    for rows in (0, 1, 11, 13, 400):
        assert visible(*data(rows), model, algorithm, dtype) == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_number_of_rows_is_no_divisor(algorithm: str) -> None:
    """Rows that contribute nothing leave a full-batch run as it was, however many there are."""
    features, labels = data()
    full = plan(algorithm, probability=None)
    padded = np.vstack([features, np.full((50, 3), np.nan)])
    result = run(full, MODEL, features, labels, seed=1, capacity=62)
    again = run(full, MODEL, padded, np.append(labels, np.zeros(50, dtype=int)), seed=1, capacity=62)
    assert flat(again) == flat(result)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_rows_release_the_noise_alone(algorithm: str) -> None:
    """The sum of the steps' noise, at the plan's scale: step size / divisor * stddev * sqrt(steps)."""
    large = softmax_regression(400, 5)
    result = run(plan(algorithm, noise_multiplier=2.0), large, np.empty((0, 400)), np.empty(0), seed=4)
    spread = float(np.std(np.concatenate([value.ravel() for value in result.parameters.values()])))
    assert spread == pytest.approx(0.5 / 4 * 2.0 * np.sqrt(7), rel=0.06)


def test_what_was_charged_is_what_runs() -> None:
    """Two phases that differ in everything, against the same two phases carried out by hand."""
    from tests.transcriptions.dp_nsgd import trajectory
    from tests.transcriptions.models import softmax_gradient
    from trainer.samplers import PoissonSampler
    from trainer.streams import random_streams

    features, labels = data(30)
    first = phase_of(Normalize(0.2), noise_multiplier=0.5, probability=0.3, steps=4, divisor=9, step_size=0.7)
    second = phase_of(Normalize(3.0), noise_multiplier=2.0, probability=None, steps=3, divisor=30, step_size=0.2)
    result = run(plan_of("dp_nsgd", first, second, size=30), MODEL, features, labels, seed=6)
    streams = random_streams(6)
    capacity = default_capacity(30)
    positions = streams.slots.generator().permutation(capacity)
    places = np.append(np.argsort(positions), capacity)
    sampler, noise = PoissonSampler(capacity, 0.3, 4, streams.sampling), streams.gaussian_noise()
    grids = {phase: grid_for(phase.noise_stddev_on_sum, 12, "float64", capacity) for phase in (first, second)}
    augmented = np.hstack([features, np.ones((30, 1))])
    point = np.zeros(12)
    for phase in (first, second):
        batches = [places[sampler.draw()] if phase is first else np.arange(30) for _ in range(phase.event.count)]
        grid = grids[phase]
        assert isinstance(phase.gradient_bound, Normalize)
        point = trajectory(
            point,
            lambda x, i: softmax_gradient(x, augmented[i], int(labels[i]), 3),
            [batch[batch < 30].tolist() for batch in batches],
            [noise.rounded(12, grid.scale) / grid.scale for _ in batches],
            eta=phase.step_size_at(0),
            r=phase.gradient_bound.regularizer,
            sigma=0.5 if phase is first else 2.0,
            B=phase.divisor,
        )[-1]
    noise.close()
    assert result.steps == 7
    np.testing.assert_allclose(result.parameters["weights"].reshape(-1), point[:9], atol=1e-5)
    np.testing.assert_allclose(result.parameters["bias"], point[9:], atol=1e-5)


def test_schedules_give_each_step_its_size() -> None:
    """Without rows a step moves by its size over the divisor, times the noise."""
    phase = Phase(Event(Gaussian(2.0), count=3), Clip(0.5), 4, (0.1, 0.2, 0.4))
    noises = [np.full(12, value) for value in (1.0, 10.0, 100.0)]
    result = run(plan_of("dp_sgd", phase), MODEL, np.empty((0, 3)), np.empty(0), streams=GivenStreams(noises))
    expected = -(0.1 * 1.0 + 0.2 * 10.0 + 0.4 * 100.0) / 4 * 2.0 * 0.5
    np.testing.assert_allclose(result.parameters["weights"], expected, rtol=1e-6)


def test_phases_are_carried_out_in_their_order() -> None:
    phases = [Phase(Event(Gaussian(2.0)), Clip(0.5), 4, size) for size in (0.1, 0.2, 0.4)]
    noises = [np.full(12, value) for value in (1.0, 10.0, 100.0)]
    result = run(plan_of("dp_sgd", *phases), MODEL, np.empty((0, 3)), np.empty(0), streams=GivenStreams(noises))
    expected = -(0.1 * 1.0 + 0.2 * 10.0 + 0.4 * 100.0) / 4 * 2.0 * 0.5
    np.testing.assert_allclose(result.parameters["weights"], expected, rtol=1e-6)


def test_a_later_phase_that_cannot_be_drawn_is_refused_before_the_first_step() -> None:
    first = Phase(Event(Gaussian(2.0)), Clip(0.5), 4, 0.1)
    second = Phase(Event(Gaussian(2.0), DisjointBatches("by_position"), count=3), Clip(0.5), 4, 0.1)
    plan = Plan("dp_sgd", 8, NeighboringRelation.REPLACE_ONE, (first, second))
    # Without noise to draw, a first step would fail otherwise.
    with pytest.raises(InvalidValue, match="3 disjoint batches of 4 need 12 records; dataset_size is 8"):
        run(plan, MODEL, np.empty((0, 3)), np.empty(0), streams=GivenStreams([]))


def flat(result: RunResult) -> list[float]:
    return [float(x) for value in result.parameters.values() for x in value.ravel()]


def test_points_stay_in_the_domain_and_the_first_one_is_there() -> None:
    plan_in = Plan(
        "dp_sgd",
        8,
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        (phase_of(Clip(1.0), steps=20),),
        domain=L2Ball(0.01),
        release=RandomIterate(),
    )
    network = MultilayerPerceptron(3, 3, hidden=(5,))
    for seed in range(20):
        assert np.linalg.norm(flat(run(plan_in, network, *data(8), seed=seed))) <= 0.01 + 1e-15


def test_seeded_runs_repeat() -> None:
    runs = [flat(run(plan("dp_sgd"), MODEL, *data(), seed=seed)) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_unseeded_runs_differ() -> None:
    runs = [flat(run(plan("dp_sgd"), MODEL, *data())) for _ in range(3)]
    assert len({x for values in runs for x in values}) == 3 * MODEL.num_parameters


def progress_of(some: Plan) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    run(some, MODEL, *data(), on_progress=lambda done, total: told.append((done, total)))
    return told


def test_progress_counts_the_plans_steps() -> None:
    for steps in (1, 7, 123):
        assert progress_of(plan("dp_nsgd", steps=steps)) == [(done, steps) for done in range(steps + 1)]


def test_a_cancelled_run_releases_nothing() -> None:
    answers = iter([False, False, False, True])
    with pytest.raises(RunCancelled) as stopped:
        run(plan("dp_sgd"), MODEL, *data(), is_cancelled=lambda: next(answers))
    assert stopped.value.steps == 3


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("probability", [0.4, None])
def test_any_array_library_gives_the_same_run(
    algorithm: str, model: Model, dtype: str, probability: float | None
) -> None:
    features, labels = data()
    features[2] = np.nan
    features[3, 1] = 1e16  # of which a float32 perceptron overflows, and a hinge
    some = plan(algorithm, dtype, probability=probability)
    expected = run(some, model, features, labels, seed=2)
    strict = run(
        some,
        model,
        array_api_strict.asarray(features),
        array_api_strict.asarray(labels),
        seed=2,
    )
    for name, value in expected.parameters.items():
        assert type(strict.parameters[name]) is np.ndarray
        np.testing.assert_allclose(strict.parameters[name], value, rtol=1e-12 if dtype == "float64" else 1e-5)


def test_float32_and_float64_agree_but_for_the_margin() -> None:
    wide, narrow = (flat(run(plan("dp_nsgd", d), MODEL, *data(), seed=2)) for d in ("float64", "float32"))
    np.testing.assert_allclose(narrow, wide, rtol=1e-3, atol=1e-3)
    assert narrow != wide


def sampled(sampling: Any, divisor: int = 10) -> Plan:
    phase = Phase(Event(Gaussian(1.0), sampling, count=2), Clip(1.0), divisor, 0.5)
    return plan_of("dp_sgd", phase, size=100)


def test_the_rows_of_a_step_are_those_of_the_declared_size() -> None:
    assert rows_per_step(plan("dp_sgd", probability=None)) == 12
    assert rows_per_step(plan("dp_sgd")) == pytest.approx(0.4 * 12)
    assert rows_per_step(sampled(WithoutReplacement(10, 100))) == 10
    assert rows_per_step(sampled(DisjointBatches("independent"))) == 10
    mixed = plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.1), phase_of(Clip(1.0), probability=0.3), size=1000)
    assert rows_per_step(mixed) == pytest.approx(300)


REPLACED = Phase(Event(Gaussian(1.0), WithReplacement(4, 12), count=2), Clip(1.0), 4, 0.5)
TREES = TreePhase(Event(ZcDp(0.1)), 1, 4, (1.0,), 1.0, 1.0)


@pytest.mark.parametrize(
    ("broken", "error", "complaint"),
    [
        (plan_of("dp_nothing", phase_of(Clip(1.0))), Unsupported, "dp_nsgd"),
        (plan_of("dp_sgd", phase_of(Clip(1.0)), phase_of(Clip(1.0), step_size=None)), InvalidValue, "step_size"),
        (plan_of("dp_sgd", phase_of(Normalize(1.0))), InvalidValue, "by clip, not by normalize"),
        (plan_of("dp_nsgd", phase_of(Normalize(1.0)), phase_of(Clip(1.0))), InvalidValue, "by normalize, not by clip"),
        (plan_of("dp_sgd", phase_of(Clip(1e-200))), InvalidValue, "rescale the features"),
        (plan_of("dp_sgd", phase_of(Clip(1.0)), TREES), InvalidValue, "phases are noisy gradient steps"),
        (sampled(WithReplacement(10, 100)), Unsupported, "no sampler for with_replacement"),
        (sampled(DisjointBatches("by_position"), divisor=51), InvalidValue, "need 102 records"),
        (plan_of("dp_sgd", phase_of(Clip(1.0)), REPLACED), Unsupported, "no sampler for with_replacement"),
    ],
)
def test_plans_that_cannot_be_carried_out_are_refused(
    broken: Plan, error: type[AccountingError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint) as refusal:
        run(broken, MODEL, *data(8))
    assert refusal.value.pointer


def test_thresholds_that_float32_cannot_keep_are_refused_in_float32() -> None:
    small = plan_of("dp_sgd", phase_of(Clip(1e-13)), size=12)
    assert run(small, MODEL, *data()).steps == 3
    with pytest.raises(InvalidValue, match="at least 1e-12 to be kept in float32"):
        run(replace(small, dtype="float32"), MODEL, *data())
    with pytest.raises(InvalidValue, match="float64 or float32"):
        replace(small, dtype="float16")


def test_slots_are_no_fewer_than_declared_records_or_rows() -> None:
    with pytest.raises(InvalidValue, match="at least the declared size 12"):
        run(plan("dp_sgd"), MODEL, *data(), capacity=11)
    with pytest.raises(InvalidValue, match="more rows than the 20 slots"):
        run(plan("dp_sgd"), MODEL, *data(21))
