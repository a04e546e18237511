"""Selection of one candidate: bounded ranges, and what candidates whose scores move do attain."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import integrate, stats

from accounting.events import Event, Exponential, FullBatch, ReportNoisyMax
from tests.accounting import discrete_referee, referee
from tests.accounting.campaign.spec import ADD_REMOVE, Array, Scheme, Spec, random_delta, random_steps, uniform_in_log

#: Other candidates, all alike, and how far the first is ahead of them, in sensitivities, before its score falls.
RIVALS = ((1, 1.0), (1, 0.0), (1, -2.0), (3, 1.0), (10, 2.0), (30, 0.0))
_LAWS = {"laplace": stats.laplace, "exponential": stats.expon, "gumbel": stats.gumbel_r}


def draw_exponential(rng: np.random.Generator) -> Spec:
    steps = random_steps(rng, 100)
    mechanism = Exponential(uniform_in_log(rng, 0.1, 6.0) / math.sqrt(steps))
    return Spec(Event(mechanism, FullBatch(), steps), ADD_REMOVE, random_delta(rng))


def _draw_noisy_max(rng: np.random.Generator) -> Spec:
    steps = random_steps(rng, 100)
    noise = list(_LAWS)[int(rng.integers(3))]
    mechanism = ReportNoisyMax(uniform_in_log(rng, 0.1, 6.0) / math.sqrt(steps), noise)
    return Spec(Event(mechanism, FullBatch(), steps), ADD_REMOVE, random_delta(rng))


def _range_of(spec: Spec) -> float:
    """Scores move by as much as all records of a group move them."""
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, Exponential | ReportNoisyMax)
    return mechanism.epsilon * spec.group_size


def bounded_range_from_above(spec: Spec, epsilon: float) -> float:
    size = _range_of(spec)

    def profile(eps: Array) -> Array:
        inside = np.clip(eps, -size, size)
        delta = np.expm1(0.5 * (inside - size)) ** 2 / -math.expm1(-size)
        return np.where(eps < -size, -np.expm1(np.minimum(eps, 0.0)), delta)

    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def bounded_range_from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    """Choices that are all alike, and choices that follow what was seen."""
    size, count = _range_of(spec), spec.event.count
    alike = discrete_referee.bounded_range_delta(size, count, epsilon)
    return max(alike, discrete_referee.adaptive_range_delta(size, count, epsilon)), 1e-13


@lru_cache(maxsize=256)
def _is_named(noise: str, scale: float, rivals: int, ahead: float) -> tuple[float, float]:
    """The chance that a candidate so far ahead of all others is named, and that it is not: each its own integral."""
    law = _LAWS[noise](scale=scale)
    edges = sorted({0.0, ahead, -ahead, *np.linspace(-45.0 * scale, 45.0 * scale, 31).tolist()})

    def integral(term: Array) -> float:
        return float((term * weights).sum())

    nodes, node_weights = np.polynomial.legendre.leggauss(40)
    left, right = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    x, weights = 0.5 * (left + right) + 0.5 * (right - left) * nodes, 0.5 * (right - left) * node_weights
    named = integral(law.pdf(x) * law.cdf(x + ahead) ** rivals)
    passed = integral(law.pdf(x) * rivals * law.cdf(x) ** (rivals - 1) * law.cdf(x - ahead))
    return named, passed


def _swapped(spec: Spec, epsilon: float) -> float:
    """The first score falls by its sensitivity while all others rise by theirs: the largest over some standings."""
    mechanism, largest = spec.event.mechanism, 0.0
    assert isinstance(mechanism, ReportNoisyMax)
    for rivals, ahead in RIVALS:
        pair = [_is_named(mechanism.noise, 2.0 / mechanism.epsilon, rivals, x) for x in (ahead, ahead - 2.0)]
        for (p, p_not), (q, q_not) in (pair, pair[::-1]):
            low, high = sorted([(math.log(p / q), p), (math.log(p_not / q_not), p_not)])
            masses = np.array([low[1], high[1]])
            delta = discrete_referee.lattice_delta(masses, low[0], high[0] - low[0], spec.event.count, epsilon)
            largest = max(largest, delta)
    return largest


def _two_candidates(spec: Spec, epsilon: float) -> float:
    """Exponential noise: one candidate ahead by g of the noise's scales, then behind by what is left of epsilon."""
    size, largest = _range_of(spec), 0.0
    for ahead in np.linspace(0.0, size, 301).tolist():
        p, q = 1.0 - 0.5 * math.exp(-ahead), 0.5 * math.exp(ahead - size)
        high, low = math.log(p / q), math.log((1.0 - p) / (1.0 - q))
        masses = np.array([1.0 - p, p])
        delta = discrete_referee.lattice_delta(masses, low, high - low, spec.event.count, epsilon)
        largest = max(largest, delta)
    return largest


@lru_cache(maxsize=4096)
def _some_win(first: int, others: int, behind: float) -> float:
    """The chance that the largest of some Laplace variables is above that of others, which are so far ahead."""

    def below(y: float) -> float:
        return 0.5 * math.exp(y) if y < 0.0 else 1.0 - 0.5 * math.exp(-y)

    def term(y: float) -> float:
        return float(first * below(y) ** (first - 1) * 0.5 * math.exp(-abs(y)) * below(y - behind) ** others)

    parts = sorted({-45.0, 0.0, behind, 45.0})
    return float(sum(integrate.quad(term, low, high, epsabs=0.0, epsrel=1e-12)[0] for low, high in pairwise(parts)))


def _few_against_few(spec: Spec, epsilon: float) -> float:
    """Laplace noise: some candidates of equal scores ahead of some others, then behind by what is left of epsilon."""
    size, largest = _range_of(spec), 0.0
    for first, others in ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)):
        for ahead in np.linspace(0.1 * size, 0.9 * size, 9).tolist():
            p, q = _some_win(first, others, -ahead), _some_win(first, others, size - ahead)
            high, low = math.log(p / q), math.log((1.0 - p) / (1.0 - q))
            masses = np.array([1.0 - p, p])
            largest = max(largest, discrete_referee.lattice_delta(masses, low, high - low, spec.event.count, epsilon))
    return largest


def _noisy_max_from_above(spec: Spec, epsilon: float) -> float:
    """What is attained with either noise costs no less than delta at the lower end."""
    mechanism = spec.event.mechanism
    assert isinstance(mechanism, ReportNoisyMax)
    if mechanism.noise == "exponential":
        return max(_swapped(spec, epsilon), _two_candidates(spec, epsilon))
    if mechanism.noise == "laplace":
        return max(_few_against_few(spec, epsilon), bounded_range_from_above(spec, epsilon))
    return bounded_range_from_above(spec, epsilon)


def _noisy_max_from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
    """Exponential noise is charged as pure DP, Laplace noise by its advantage: no less, until somebody proves it."""
    mechanism, count = spec.event.mechanism, spec.event.count
    assert isinstance(mechanism, ReportNoisyMax)
    if mechanism.noise == "gumbel":
        return max(_swapped(spec, epsilon), bounded_range_from_below(spec, epsilon, rng)[0]), 1e-10 * spec.delta
    size = mechanism.epsilon
    share = min(1.0, size / 3.0 / math.tanh(0.5 * size)) if mechanism.noise == "laplace" else 1.0
    masses = np.array([share / (1.0 + math.exp(size)), 1.0 - share, share / (1.0 + math.exp(-size))])
    return discrete_referee.lattice_delta(masses, -size, size, count, epsilon), 1e-10 * spec.delta


SELECTION = {
    "exponential": Scheme(1, draw_exponential, bounded_range_from_above, bounded_range_from_below),
    "report_noisy_max": Scheme(17, _draw_noisy_max, _noisy_max_from_above, _noisy_max_from_below),
}
