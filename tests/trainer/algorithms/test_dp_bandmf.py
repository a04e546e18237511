"""DP-BandMF: what leaves is C applied to the sums with noise, solved; momentum; every step of two cycles resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.events import FixedOrderEpochs, Sampling
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball
from calibrators.matrix_factorisation.bands import memory_of
from calibrators.plan import Clip, CorrelatedSteps, GradientBound, Plan
from calibrators.spec import default_capacity
from tests.trainer.given import trainer_of
from tests.trainer.plans import correlated_of, phase_of, plan_of
from tests.transcriptions import dp_bandmf as reference
from trainer.algorithms import EXECUTIONS
from trainer.algorithms.dp_bandmf import Momentum
from trainer.checkpoint import Binding, Checkpoints, pack, unpack
from trainer.exact import correlated
from trainer.exact.correlated import CorrelatedNoise, Recursion
from trainer.exact.gaussian import RoundedGaussian
from trainer.execution import Proposal
from trainer.grid import Grid
from trainer.loop import Step
from trainer.models import LinearModel, Model, MultilayerPerceptron, build, logistic_regression, softmax_regression
from trainer.records import Selection
from trainer.run import first_checkpoint, run
from trainer.streams import random_streams
from trainer.sums import BoundedSum

C = (0.625, 0.5, 0.375, 0.25)
STEPS = 11
FEATURES, ROWS = 5, 40
FIXED = FixedOrderEpochs(len(C))


def plan(sampling: Sampling | None = None, **changes: Any) -> Plan:
    phase = correlated_of(*C, sampling=sampling, steps=STEPS, noise_multiplier=1.3, **changes)
    return replace(plan_of("dp_bandmf", phase, size=ROWS), neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)


def data(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, FEATURES)), rng.integers(0, classes, ROWS).astype(np.float64)


@dataclass
class Watched:
    """The sum in whole steps, the normal numbers and the noisy sum of each step, all before the unit is applied."""

    sums: list[np.ndarray] = field(default_factory=list)
    normals: list[np.ndarray] = field(default_factory=list)
    noisy: list[np.ndarray] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)


@contextmanager
def watched() -> Iterator[Watched]:
    seen = Watched()
    honest_sum, honest_noise, honest_noised = BoundedSum.at, RoundedGaussian.rounded, Grid.noised

    def at(sums: BoundedSum, point: Any, slots: Selection, bound: GradientBound, grid: Grid) -> Any:
        found = honest_sum(sums, point, slots, bound, grid)
        seen.sums.append(np.array(found))
        seen.grids.append(grid)
        return found

    def rounded(noise: RoundedGaussian, size: int, scale: float) -> Any:
        found = honest_noise(noise, size, scale)
        seen.normals.append(found.copy())
        return found

    def noised(grid: Grid, integers: Any, noise: Any, unit: float) -> Any:
        found = honest_noised(grid, integers, noise, unit)
        seen.noisy.append(np.array(found) / (unit * grid.step))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedSum, "at", at)
        patch.setattr(RoundedGaussian, "rounded", rounded)
        patch.setattr(Grid, "noised", noised)
        yield seen


def applied(vectors: list[np.ndarray], whole: tuple[int, ...]) -> np.ndarray:
    """C in whole numbers, applied to the vectors of all steps: exact, in Python's integers."""
    rows = [[int(value) for value in vector] for vector in vectors]
    found = [
        [sum(n * rows[step - back][place] for back, n in enumerate(whole) if back <= step) for place in range(len(row))]
        for step, row in enumerate(rows)
    ]
    return np.array(found, dtype=object)


@pytest.mark.parametrize("sampling", [None, FIXED])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_c_applied_to_what_leaves_is_what_the_proof_covers(sampling: Sampling | None, dtype: str) -> None:
    """C q + R exactly, but for the rounding of what leaves to the grid of the sums: half of n_0."""
    some = replace(plan(sampling), dtype=dtype)
    [phase] = some.phases
    assert isinstance(phase, CorrelatedSteps)
    with watched() as seen:
        run(some, logistic_regression(FEATURES), *data(), seed=1)
    assert any(np.any(total) for total in seen.sums)
    covered = applied(seen.sums, phase.whole_coefficients)
    covered += np.array([[int(value) for value in row] for row in seen.normals], dtype=object)
    left = applied(seen.noisy, phase.whole_coefficients) - covered
    assert np.abs(left).max() * 2 <= phase.whole_coefficients[0]


def test_of_null_records_c_applied_to_the_noisy_sums_is_the_independent_noise() -> None:
    """At the planned scale: its standard deviation is the noise multiplier over the grid, and 2^m finer."""
    some = plan()
    [phase] = some.phases
    assert isinstance(phase, CorrelatedSteps)
    width = 4000
    with watched() as seen:
        run(
            some,
            LinearModel(build(1, kind="linear_regression").loss, width, fit_intercept=False),
            np.zeros((ROWS, width)),
            np.zeros(ROWS),
            seed=1,
        )
    assert not np.any(seen.sums)
    whitened = applied(seen.noisy, phase.whole_coefficients).astype(np.float64)
    np.testing.assert_allclose(whitened, np.stack(seen.normals), atol=phase.whole_coefficients[0] / 2)
    unit = seen.grids[0].step * 2.0**-phase.coefficient_bits
    assert whitened.std() * unit == pytest.approx(1.3, rel=5 / np.sqrt(2 * whitened.size))
    between = np.corrcoef(whitened)[np.triu_indices(STEPS, 1)]
    assert np.abs(between).max() < 4.5 / np.sqrt(width)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_step_is_the_transcriptions(momentum: float) -> None:
    """A dense C solved at once, with the same sums and normal numbers: equal to 1e-12."""
    some = plan(momentum=momentum, step_size=tuple(0.3 - 0.01 * t for t in range(STEPS)))
    [phase] = some.phases
    assert isinstance(phase, CorrelatedSteps)
    model = logistic_regression(FEATURES)
    streams = random_streams(4)
    trainer = trainer_of(some, model, *data(), streams)
    start, path = np.array(trainer.point), []  # type: ignore[attr-defined]
    with watched() as seen:
        for _ in range(STEPS):
            trainer.step()
            path.append(np.array(trainer.point))  # type: ignore[attr-defined]
    trainer.close()
    grid, unit = seen.grids[0], seen.grids[0].step * 1.0
    # What is rounded to the grid of the sums counts as noise: less than half of n_0, as another test sees.
    noise = [noisy - total for noisy, total in zip(seen.noisy, seen.sums, strict=True)]
    dense = applied(noise, phase.whole_coefficients).astype(np.float64)
    assert np.abs(dense - np.stack(seen.normals)).max() <= phase.whole_coefficients[0] / 2
    z = [row * 2.0**-phase.coefficient_bits * unit for row in dense]
    expected = reference.descent(
        start,
        lambda _, t: seen.sums[t] * grid.step,
        reference.correlated(C, z),
        eta=[phase.step_size_at(t) for t in range(STEPS)],
        beta=momentum,
        B=phase.divisor,
    )
    np.testing.assert_allclose(path, expected, rtol=1e-12, atol=1e-12)


def test_momentum_is_a_fading_sum_of_means() -> None:
    """By hand: means 2, 1, 0 with momentum 1/2 and step size 0.1 lead from 1 to 0.8, 0.6 and 0.5."""
    given = [np.array([8.0]), np.array([4.0]), np.array([0.0])]
    moving = Momentum(0.5, np.array([1.0]))
    found = []
    for total in given:
        moving.advance(Step(total, 4, 0.1))
        found.append(float(moving.point[0]))
    np.testing.assert_allclose(found, [0.8, 0.6, 0.5], rtol=1e-15)


MODELS: list[Model] = [
    logistic_regression(FEATURES),
    softmax_regression(FEATURES, 3),
    MultilayerPerceptron(FEATURES, 3, hidden=(4,)),
    build(FEATURES, kind="quantile_regression"),
]


def kept(saved: list[bytes], resume: bytes | None = None) -> Checkpoints:
    return Checkpoints(saved.append, lambda done: True, "tag", "1", resume)


def numbers(result: Any) -> list[float]:
    return [float(value) for part in result.parameters.values() for value in np.ravel(part)]


@pytest.mark.parametrize("sampling", [None, FIXED])
@pytest.mark.parametrize("number", range(len(MODELS)))
def test_a_run_goes_on_from_every_step_bit_by_bit(sampling: Sampling | None, number: int) -> None:
    """Of two cycles and more: the noise that is kept, the groups and the momentum are all in the checkpoint."""
    some, model = plan(sampling), MODELS[number]
    assert 2 * len(C) < STEPS
    rows = data(max(model.num_classes, 2))
    first = first_checkpoint(Binding(some.plan_hash, "tag", "1"))
    saved: list[bytes] = []
    whole = run(some, model, *rows, checkpoint=kept(saved, first))
    assert len(saved) >= STEPS - 1
    for checkpoint in (first, *saved):
        assert numbers(run(some, model, *rows, checkpoint=kept([], checkpoint))) == numbers(whole)


@pytest.mark.parametrize(("part", "name", "words"), [("noise", "kept", "noise"), ("sampler", "turn_of", "groups")])
def test_a_checkpoint_without_the_noise_or_the_groups_is_refused(part: str, name: str, words: str) -> None:
    some, saved = plan(), list[bytes]()
    run(some, MODELS[0], *data(), checkpoint=kept(saved))
    binding = Binding(some.plan_hash, "tag", "1")
    state = unpack(binding, saved[5])
    del state["trainer"][part][name]
    with pytest.raises(InvalidValue, match=f"lacks the {words}") as caught:
        run(some, MODELS[0], *data(), checkpoint=kept([], pack(binding, state)))
    assert caught.value.code == "checkpoint_refused"


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_any_array_library_gives_the_same_run(number: int) -> None:
    model, some = MODELS[number], plan()
    features, labels = data(max(model.num_classes, 2))
    ours = run(some, model, features, labels, seed=2)
    strict = run(some, model, array_api_strict.asarray(features), array_api_strict.asarray(labels), seed=2)
    np.testing.assert_allclose(numbers(strict), numbers(ours), rtol=1e-11, atol=1e-9)


def test_phases_have_noise_and_groups_of_their_own() -> None:
    """A second phase is another stream of noise, which is charged apart, and goes on with the momentum."""
    [phase] = plan().phases
    twice = replace(plan(), phases=(phase, replace(phase, step_size=0.1)))
    with watched() as seen:
        result = run(twice, MODELS[0], *data(), seed=1)
    assert result.steps == 2 * STEPS
    assert isinstance(phase, CorrelatedSteps)
    for part in (slice(0, STEPS), slice(STEPS, 2 * STEPS)):
        noise = [noisy - total for noisy, total in zip(seen.noisy[part], seen.sums[part], strict=True)]
        left = applied(noise, phase.whole_coefficients).astype(np.float64) - np.stack(seen.normals[part])
        assert np.abs(left).max() <= phase.whole_coefficients[0] / 2


def test_a_domain_keeps_points() -> None:
    bounded = run(replace(plan(step_size=5.0), domain=L2Ball(0.25)), MODELS[0], *data(), seed=1)
    assert np.linalg.norm(numbers(bounded)) <= 0.25 * (1 + 1e-12)


def test_plans_that_are_not_its_own_are_refused() -> None:
    [phase] = plan().phases
    for wrong, words in (
        (plan_of("dp_bandmf", phase_of(Clip(1.0)), size=ROWS), "phases are noisy gradient steps with correlated noise"),
        (replace(plan(), algorithm="dp_sgd"), "phases are noisy gradient steps"),
        (replace(plan(), phases=(phase, replace(phase, momentum=0.25))), "must have the same momentum"),
    ):
        with pytest.raises(InvalidValue, match=words):
            run(wrong, MODELS[0], *data(), seed=1)


def test_the_memory_that_an_answer_tells_is_what_is_kept() -> None:
    for bands, dimension in ((1, 7), (4, 100)):
        recursion = Recursion(tuple(range(bands, 0, -1)), 2)
        noise = CorrelatedNoise(random_streams(1).gaussian_noise(), recursion, dimension)
        assert noise.state()["kept"].nbytes == memory_of(bands, dimension)


def test_noise_that_takes_too_much_memory_is_refused_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proposal = Proposal(plan(), MODELS[0], default_capacity(ROWS))
    EXECUTIONS["dp_bandmf"].check(proposal)
    monkeypatch.setattr(correlated, "MOST_KEPT", 3 * MODELS[0].num_parameters - 1)
    for refused in (lambda: EXECUTIONS["dp_bandmf"].check(proposal), lambda: run(plan(), MODELS[0], *data(), seed=1)):
        with pytest.raises(InvalidValue, match="use at most 3 bands"):
            refused()
