"""DP-SVRG audited: what a likelihood ratio of many real steps attains, beside what they are charged.

A record's gradient is as long as the clip and turns round between the point and the snapshot, so that in the mean of a
direction its gradient at the snapshot cancels while it shows in the batch. That is the case which the joint bound of
both parts is about (`calibrators.wang_erm.inner_steps`). The points stay: an analyst may lead the steps anywhere.
"""

from __future__ import annotations

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import Event
from accounting.relations import NeighboringRelation
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from calibrators.plan import Plan
from calibrators.wang_erm.inner_steps import InnerSteps
from tests.trainer import given
from trainer.algorithms.dp_svrg import Svrg
from trainer.audit.bounds import epsilon_from_rates
from trainer.gradients import Layer, OuterProducts
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.records import Block
from trainer.streams import random_streams

RELATION = NeighboringRelation.REPLACE_ONE
#: Records, a batch, and steps; the noise on the mean, where no gradient is longer than 1.
N, B, STEPS, SIGMA = 4, 3, 32, 8.0 / 3.0
DELTA, CONFIDENCE = 0.05, 0.95
#: Gradients at the point, and minus those at the snapshot, of all records; of the first, in either data set.
OTHERS, WITH, WITHOUT = -1.0, 1.0, -1.0


class TurnsRound(LinearModel):
    """The loss of a record is its label times |w|: its gradient is as long everywhere, and turns round at 0."""

    def gradients(self, point: np.ndarray, block: Block) -> OuterProducts:
        slopes = (np.sign(point[0]) * block.labels)[:, None].astype(block.features.dtype)
        return OuterProducts(block.xp, (Layer(block.features, slopes, False, block.squares),))


def event(noise_stddev_on_mean: float, steps: int) -> Event:
    return InnerSteps(N, steps, RELATION)(noise_stddev_on_mean * B / 2.0, 1, B)


def directions(first: float, runs: int, sigma: float, seed: int) -> np.ndarray:
    """The noisy directions of so many runs of the trainer, shape (runs, STEPS)."""
    phase = VarianceReducedEpochs(event(sigma, runs * STEPS), (runs * STEPS,), B, 1.0, sigma, 0.1)
    labels = np.array([first, *[OTHERS] * (N - 1)])
    plan = Plan("dp_svrg", N, RELATION, (phase,))
    model = TurnsRound(Squared(), 1, fit_intercept=False)
    trainer = given.trainer_of(plan, model, np.ones((N, 1)), labels, random_streams(seed))
    vars(trainer).update(_point=np.array([1.0]), _snapshot=np.array([-1.0]), _within=1)

    assert isinstance(trainer, Svrg)
    sampler = vars(trainer)["_sampler"]
    found = np.array([float(trainer._noisy_direction(sampler.draw())[0]) for _ in range(runs * STEPS)])
    trainer.close()
    return found.reshape(runs, STEPS)


def log_density(values: np.ndarray, first: float, sigma: float) -> np.ndarray:
    """Of a direction where the first record has these gradients, up to a constant: its batch is secret."""
    q, full = B / N, -(first + (N - 1) * OTHERS) / N
    absent, present = 2.0 * OTHERS + full, (2.0 * first + (B - 1) * 2.0 * OTHERS) / B + full
    found: np.ndarray = np.logaddexp(
        np.log(1.0 - q) - ((values - absent) / sigma) ** 2 / 2.0, np.log(q) - ((values - present) / sigma) ** 2 / 2.0
    )
    return found


def attained(runs: int, sigma: float, threshold: float) -> float:
    """No epsilon below this is true of the steps: above the threshold a log-ratio is taken for that of the record."""
    said = []
    for seed, first in enumerate((WITH, WITHOUT)):
        values = directions(first, runs, sigma, seed)
        ratios = np.sum(log_density(values, WITH, sigma) - log_density(values, WITHOUT, sigma), axis=1)
        said.append(int(np.count_nonzero(ratios > threshold)))
    return epsilon_from_rates(said[0], runs, said[1], runs, DELTA, CONFIDENCE)


def charged() -> float:
    return epsilon_for_delta([event(SIGMA, STEPS)], RELATION, DELTA).value.upper


@pytest.mark.thorough
def test_real_steps_attain_less_than_they_are_charged_and_not_far_less() -> None:
    """500 runs with the record and 500 with another one in its place."""
    found = attained(500, SIGMA, threshold=1.3)
    assert 0.3 * charged() < found < charged()


@pytest.mark.thorough
def test_half_of_the_noise_that_is_charged_is_caught() -> None:
    """The same audit, with steps whose noise is half of what the charge says."""
    assert attained(500, 0.5 * SIGMA, threshold=3.5) > charged()


def test_the_law_of_the_steps_attains_most_of_the_charge() -> None:
    """The hockey-stick divergence of as many steps, by 100,000 draws: how tight the charge is, beside all sampling."""
    rng, q = np.random.default_rng(7), B / N
    full = -(WITH + (N - 1) * OTHERS) / N
    absent, present = 2.0 * OTHERS + full, (2.0 * WITH + (B - 1) * 2.0 * OTHERS) / B + full
    ratios = np.zeros(100_000)
    for _ in range(STEPS):
        values = np.where(rng.random(ratios.size) < q, present, absent) + SIGMA * rng.standard_normal(ratios.size)
        ratios += log_density(values, WITH, SIGMA) - log_density(values, WITHOUT, SIGMA)

    def delta(epsilon: float) -> float:
        return float(np.mean(np.maximum(-np.expm1(epsilon - ratios), 0.0)))

    assert delta(charged()) < DELTA < delta(0.6 * charged())
