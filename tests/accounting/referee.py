"""Independent referees of the engine: distributions from above, unbiased sampling of attained pairs from below.

* From above: the pessimistic "connect the dots" distribution of dp-accounting (Doroshenko et al. 2022, Algorithm 1),
  made here from a step's closed-form profile where the library has no event of its own.
* From below: P and Q are what two neighbouring data sets really produce, and delta = E_P (1 - e^(eps - L))_+ is
  estimated without bias by sampling from an exponentially tilted law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]
STANDARD_ERRORS = 6.0
#: Expected number of draws of a kind that is seen not once with probability 1e-7.
UNSEEN = 16.0


def log_ratio(x: Array, s: float, q: float) -> Array:
    """log(1 - q + q e^((2x-1)/(2 s^2))), the likelihood ratio of Poisson's pair."""
    exponent = (2.0 * x - 1.0) / (2.0 * s * s)
    if q == 1.0:
        return exponent
    return np.logaddexp(math.log1p(-q), math.log(q) + exponent)


@dataclass(frozen=True)
class AttainedPair:
    """One step under P, on the line of its output.

    Attributes:
        log_density: log of P's density.
        loss: log dP/dQ.
        corners: Ends of the range worth sampling, and points where the density jumps.
    """

    log_density: Callable[[Array], Array]
    loss: Callable[[Array], Array]
    corners: tuple[float, ...]

    def estimate_delta(self, count: int, epsilon: float, rng: np.random.Generator, draws: int) -> tuple[float, float]:
        """Mean and allowance of ``count`` composed steps' delta at ``epsilon``; never biased upwards.

        The allowance is six standard errors and what rare draws of no gain, none of them seen, could be hiding.
        """
        edges = np.unique(np.concatenate([np.linspace(a, b, 1200) for a, b in pairwise(self.corners)]))
        middle, width = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges)
        mass, loss = self.log_density(middle) + np.log(width), self.loss(middle)
        tilts = np.geomspace(1e-2, 300.0, 60)
        chernoff = [
            count * special.logsumexp(mass + c * loss) - c * epsilon + c * math.log(c) - (1 + c) * math.log1p(c)
            for c in tilts
        ]
        tilt = float(tilts[int(np.argmin(chernoff))])
        proposal = special.softmax(mass + tilt * loss)
        cumulative = np.concatenate([[0.0], np.cumsum(proposal)])
        density = proposal / width
        uniform = rng.random((draws, count)) * cumulative[-1]
        cell = np.clip(np.searchsorted(cumulative, uniform, side="right") - 1, 0, len(width) - 1)
        with np.errstate(divide="ignore"):
            log_proposal = np.log(density / cumulative[-1])
            x = edges[cell] + (uniform - cumulative[cell]) / density[cell]
        weight = np.sum(self.log_density(x) - log_proposal[cell], axis=1)
        total = np.sum(self.loss(x), axis=1)
        gain = -np.expm1(np.minimum(epsilon - total, 0.0)) * np.exp(weight)
        allowance = STANDARD_ERRORS * np.std(gain) / math.sqrt(draws) + UNSEEN * np.max(gain) / draws
        return float(np.mean(gain)), float(allowance)


def poisson_gaussian(s: float, q: float) -> AttainedPair:
    """A record is removed: (1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2)."""
    return AttainedPair(
        lambda x: stats.norm.logpdf(x / s) - math.log(s) + log_ratio(x, s, q),
        lambda x: log_ratio(x, s, q),
        (-12.0 * s, 0.5, 1.0 + 14.0 * s),
    )


def poisson_gaussian_replace(s: float, q: float) -> AttainedPair:
    """A record is replaced by its opposite: against (1-q) N(0, s^2) + q N(-1, s^2)."""
    base = poisson_gaussian(s, q)
    return AttainedPair(
        base.log_density, lambda x: log_ratio(x, s, q) - log_ratio(-x, s, q), (-1.0 - 14.0 * s, 0.0, 1.0 + 14.0 * s)
    )


def poisson_laplace(b: float, q: float) -> AttainedPair:
    """A record is removed: (1-q) Lap(0, b) + q Lap(1, b) against Lap(0, b)."""

    def loss(x: Array) -> Array:
        exponent = (np.abs(x) - np.abs(x - 1.0)) / b
        return exponent if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + exponent)

    return AttainedPair(
        lambda x: -np.abs(x) / b - math.log(2.0 * b) + loss(x), loss, (-40.0 * b, 0.0, 1.0, 1.0 + 40.0 * b)
    )


def remove_profile(s: float, q: float) -> Profile:
    """delta of one step at any real epsilon."""

    def profile(eps: Array) -> Array:
        alpha = np.expm1(eps) + q
        with np.errstate(divide="ignore", invalid="ignore"):
            x = s * s * np.log(alpha / q) + 0.5
            value = q * stats.norm.sf((x - 1.0) / s) - alpha * stats.norm.sf(x / s)
        return np.where(alpha <= 0.0, -np.expm1(eps), np.clip(value, 0.0, 1.0))

    return profile


def symmetrized_profile(s: float, q: float) -> Profile:
    """The fixed-size pair under replace_one: remove at s/2 for eps >= 0, mirrored for eps < 0."""
    half = remove_profile(s / 2.0, q)

    def profile(eps: Array) -> Array:
        return np.where(eps >= 0.0, half(eps), -np.expm1(eps) + np.exp(eps) * half(-eps))

    return profile


def displaced_profile(s: float, r: float) -> Profile:
    """A record in another one's place against a null record: (1-r)N(0)+rN(2) against (1-r)N(0)+rN(1) for eps >= 0.

    For eps < 0 the null record against nothing, mirrored.
    """
    null, k = remove_profile(s, r), (1.0 - r) / r * math.exp(-1.0 / s**2)

    def above(eps: Array) -> Array:
        alpha = np.exp(eps)
        x = 1.5 + s * s * np.log(0.5 * (alpha + np.sqrt(alpha * alpha + 4.0 * k * np.expm1(eps))))
        two, one = stats.norm.sf((x - 2.0) / s), stats.norm.sf((x - 1.0) / s)
        return np.clip(r * (two - alpha * one) - (1.0 - r) * np.expm1(eps) * stats.norm.sf(x / s), 0.0, 1.0)

    def profile(eps: Array) -> Array:
        size = np.abs(eps)
        return np.where(eps >= 0.0, above(size), -np.expm1(eps) + np.exp(eps) * null(size))

    return profile


def replace_profile(s: float, q: float) -> Profile:
    """Poisson's replace-one pair."""

    def profile(eps: Array) -> Array:
        # Where the densities' ratio is e^eps: q k y^2 + (1-q)(1-alpha) y - alpha q k = 0 in y = e^(x/s^2).
        alpha, k = np.exp(np.abs(eps)), q * math.exp(-1.0 / (2.0 * s * s))
        b = (1.0 - q) * -np.expm1(np.abs(eps))
        x = s * s * np.log((-b + np.sqrt(b * b + 4.0 * alpha * k * k)) / (2.0 * k))
        upper, base = stats.norm.sf((x - 1.0) / s), stats.norm.sf(x / s)
        value = q * upper + b * base - alpha * q * stats.norm.sf((x + 1.0) / s)
        value = np.clip(value, 0.0, 1.0)
        return np.where(eps >= 0.0, value, -np.expm1(eps) + np.exp(eps) * value)

    return profile


def delta_from_above(profile: Profile, count: int, epsilon: float, interval: float) -> float:
    """Pessimistic delta of ``count`` composed steps whose one-step profile is given; the loss is symmetric."""
    reach = interval
    while float(profile(np.array([reach]))[0]) > 1e-16 / count and reach < 100.0:
        reach *= 1.3
    last = math.ceil(reach / interval)
    indices = np.arange(-last, last + 1)
    # Far to the left a delta of 1 may come out a rounding above it, which the library refuses.
    deltas = np.minimum(np.minimum.accumulate(profile(np.asarray(indices * interval, dtype=np.float64))), 1.0)
    one = privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(interval, indices, deltas)
    )
    return float(one.self_compose(count).get_delta_for_epsilon(epsilon))


def shuffled_pair(local_epsilon: float, users: int) -> tuple[Array, Array]:
    """Shuffled messages: both laws of the counts, on (clones, messages from Q0), as the theorem writes them."""
    grown = math.exp(local_epsilon)
    p, q = np.zeros((users, users + 1)), np.zeros((users, users + 1))
    for clones in range(users):
        zeros = np.arange(users + 1)
        with_, without = stats.binom.pmf(zeros - 1, clones, 0.5), stats.binom.pmf(zeros, clones, 0.5)
        weight = stats.binom.pmf(clones, users - 1, 2 / (grown + 1)) / (grown + 1)
        p[clones], q[clones] = weight * (grown * with_ + without), weight * (with_ + grown * without)
    return p, q


def laplace_from_above(b: float, q: float, count: int, epsilon: float, interval: float) -> float:
    """Pessimistic delta of Poisson-sampled Laplace noise of scale b, by the library's own event."""
    one = privacy_loss_distribution.from_laplace_mechanism(
        b, sampling_prob=q, value_discretization_interval=interval, pessimistic_estimate=True
    )
    return float(one.self_compose(count).get_delta_for_epsilon(epsilon))
