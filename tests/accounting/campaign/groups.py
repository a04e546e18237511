"""Groups of records: what they attain by their own law, step by step."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import special, stats

from accounting.events import (
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    WithoutReplacement,
    WithReplacement,
)
from tests.accounting import discrete_referee, referee
from tests.accounting.campaign.outcomes import discrete_exactly, draw_discrete, draw_response, response_exactly
from tests.accounting.campaign.scheduled import (
    draw_full_batch,
    draw_laplace,
    draw_shuffled,
    gaussian_shift,
    laplace_from_above,
    laplace_pair,
)
from tests.accounting.campaign.selection import bounded_range_from_above, bounded_range_from_below, draw_exponential
from tests.accounting.campaign.spec import (
    ADD_REMOVE,
    REPLACE,
    SPECIAL,
    Array,
    Draw,
    Scheme,
    Spec,
    attained,
    random_delta,
    random_steps,
    uniform_in_log,
)

#: A mixture's least probability that is kept.
_RARE = 1e-18
#: Of hits that are told apart in a bound, where there are many; together they are far below delta.
_RARE_HITS = 1e-14


def _of_groups(draws: tuple[Draw, ...], most: int) -> Draw:
    """One of them, for a group of 2 to ``most`` records; Gaussian and Laplace noise grows with it."""

    def draw(rng: np.random.Generator) -> Spec:
        spec = draws[int(rng.integers(len(draws)))](rng)
        size, mechanism = int(uniform_in_log(rng, 2.0, most + 1.0)), spec.event.mechanism
        if isinstance(mechanism, Gaussian | Laplace):
            noisier = replace(mechanism, noise_multiplier=size * mechanism.noise_multiplier)
            spec = replace(spec, event=replace(spec.event, mechanism=noisier))
        return replace(spec, group_size=size)

    return draw


def _draw_pure(rng: np.random.Generator) -> Spec:
    steps, relation = random_steps(rng, 30), (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    mechanism = PureDp(uniform_in_log(rng, 0.05, 1.0) / math.sqrt(steps))
    return Spec(Event(mechanism, FullBatch(), steps), relation, random_delta(rng))


def _pure_exactly(spec: Spec, epsilon: float) -> float:
    """What a count with two-sided geometric noise costs, which has the guarantee and is the worst that has it."""
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, PureDp)
    return discrete_referee.discrete_laplace_delta(mechanism.epsilon, spec.group_size, spec.event.count, epsilon)


def _draw_poisson(rng: np.random.Generator) -> Spec:
    size, sampling = int(uniform_in_log(rng, 2.0, 7.0)), Poisson(uniform_in_log(rng, 1e-2, 0.6))
    event = Event(Gaussian(size * uniform_in_log(rng, 0.5, 4.0)), sampling, random_steps(rng, 100))
    return Spec(event, (ADD_REMOVE, SPECIAL, REPLACE)[int(rng.integers(3))], random_delta(rng), size)


def _hits(spec: Spec) -> tuple[Array, Array]:
    """How many of the group are in the batch, and how likely that is."""
    hits = np.arange(spec.group_size + 1)
    chances = stats.binom.pmf(hits, spec.group_size, spec.probability)
    kept = chances > _RARE
    return hits[kept].astype(np.float64), chances[kept]


def _log_mixture(spec: Spec, x: Array, sign: float) -> Array:
    """log of the ratio of its density to the noise's own, where each hit moves the sum by 1 to that side."""
    hits, chances = _hits(spec)
    exponents = (sign * hits * x[..., None] - 0.5 * hits * hits) / spec.noise**2
    return np.asarray(special.logsumexp(exponents, b=chances, axis=-1))


def _poisson_pair(spec: Spec) -> referee.AttainedPair:
    far = spec.group_size + 14.0 * spec.noise

    def loss(x: Array) -> Array:
        above = _log_mixture(spec, x, 1.0)
        return above - _log_mixture(spec, x, -1.0) if spec.relation is REPLACE else above

    def log_density(x: Array) -> Array:
        return stats.norm.logpdf(x / spec.noise) - math.log(spec.noise) + _log_mixture(spec, x, 1.0)

    return referee.AttainedPair(log_density, loss, (-far, 0.0, far))


def _poisson_from_above(spec: Spec, epsilon: float) -> float:
    if spec.relation is REPLACE:
        return referee.delta_from_above(_replaced_profile(spec), spec.event.count, epsilon, 2e-3)
    hits, chances = _hits(spec)
    # What the library calls a mixture of Gaussians is a random sensitivity.
    one = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        spec.noise, hits.tolist(), (chances / chances.sum()).tolist(), value_discretization_interval=1e-3
    )
    return float(one.self_compose(spec.event.count).get_delta_for_epsilon(epsilon))


def _replaced_profile(spec: Spec) -> referee.Profile:
    """Of the mixtures to both sides, whose ratio rises along the line: beyond the point where it is e^eps."""
    pair, (hits, chances) = _poisson_pair(spec), _hits(spec)

    def profile(eps: Array) -> Array:
        size, back = np.unique(np.abs(eps), return_inverse=True)
        low, high = np.zeros_like(size), np.full_like(size, 1.0)
        while np.any(beyond := pair.loss(high) < size):
            high = np.where(beyond, 2.0 * high, high)
        for _ in range(45):
            middle = 0.5 * (low + high)
            below = pair.loss(middle) < size
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        tails = [stats.norm.sf((high[:, None] - sign * hits) / spec.noise) @ chances for sign in (1.0, -1.0)]
        value = np.clip(tails[0] - np.exp(size) * tails[1], 0.0, 1.0)[back]
        return np.where(eps >= 0.0, value, -np.expm1(eps) + np.exp(eps) * value)

    return profile


def _draw_fixed_size(rng: np.random.Generator) -> Spec:
    """Batches that hold none of the group nearly always, or some of it, with replacement or without."""
    records, size = int(uniform_in_log(rng, 50.0, 1e5)), int(uniform_in_log(rng, 2.0, 13.0))
    batch = max(1, int(records * uniform_in_log(rng, 1e-3, 0.7) / size**0.5))
    sampling = (WithReplacement if rng.random() < 0.5 else WithoutReplacement)(batch, records)
    event = Event(Gaussian(size**0.5 * uniform_in_log(rng, 1.5, 20.0)), sampling, random_steps(rng, 60))
    return Spec(event, (SPECIAL, REPLACE)[int(rng.integers(2))], random_delta(rng), size)


def _hits_of_batch(spec: Spec) -> tuple[Array, Array]:
    sampling = spec.event.sampling
    assert isinstance(sampling, WithReplacement | WithoutReplacement)
    drawn = (
        stats.binom(sampling.batch_size, spec.group_size / sampling.dataset_size)
        if isinstance(sampling, WithReplacement)
        else stats.hypergeom(sampling.dataset_size, spec.group_size, sampling.batch_size)
    )
    hits = np.arange(min(sampling.batch_size, 2 * spec.group_size + 60) + 1)
    chances = drawn.pmf(hits)
    kept = chances > _RARE_HITS
    return hits[kept].astype(np.float64), chances[kept]


def _replaced_against_agreeing(spec: Spec) -> referee.AttainedPair:
    """All others contribute -1, and so does the group afterwards: each hit moves the sum by 2, or by 1 to null."""
    hits, chances = _hits_of_batch(spec)
    step = 1.0 if spec.relation is SPECIAL and isinstance(spec.event.sampling, WithoutReplacement) else 2.0
    far = step * float(hits[-1]) + 14.0 * spec.noise

    def loss(x: Array) -> Array:
        exponents = (step * hits * x[..., None] - 0.5 * (step * hits) ** 2) / spec.noise**2
        return np.asarray(special.logsumexp(exponents, b=chances, axis=-1))

    def log_density(x: Array) -> Array:
        return stats.norm.logpdf(x / spec.noise) - math.log(spec.noise) + loss(x)

    return referee.AttainedPair(log_density, loss, (-far, 0.0, far))


def _full_batch(mu: float) -> referee.Profile:
    def profile(eps: Array) -> Array:
        near, far = special.log_ndtr(0.5 * mu - eps / mu), special.log_ndtr(-0.5 * mu - eps / mu)
        return np.asarray(np.exp(near) - np.exp(eps + far))

    return profile


def _fixed_size_from_above(spec: Spec, epsilon: float) -> float:
    """Hits that are seen, each as likely given one at least as it is: a coarse bound, the same in either order."""
    hits, chances = _hits_of_batch(spec)
    if hits[0] > 0.0:
        parts = [(w, _full_batch(2.0 * h / spec.noise)) for h, w in zip(hits, chances, strict=True)]
    else:
        some = 1.0 - float(chances[0])
        seen = zip(hits[1:], chances[1:] / some, strict=True)
        parts = [(w, referee.symmetrized_profile(spec.noise / h, some)) for h, w in seen]

    def profile(eps: Array) -> Array:
        return np.asarray(sum(w * part(eps) for w, part in parts))

    return referee.delta_from_above(profile, spec.event.count, epsilon, 4e-3)


GROUPS = {
    "group_fixed_size": Scheme(59, _draw_fixed_size, _fixed_size_from_above, attained(_replaced_against_agreeing)),
    "group_gaussian": Scheme(18, _of_groups((draw_full_batch, draw_shuffled), 300), gaussian_shift, None),
    "group_laplace": Scheme(19, _of_groups((draw_laplace,), 20), laplace_from_above, attained(laplace_pair)),
    "group_response": Scheme(20, _of_groups((draw_response,), 20), response_exactly, None),
    "group_pure_dp": Scheme(21, _of_groups((_draw_pure,), 20), _pure_exactly, None),
    "group_poisson": Scheme(22, _draw_poisson, _poisson_from_above, attained(_poisson_pair)),
    "group_discrete_noise": Scheme(23, _of_groups((draw_discrete,), 5), discrete_exactly, None),
    "group_exponential": Scheme(
        24, _of_groups((draw_exponential,), 20), bounded_range_from_above, bounded_range_from_below
    ),
}
