"""Statistics of whole runs: the noise has the planned law, and an audit that would see a leak sees none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calibrators.plan import Clip, Normalize, Phase
from tests.statistical.audit import epsilon_lower_bound, gaussian_epsilon, mu_lower_bound
from tests.trainer.plans import phase_of, plan_of
from trainer.algorithms import ALGORITHMS, dp_sgd
from trainer.arrays import Array
from trainer.gradients import Batch, SelectedBatch
from trainer.loop import Update
from trainer.models import LogisticRegression
from trainer.noise import GaussianNoise, random_streams
from trainer.records import prepare
from trainer.run import run

DELTA = 1e-5
MU = 1.0
BOUNDS: dict[str, Clip | Normalize] = {"dp_sgd": Clip(2.5), "dp_nsgd": Normalize(1e-6)}


@pytest.mark.parametrize("bound", [Clip(2.5), Clip(0.01), Normalize(0.01), Normalize(30.0)])
def test_noise_has_the_planned_scale(bound: Clip | Normalize) -> None:
    """No rows, so a step is noise: on the sum, sigma times C for a clip and sigma for a normalisation, whatever r."""
    name = "dp_sgd" if isinstance(bound, Clip) else "dp_nsgd"
    phase = phase_of(bound, noise_multiplier=1.7, probability=0.2, steps=4, divisor=20, step_size=0.3)
    model = LogisticRegression(50_000, fit_intercept=False)
    released = run(plan_of(name, phase), model, np.empty((0, 50_000)), np.empty(0), seed=43).parameters["weights"]
    contribution = bound.max_grad_norm if isinstance(bound, Clip) else 1.0
    expected = 0.3 / 20 * 1.7 * contribution * 2.0
    assert stats.kstest(released / expected, "norm").pvalue > 1e-3
    assert stats.kstest(released / expected * 1.05, "norm").pvalue < 1e-3


def canaries(algorithm: str, trials: int, noise_multiplier: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of records that took part in a run of one full-batch step, and of records that did not.

    Each record's gradient is long and has a coordinate to itself, so the records of one run are independent trials of
    the tight case: N(1, noise_multiplier^2) against N(0, noise_multiplier^2) in units of the contribution bound.
    """
    width, rng = 1000, np.random.default_rng(seed)
    bound = BOUNDS[algorithm]
    phase = phase_of(bound, noise_multiplier=noise_multiplier, steps=1, divisor=8, step_size=0.25)
    model = LogisticRegression(width, fit_intercept=False)
    members, others = [], []
    for index in range(-(-2 * trials // width)):
        taking_part = rng.permutation(width) < width // 2
        rows = 1000.0 * np.eye(width)[taking_part]
        result = run(plan_of(algorithm, phase), model, rows, np.ones(len(rows)), seed=seed + index)
        scores = result.parameters["weights"] * 8 / 0.25 / bound.contribution_bound
        members.append(scores[taking_part])
        others.append(scores[~taking_part])
    return np.concatenate(members), np.concatenate(others)


@pytest.mark.parametrize("algorithm", ["dp_sgd", "dp_nsgd"])
def test_audit_stays_under_the_claim_and_has_power(algorithm: str) -> None:
    members, others = canaries(algorithm, 100_000, 1.0 / MU, seed=47)
    claim = gaussian_epsilon(MU, DELTA)
    proved = epsilon_lower_bound(members, others, threshold=3.4, delta=DELTA)
    assert 0.6 * claim <= proved <= claim
    assert 0.95 * MU <= mu_lower_bound(members, others, threshold=0.5) <= MU


@pytest.mark.parametrize("algorithm", ["dp_sgd", "dp_nsgd"])
def test_audit_catches_halved_noise(algorithm: str) -> None:
    members, others = canaries(algorithm, 20_000, 0.5 / MU, seed=53)
    assert epsilon_lower_bound(members, others, threshold=1.8, delta=DELTA) > gaussian_epsilon(MU, DELTA)
    assert mu_lower_bound(members, others, threshold=0.5) > MU


def clip_after_summation(point: Array, batch: Batch, phase: Phase, standard_noise: Array) -> Array:
    """What must not be done: the sum of raw gradients, scaled down to the threshold as a whole."""
    assert isinstance(phase.gradient_bound, Clip)
    assert phase.step_size is not None
    total = batch.bounded_sum(lambda norms, scales: scales)
    total = total * min(1.0, phase.gradient_bound.max_grad_norm / float(np.linalg.norm(total)))
    return point - phase.step_size / phase.divisor * (total + phase.noise_stddev_on_sum * standard_noise)


def opposed(update: Update, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of steps with and without a record that outweighs, and opposes, the only other one."""
    phase = phase_of(Clip(1.0), noise_multiplier=1.0 / MU, steps=1, divisor=1, step_size=1.0)
    model, noise = LogisticRegression(1, fit_intercept=False), GaussianNoise(random_streams(seed).noise)
    worlds = []
    for rows in (np.array([[-10.0], [1000.0]]), np.array([[-10.0]])):
        records = prepare(model, rows, np.ones(len(rows)), "float64")
        batch = SelectedBatch(model, records, slice(0, len(rows)), model.initial())
        steps = [update(model.initial(), batch, phase, noise.standard_normal((1, 1))) for _ in range(trials)]
        worlds.append(np.array(steps).ravel())
    return worlds[0], worlds[1]


def test_audit_catches_clipping_after_summation() -> None:
    members, others = opposed(clip_after_summation, 4000, seed=59)
    assert mu_lower_bound(members, others, threshold=0.0) > 1.5 * MU
    members, others = opposed(dp_sgd.update, 4000, seed=59)
    assert mu_lower_bound(members, others, threshold=-0.5) <= MU


def test_every_algorithm_is_audited() -> None:
    assert set(BOUNDS) == set(ALGORITHMS)
