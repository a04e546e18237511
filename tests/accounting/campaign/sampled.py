"""Random batches: what each step's pair costs by its definition, and samples of what batches really are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from accounting.dp_accounting_adapter import referee_delta
from accounting.events import (
    Blocks,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    RandomAllocation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.relations import NeighboringRelation
from tests.accounting import referee
from tests.accounting.campaign.scheduled import laplace_from_above, laplace_pair
from tests.accounting.campaign.spec import (
    ADD_REMOVE,
    REPLACE,
    Array,
    Draw,
    Scheme,
    Spec,
    attained,
    random_delta,
    random_steps,
    uniform_in_log,
)
from tests.accounting.filters.costs.truths import allocated_moment


def draw_poisson(relation: NeighboringRelation) -> Draw:
    def draw(rng: np.random.Generator) -> Spec:
        sampling = Poisson(uniform_in_log(rng, 1e-4, 0.6))
        return Spec(
            Event(Gaussian(uniform_in_log(rng, 0.5, 20.0)), sampling, random_steps(rng)), relation, random_delta(rng)
        )

    return draw


def _draw_sampled_laplace(rng: np.random.Generator) -> Spec:
    sampling, steps = Poisson(uniform_in_log(rng, 1e-3, 0.6)), random_steps(rng)
    return Spec(Event(Laplace(uniform_in_log(rng, 0.5, 20.0)), sampling, steps), ADD_REMOVE, random_delta(rng))


def _draw_fixed_size(rng: np.random.Generator) -> Spec:
    size = int(uniform_in_log(rng, 20.0, 1e6))
    sampling = WithoutReplacement(max(1, int(size * uniform_in_log(rng, 1e-4, 0.6))), size)
    return Spec(
        Event(Gaussian(uniform_in_log(rng, 1.0, 40.0)), sampling, random_steps(rng)), REPLACE, random_delta(rng)
    )


def _draw_with_replacement(rng: np.random.Generator) -> Spec:
    size = int(uniform_in_log(rng, 20.0, 1e6))
    sampling = WithReplacement(max(1, int(size * uniform_in_log(rng, 1e-4, 0.3))), size)
    return Spec(
        Event(Gaussian(uniform_in_log(rng, 4.0, 60.0)), sampling, random_steps(rng, 500)), REPLACE, random_delta(rng)
    )


def _draw_truncated(rng: np.random.Generator) -> Spec:
    """Cut where the cut costs about delta, or less."""
    spec = draw_poisson(ADD_REMOVE)(rng)
    size, q = int(uniform_in_log(rng, 100.0, 1e6)), spec.probability
    largest = int(stats.binom.isf(spec.delta / spec.event.count * uniform_in_log(rng, 1e-16, 1e-9), size, q)) + 1
    sampling = TruncatedPoisson(q, min(max(largest, 1), size), size)
    return Spec(Event(spec.event.mechanism, sampling, spec.event.count), ADD_REMOVE, spec.delta)


def _draw_random_cut(relation: NeighboringRelation, truncation: str = "random") -> Draw:
    def draw(rng: np.random.Generator) -> Spec:
        """Caps from where half of the batches are cut to where hardly any is."""
        spec = draw_poisson(relation)(rng)
        size, q = int(uniform_in_log(rng, 30.0, 1e6)), spec.probability
        deviation = math.sqrt(size * q * (1.0 - q))
        largest = min(max(round(size * q + deviation * rng.uniform(-1.5, 4.0)), 1), size - 1)
        mechanism = Gaussian(uniform_in_log(rng, 1.0, 20.0))
        return Spec(
            Event(mechanism, TruncatedPoisson(q, largest, size, truncation), spec.event.count), relation, spec.delta
        )

    return draw


def _draw_fixed_size_with_null(rng: np.random.Generator) -> Spec:
    spec = _draw_fixed_size(rng)
    return Spec(spec.event, NeighboringRelation.REPLACE_SPECIAL, spec.delta)


def _draw_allocation(rng: np.random.Generator) -> Spec:
    """One step of every t: several epochs, the last one often cut short."""
    sampling = RandomAllocation(int(uniform_in_log(rng, 2.0, 300.0)), 1)
    epochs, rest = int(uniform_in_log(rng, 1.0, 6.0)), int(rng.integers(sampling.num_bins))
    count = sampling.num_bins * epochs + (rest if rng.random() < 0.5 else 0)
    return Spec(Event(Gaussian(uniform_in_log(rng, 0.4, 10.0)), sampling, count), ADD_REMOVE, random_delta(rng))


def _draw_several(kind: type[RandomAllocation] | type[Blocks]) -> Draw:
    def draw(rng: np.random.Generator) -> Spec:
        bins = int(uniform_in_log(rng, 3.0, 40.0))
        sampling = kind(bins, int(uniform_in_log(rng, 2.0, bins + 1.0)))
        epochs, rest = int(uniform_in_log(rng, 1.0, 4.0)), int(rng.integers(bins))
        count = bins * epochs + (rest if rng.random() < 0.3 else 0)
        return Spec(Event(Gaussian(uniform_in_log(rng, 1.0, 12.0)), sampling, count), ADD_REMOVE, random_delta(rng))

    return draw


def _hides_its_size(spec: Spec) -> bool:
    """Whether the number that is drawn from is private: that of slots never is."""
    sampling = spec.event.sampling
    assert isinstance(sampling, TruncatedPoisson)
    return spec.relation is ADD_REMOVE and sampling.truncation == "random"


def _cut(spec: Spec) -> tuple[float, float]:
    """tau, and with which probability a record is in a batch that is cut."""
    sampling = spec.event.sampling
    assert isinstance(sampling, TruncatedPoisson)
    n, q, largest = sampling.dataset_size, sampling.sampling_probability, sampling.max_batch_size
    tau = float(stats.binom.sf(largest - 1, n - 1, q))
    if _hides_its_size(spec):
        return tau, q
    kept = largest / n * float(stats.binom.sf(largest, n, q))
    return tau, min(kept / tau, q) if tau > 0.0 else q


def _random_cut_from_above(spec: Spec, epsilon: float) -> float:
    """Both branches' profiles by their definitions, in both directions."""
    sampling = spec.event.sampling
    assert isinstance(sampling, TruncatedPoisson)
    (tau, r), q = _cut(spec), sampling.sampling_probability
    if spec.relation is REPLACE:
        whole, cut = referee.replace_profile(spec.noise, q), referee.symmetrized_profile(spec.noise, r)
    else:
        whole = referee.remove_profile(spec.noise, q)
        farther = referee.remove_profile(spec.noise / 2.0, r)
        cut = farther if _hides_its_size(spec) else referee.displaced_profile(spec.noise, r)

    def remove(eps: Array) -> Array:
        return (1.0 - tau) * whole(eps) + tau * cut(eps)

    def add(eps: Array) -> Array:
        return np.asarray(np.maximum(-np.expm1(eps) + np.exp(eps) * remove(-eps), 0.0))

    profiles = (remove,) if spec.relation is REPLACE else (remove, add)
    return max(referee.delta_from_above(each, spec.event.count, epsilon, 1e-3) for each in profiles)


def _alone_in_a_random_cut(spec: Spec) -> referee.AttainedPair:
    """All others' contributions are 0; where the number of records is private, nothing is cut from few of them."""
    sampling = spec.event.sampling
    assert isinstance(sampling, TruncatedPoisson)
    (tau, r), q = _cut(spec), sampling.sampling_probability
    if spec.relation is REPLACE:
        return referee.poisson_gaussian_replace(spec.noise, (1.0 - tau) * q + tau * r)
    return referee.poisson_gaussian(spec.noise, q if _hides_its_size(spec) else (1.0 - tau) * q + tau * r)


def _null_from_above(spec: Spec, epsilon: float) -> float:
    profile = referee.displaced_profile(spec.noise, spec.probability)

    def add(eps: Array) -> Array:
        return np.asarray(np.maximum(-np.expm1(eps) + np.exp(eps) * profile(-eps), 0.0))

    return max(referee.delta_from_above(each, spec.event.count, epsilon, 1e-3) for each in (profile, add))


def _library(spec: Spec, epsilon: float) -> float:
    return referee_delta([spec.event], spec.relation, epsilon, interval=1e-3)


def _replace_from_above(spec: Spec, epsilon: float) -> float:
    profile = referee.replace_profile(spec.noise, spec.probability)
    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def _fixed_size_from_above(spec: Spec, epsilon: float) -> float:
    profile = referee.symmetrized_profile(spec.noise, spec.probability)
    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def _hits(spec: Spec) -> tuple[Sequence[int], Array, float]:
    """Numbers of hits, their probabilities given one at least, and that probability."""
    sampling = spec.event.sampling
    assert isinstance(sampling, WithReplacement)
    k = np.arange(1, min(sampling.batch_size, 40) + 1)
    chances = stats.binom.pmf(k, sampling.batch_size, 1.0 / sampling.dataset_size)
    eta = -math.expm1(sampling.batch_size * math.log1p(-1.0 / sampling.dataset_size))
    return list(k), chances / eta, eta


def _with_replacement_from_above(spec: Spec, epsilon: float) -> float:
    shifts, chances, eta = _hits(spec)
    parts = [referee.symmetrized_profile(spec.noise / k, eta) for k in shifts]

    def profile(eps: Array) -> Array:
        return np.asarray(sum(w * part(eps) for w, part in zip(chances, parts, strict=True)))

    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def _once_hit(spec: Spec) -> referee.AttainedPair:
    """All others agree: their sum moves by 2 at least where the record is drawn, which hiding how often keeps."""
    _, _, eta = _hits(spec)
    return referee.poisson_gaussian(spec.noise / 2.0, eta)


def _truncated(spec: Spec, epsilon: float, sign: float) -> float:
    """Poisson's delta by the library, and what the cut may add or take."""
    sampling, steps = spec.event.sampling, spec.event.count
    assert isinstance(sampling, TruncatedPoisson)
    cut = float(stats.binom.sf(sampling.max_batch_size, sampling.dataset_size, sampling.sampling_probability))
    poisson = Event(spec.event.mechanism, Poisson(sampling.sampling_probability), steps)
    return referee_delta([poisson], spec.relation, epsilon, interval=1e-3) + sign * steps * cut * (
        1 + math.exp(min(epsilon, 700.0))
    )


def _less_the_cut(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    mean, allowance = attained(lambda each: referee.poisson_gaussian(each.noise, _before_the_cut(each)))(
        spec, epsilon, rng
    )
    cut = _truncated(spec, epsilon, 1.0) - _truncated(spec, epsilon, 0.0)
    return mean - cut, allowance


def _before_the_cut(spec: Spec) -> float:
    sampling = spec.event.sampling
    assert isinstance(sampling, TruncatedPoisson)
    return sampling.sampling_probability


def _blocks_of(spec: Spec) -> list[tuple[int, int]]:
    """First step and end of every block of an epoch."""
    sampling = spec.event.sampling
    assert isinstance(sampling, RandomAllocation | Blocks)
    starts = [block * sampling.num_bins // sampling.participations for block in range(sampling.participations + 1)]
    return list(pairwise(starts))


def _allocated_from_above(spec: Spec, epsilon: float) -> float:
    """The best moment at integer orders, by the multinomial theorem; the add direction of a mean of ratios is less.

    Begun epochs count in full, and sets of several steps as one step of every block.
    """
    sampling = spec.event.sampling
    assert isinstance(sampling, RandomAllocation | Blocks)
    epochs = -(-spec.event.count // sampling.num_bins)
    sizes = Counter(end - start for start, end in _blocks_of(spec))
    best = 1.0
    for order in (2, 4, 9):
        exponent = epochs * sum(
            number * float(allocated_moment(spec.noise, size, order - 1)) for size, number in sizes.items()
        )
        exponent -= (order - 1) * epsilon - (order - 1) * math.log(1 - 1 / order) + math.log(order)
        best = min(best, math.exp(min(exponent, 0.0)))
    return best


def _allocated_from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    """Samples of outcomes with the record, whose steps are the first of each block as well as any other.

    In an epoch that is cut short its step is drawn.
    """
    sampling = spec.event.sampling
    assert isinstance(sampling, RandomAllocation | Blocks)
    draws, mu, losses = 4000, 1.0 / spec.noise, np.zeros(4000)
    whole, rest = divmod(spec.event.count, sampling.num_bins)
    for epoch in range(whole + (rest > 0)):
        for start, end in _blocks_of(spec):
            size, seen = end - start, (end if epoch < whole else min(end, max(rest, start))) - start
            if seen <= 0:
                continue
            z = rng.standard_normal((draws, seen))
            step = rng.integers(size, size=draws) if seen < size else np.zeros(draws, dtype=int)
            hit = np.flatnonzero(step < seen)
            z[hit, step[hit]] += mu
            losses += np.log((size - seen + np.exp(mu * z - 0.5 * mu * mu).sum(axis=1)) / size)
    terms = np.maximum(-np.expm1(epsilon - losses), 0.0)
    return float(terms.mean()), float(6.0 * terms.std() / math.sqrt(draws) + 12.0 / draws)


def _sets_from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    """Samples of whole allocations: the elementary symmetric polynomial of the ratios over its number of terms."""
    sampling = spec.event.sampling
    assert isinstance(sampling, RandomAllocation)
    bins, chosen = sampling.num_bins, sampling.participations
    draws, mu, losses = 4000, 1.0 / spec.noise, np.zeros(4000)
    for _ in range(spec.event.count // bins):
        z = rng.standard_normal((draws, bins))
        z[:, :chosen] += mu
        ratios = np.exp(mu * z - 0.5 * mu * mu)
        # Means over all sets of i of the first n: each step is in a share i / n of them.
        means = np.zeros((draws, chosen + 1))
        means[:, 0] = 1.0
        for n in range(1, bins + 1):
            for i in range(min(n, chosen), 0, -1):
                share = i / n
                means[:, i] = share * means[:, i - 1] * ratios[:, n - 1] + (1.0 - share) * means[:, i]
        losses += np.log(means[:, chosen])
    terms = np.maximum(-np.expm1(epsilon - losses), 0.0)
    return float(terms.mean()), float(6.0 * terms.std() / math.sqrt(draws) + 12.0 / draws)


SAMPLED = {
    "gaussian_poisson": Scheme(
        4,
        draw_poisson(ADD_REMOVE),
        _library,
        attained(lambda spec: referee.poisson_gaussian(spec.noise, spec.probability)),
    ),
    "gaussian_poisson_replace_one": Scheme(
        5,
        draw_poisson(REPLACE),
        _replace_from_above,
        attained(lambda spec: referee.poisson_gaussian_replace(spec.noise, spec.probability)),
    ),
    "gaussian_blocks": Scheme(51, _draw_several(Blocks), _allocated_from_above, _allocated_from_below),
    "gaussian_random_allocation": Scheme(6, _draw_allocation, _allocated_from_above, _allocated_from_below),
    "gaussian_random_sets": Scheme(52, _draw_several(RandomAllocation), _allocated_from_above, _sets_from_below),
    "gaussian_truncated_poisson": Scheme(
        8,
        _draw_truncated,
        lambda spec, epsilon: _truncated(spec, epsilon, 1.0),
        # Poisson's pair is attained but for the cut.
        _less_the_cut,
    ),
    "gaussian_random_truncation": Scheme(
        40, _draw_random_cut(ADD_REMOVE), _random_cut_from_above, attained(_alone_in_a_random_cut)
    ),
    "gaussian_random_truncation_slots": Scheme(
        53, _draw_random_cut(ADD_REMOVE, "random_slots"), _random_cut_from_above, attained(_alone_in_a_random_cut)
    ),
    "gaussian_random_truncation_null": Scheme(
        41,
        _draw_random_cut(NeighboringRelation.REPLACE_SPECIAL),
        _random_cut_from_above,
        attained(_alone_in_a_random_cut),
    ),
    "gaussian_random_truncation_replace_one": Scheme(
        42, _draw_random_cut(REPLACE), _random_cut_from_above, attained(_alone_in_a_random_cut)
    ),
    "gaussian_without_replacement_null": Scheme(
        43,
        _draw_fixed_size_with_null,
        _null_from_above,
        attained(lambda spec: referee.poisson_gaussian(spec.noise, spec.probability)),
    ),
    "gaussian_with_replacement": Scheme(9, _draw_with_replacement, _with_replacement_from_above, attained(_once_hit)),
    "gaussian_without_replacement": Scheme(
        10,
        _draw_fixed_size,
        _fixed_size_from_above,
        # A record is swapped for its opposite while all others agree with the one that comes in: attained.
        attained(lambda spec: referee.poisson_gaussian(spec.noise / 2.0, spec.probability)),
    ),
    "laplace_poisson": Scheme(12, _draw_sampled_laplace, laplace_from_above, attained(laplace_pair)),
}
