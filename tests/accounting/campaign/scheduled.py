"""Full batches and fixed schedules: closed forms, and dp-accounting's distributions."""

from __future__ import annotations

import math

import numpy as np

from accounting.events import Event, FullBatch, Gaussian, GaussianMixture, Laplace, ShuffledEpochs, TreeAggregation
from tests.accounting import referee
from tests.accounting.campaign.spec import (
    ADD_REMOVE,
    REPLACE,
    SPECIAL,
    Scheme,
    Spec,
    attained,
    random_delta,
    random_steps,
    uniform_in_log,
)
from tests.accounting.references import gaussian_delta, mixture_delta


def draw_full_batch(rng: np.random.Generator) -> Spec:
    steps, relation = random_steps(rng), (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    noise = uniform_in_log(rng, 0.3, 20.0) * math.sqrt(steps)
    return Spec(Event(Gaussian(noise), FullBatch(), steps), relation, random_delta(rng))


def draw_laplace(rng: np.random.Generator) -> Spec:
    steps, relation = random_steps(rng, 50), (ADD_REMOVE, REPLACE)[int(rng.integers(2))]
    noise = uniform_in_log(rng, 0.5, 20.0) * math.sqrt(steps)
    return Spec(Event(Laplace(noise), FullBatch(), steps), relation, random_delta(rng))


def _draw_mixture(rng: np.random.Generator) -> Spec:
    steps, weight = random_steps(rng, 60), float(rng.uniform(0.02, 0.98))
    scales = tuple(uniform_in_log(rng, 0.5, 20.0) * math.sqrt(steps) for _ in range(2))
    relation = (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    return Spec(Event(GaussianMixture((weight, 1.0 - weight), scales), count=steps), relation, random_delta(rng))


def draw_shuffled(rng: np.random.Generator) -> Spec:
    per_epoch, steps = int(uniform_in_log(rng, 2.0, 1000.0)), random_steps(rng, 10_000)
    relation = (REPLACE, SPECIAL)[int(rng.integers(2))]
    noise = uniform_in_log(rng, 0.3, 20.0) * math.sqrt(math.ceil(steps / per_epoch))
    return Spec(Event(Gaussian(noise), ShuffledEpochs(per_epoch), steps), relation, random_delta(rng))


def _draw_tree(rng: np.random.Generator) -> Spec:
    leaves, restarts = int(uniform_in_log(rng, 1.0, 1e5)), int(uniform_in_log(rng, 1.0, 50.0)) - 1
    count, relation = random_steps(rng, 20), (REPLACE, SPECIAL)[int(rng.integers(2))]
    noise = uniform_in_log(rng, 0.3, 20.0) * math.sqrt(leaves.bit_length() * (1 + restarts) * count)
    return Spec(Event(TreeAggregation(noise, leaves, restarts), FullBatch(), count), relation, random_delta(rng))


def laplace_pair(spec: Spec) -> referee.AttainedPair:
    return referee.poisson_laplace(spec.noise / spec.sensitivity, spec.probability)


def laplace_from_above(spec: Spec, epsilon: float) -> float:
    scale = spec.noise / spec.sensitivity
    return referee.laplace_from_above(scale, spec.probability, spec.event.count, epsilon, 1e-3)


def _mixed_gaussians(spec: Spec, epsilon: float) -> float:
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, GaussianMixture)
    branches = list(zip(mechanism.weights, mechanism.noise_multipliers, strict=True))
    return float(mixture_delta(branches, spec.event.count, spec.sensitivity, epsilon))


def gaussian_shift(spec: Spec, epsilon: float) -> float:
    """Exact: a record that takes part in n steps shifts by sensitivity sqrt(n) noise standard deviations.

    For shuffled epochs these batches are attained: some order puts a record's steps first in every epoch.
    """
    sampling, count = spec.event.sampling, spec.event.count
    taken = math.ceil(count / sampling.steps_per_epoch) if isinstance(sampling, ShuffledEpochs) else count
    return float(gaussian_delta(spec.sensitivity * math.sqrt(taken) / spec.noise, epsilon))


def _tree_shift(spec: Spec, epsilon: float) -> float:
    """Exact: in every tree the first leaf is under the nodes of 1, 2, 4, ... leaves, as far as the stream goes."""
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, TreeAggregation)
    sizes = [2**level for level in range(40) if 2**level <= mechanism.num_leaves]
    nodes = spec.event.count * (1 + mechanism.restarts) * len(sizes)
    return float(gaussian_delta(spec.sensitivity * math.sqrt(nodes) / mechanism.noise_multiplier, epsilon))


SCHEDULED = {
    "gaussian_full_batch": Scheme(2, draw_full_batch, gaussian_shift, None),
    "gaussian_mixture": Scheme(3, _draw_mixture, _mixed_gaussians, None),
    "gaussian_shuffled_epochs": Scheme(7, draw_shuffled, gaussian_shift, None),
    "laplace_full_batch": Scheme(11, draw_laplace, laplace_from_above, attained(laplace_pair)),
    "tree_aggregation": Scheme(15, _draw_tree, _tree_shift, None),
}
