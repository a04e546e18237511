"""Outcomes that can be counted: randomised answers, noise on a grid, shuffled messages. Sums of positive terms."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from accounting.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    FullBatch,
    PureDp,
    RandomizedResponse,
    ShuffleModel,
)
from tests.accounting import discrete_referee, referee
from tests.accounting.campaign.spec import (
    ADD_REMOVE,
    REPLACE,
    SPECIAL,
    Scheme,
    Spec,
    random_delta,
    random_steps,
    uniform_in_log,
)


def draw_response(rng: np.random.Generator) -> Spec:
    steps, relation = random_steps(rng, 300), (REPLACE, SPECIAL)[int(rng.integers(2))]
    mechanism = RandomizedResponse(int(uniform_in_log(rng, 2.0, 1000.0)), float(rng.uniform(0.05, 0.99)))
    return Spec(Event(mechanism, FullBatch(), steps), relation, random_delta(rng))


def draw_discrete(rng: np.random.Generator) -> Spec:
    steps, relation = random_steps(rng, 30), (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    kind, grid = (DiscreteLaplace, DiscreteGaussian)[int(rng.integers(2))], 1.0 / int(rng.integers(1, 6))
    noise = uniform_in_log(rng, 0.5, 5.0) * math.sqrt(steps)
    return Spec(Event(kind(noise, grid), FullBatch(), steps), relation, random_delta(rng))


def _draw_shuffle_model(rng: np.random.Generator) -> Spec:
    local, users = uniform_in_log(rng, 0.05, 6.0), int(uniform_in_log(rng, 2.0, 300.0))
    event = Event(PureDp(local), ShuffleModel(users, local, 0.0))
    return Spec(event, (REPLACE, SPECIAL)[int(rng.integers(2))], random_delta(rng))


def response_exactly(spec: Spec, epsilon: float) -> float:
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, RandomizedResponse)
    k, p = mechanism.num_categories, mechanism.flip_probability
    # Every record of a group answers by itself.
    answers = spec.event.count * spec.group_size
    return discrete_referee.response_delta(k, p, spec.relation is SPECIAL, answers, epsilon)


def discrete_exactly(spec: Spec, epsilon: float) -> float:
    mechanism, count = spec.event.mechanism, spec.event.count
    assert isinstance(mechanism, DiscreteLaplace | DiscreteGaussian)
    deviation, shift = mechanism.noise_multiplier / mechanism.grid, round(spec.sensitivity / mechanism.grid)
    if isinstance(mechanism, DiscreteLaplace):
        return discrete_referee.discrete_laplace_delta(1.0 / deviation, shift, count, epsilon)
    return discrete_referee.discrete_gaussian_delta(deviation, shift, count, epsilon)


def _shuffled(spec: Spec, epsilon: float) -> float:
    """The theorem's pair, outcome by outcome."""
    sampling = spec.event.sampling
    assert isinstance(sampling, ShuffleModel)
    p, q = referee.shuffled_pair(sampling.local_epsilon, sampling.num_users)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def _responses(spec: Spec, epsilon: float) -> float:
    """One user's bit against all others', who surely have a 0: numbers of ones, outcome by outcome."""
    sampling = spec.event.sampling
    assert isinstance(sampling, ShuffleModel)
    users, chance = sampling.num_users, 1.0 / (1.0 + math.exp(sampling.local_epsilon))
    others = np.append(stats.binom.pmf(np.arange(users), users - 1, chance), 0.0)
    moved = np.roll(others, 1)
    p, q = (1.0 - chance) * others + chance * moved, chance * others + (1.0 - chance) * moved
    grown = math.exp(epsilon)
    return max(float(np.maximum(a - grown * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


OUTCOMES = {
    "discrete_noise": Scheme(0, draw_discrete, discrete_exactly, None),
    "randomized_response": Scheme(13, draw_response, response_exactly, None),
    "shuffle_model": Scheme(
        14,
        _draw_shuffle_model,
        # The lower end is attained: randomised response costs at least delta there.
        _responses,
        lambda spec, epsilon, rng: (_shuffled(spec, epsilon), 1e-12),
    ),
}
