"""A summary of a whole trade-off curve by one number mu, and its regret: the distance of Gaussian DP from the truth.

The regret of replacing a curve f by a curve g is the smallest k for which g, moved by (k, k) towards the origin, is
below f: g(a + k) - k <= f(a) for every false positive rate a. Moving a curve by (k, k) changes its Bayes risk by k at
each prior (`bayes_risk`), and convex curves are ordered as their Bayes risks, so the regret is

    the largest of R_g(p) - R_f(p) over all priors p, or 0:

For every prior, an attacker's probability of success exceeds the probability that g allows by at most this regret.
There is one regret in each direction; the larger of the two is a distance between the curves.

Bounds. R is concave in p, R(0) = 0, and R(p) = R(1 - p), for the list and for the Gaussian. Between two priors a
concave function lies above its chord and below the extensions of the neighbouring chords; a chord's extension is
highest with the UPPER end at the nearer node and the LOWER end at the farther one. So certified deltas at some priors
bound both regrets over all priors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.accountant import deltas_for_epsilons
from accounting.bayes_risk import log_odds, risk_of_delta
from accounting.composition.composition import compose
from accounting.errors import Unreachable
from accounting.events import Event
from accounting.guarantees import MAX_MU
from accounting.intervals import Interval
from accounting.losses.mills import scaled_mills_difference
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]
Ends = tuple[Array, Array]

#: Priors from 0 to 1/2: at equal distances, and a few smaller ones at equal ratios.
_EVEN, _SMALL = 128, 12
DEFAULT_REGRET = 1e-3
_SMALLEST_MU = 1e-9
#: The relative tolerance of mu; the regret is certified at the mu that is reported.
_TOLERANCE = 1e-6
_ROUNDING = 1e-15


@dataclass(frozen=True, slots=True)
class RegretOfGaussian:
    """A mu, and the distance of its curve from that of the list.

    Attributes:
        mu: The mu of the Gaussian trade-off curve.
        promised_too_much: A bound on how far an attacker's probability of success may exceed what mu-Gaussian DP
            allows, for any prior.
        promised_too_little: A bound on how far the best attacker's probability of success stays below what mu-Gaussian
            DP allows, for any prior.
    """

    mu: float
    promised_too_much: float
    promised_too_little: float

    @property
    def regret(self) -> float:
        """The larger of the two regrets, which is a distance between the curves."""
        return max(self.promised_too_much, self.promised_too_little)


@dataclass(frozen=True, slots=True)
class GaussianSummary:
    """Two summaries of a list's privacy by one mu.

    Attributes:
        closest: The mu with the smallest certified distance.
        conservative: The smallest mu that promises too much by no more than the allowed regret.
        allowed: The allowed regret.
    """

    closest: RegretOfGaussian
    conservative: RegretOfGaussian
    allowed: float


def gaussian_summary(
    events: Sequence[Event],
    relation: NeighboringRelation,
    regret: float = DEFAULT_REGRET,
    *,
    deltas_at: Callable[[Sequence[float]], Sequence[Interval]] | None = None,
    group_size: int = 1,
) -> GaussianSummary:
    """Return the Gaussian trade-off curves that stand for a list, with certified regrets.

    Args:
        events: 1 to 1000 events, fixed before the first output is seen.
        relation: the neighbouring relation.
        regret: The largest amount by which ``conservative`` may promise too much, in [1e-4, 0.5). (With 0, no mu below
            that of the unsampled steps would do, because the rarest losses of a sampled Gaussian are as large as those
            of the unsampled one.)
        deltas_at: A function that returns certified deltas at several epsilons, if they do not come from the engine
            here.
        group_size: The number of records for which ``deltas_at`` holds; the list's own mu is for one record.

    Guarantees:
        both_regrets_hold: at every prior, the list's Bayes risk is at least that of mu less ``promised_too_much``, and
            at most that of mu plus ``promised_too_little``.
        exact_for_full_batch: for Gaussians alone, both numbers are the list's own mu, without regret.

    Raises:
        InvalidValue: If a number is out of range.
        Unreachable: If no mu up to 1e6 is within the regret.

    Source: Kaissis et al. 2024 (the divergence); Gomez, Kulynych et al. 2025 (mu with regret); the module for bounds.

    >>> from accounting.events import Gaussian
    >>> found = gaussian_summary([Event(Gaussian(2.0), count=4)], NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> round(found.closest.mu, 12), found.closest.regret
    (1.0, 0.0)
    """
    regret = read_real("regret", regret, 1e-4, 0.5)
    relation = NeighboringRelation(relation)
    composition = compose(events, relation)
    if composition.gaussian_only is not None and group_size == 1:
        exact = RegretOfGaussian(composition.gaussian_only.mu * (1.0 + _ROUNDING), 0.0, 0.0)
        return GaussianSummary(exact, exact, regret)
    curve = _Risks(events, relation, deltas_at)
    start = min(
        max(float(-2.0 * scipy.special.ndtri(min(max(curve.largest, 1e-300), 0.5 - 1e-12))), _SMALLEST_MU), MAX_MU
    )
    conservative = _first(lambda mu: curve.regret(mu).promised_too_much <= regret, start)
    if conservative is None:
        raise Unreachable(f"no mu up to {MAX_MU:g} is within a regret of {regret:g}", pointer=("regret",))
    closest = _first(lambda mu: curve.regret(mu).promised_too_much <= curve.regret(mu).promised_too_little, start)
    # If no mu promises too little, as for steps that always fail, the conservative mu is the closest that is known.
    best = curve.regret(conservative if closest is None else closest)
    return GaussianSummary(best, curve.regret(conservative), regret)


def regret_of_gaussian(events: Sequence[Event], relation: NeighboringRelation, mu: float) -> RegretOfGaussian:
    """Return the distance between the curve of mu-Gaussian DP and that of the list.

    Args:
        events, relation: As in `gaussian_summary`.
        mu: in [1e-9, 1e6].

    Guarantees: both_regrets_hold, as above.

    Raises:
        InvalidValue: If a number is out of range.

    >>> from accounting.events import PureDp
    >>> found = regret_of_gaussian([Event(PureDp(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1.2320353854)
    >>> found.promised_too_much < 1e-4, round(found.promised_too_little, 3)
    (True, 0.058)
    """
    mu = read_real("mu", mu, _SMALLEST_MU, MAX_MU)
    return _Risks(events, NeighboringRelation(relation), None).regret(mu)


class _Risks:
    """Bounds of a list's Bayes risk at some priors."""

    def __init__(
        self,
        events: Sequence[Event],
        relation: NeighboringRelation,
        deltas_at: Callable[[Sequence[float]], Sequence[Interval]] | None,
    ) -> None:
        self._priors = _priors()
        self._odds = [log_odds(float(prior)) for prior in self._priors[1:]]
        asked = [epsilon for _, least, most in self._odds for epsilon in (least, most)]
        found = deltas_at(asked) if deltas_at is not None else _deltas(events, relation, asked)
        risks = [risk_of_delta(odds[0], found[2 * k + 1], found[2 * k]) for k, odds in enumerate(self._odds)]
        self._risks = (
            np.array([0.0, *(risk.lower for risk in risks)]),
            np.array([0.0, *(risk.upper for risk in risks)]),
        )

    @property
    def largest(self) -> float:
        """The largest risk, which is that at prior 1/2."""
        return float(self._risks[0][-1])

    def regret(self, mu: float) -> RegretOfGaussian:
        of_mu = _risks_of_gaussian(mu, self._odds)
        too_much, too_little = _regret(self._priors, of_mu, self._risks), _regret(self._priors, self._risks, of_mu)
        return RegretOfGaussian(mu, too_much, too_little)


def _deltas(events: Sequence[Event], relation: NeighboringRelation, epsilons: Sequence[float]) -> list[Interval]:
    unique = sorted(set(epsilons))
    answers = deltas_for_epsilons(events, relation, unique)
    known = {epsilon: answer.value for epsilon, answer in zip(unique, answers, strict=True)}
    return [known[epsilon] for epsilon in epsilons]


def _priors() -> Array:
    even = np.linspace(0.0, 0.5, _EVEN + 1)
    return np.concatenate([[0.0], np.geomspace(1e-5, 0.8 * even[1], _SMALL), even[1:]])


def _risks_of_gaussian(mu: float, odds: Sequence[tuple[float, float, float]]) -> Ends:
    smaller, least, most = (np.array(column) for column in zip(*odds, strict=True))
    low, high = _deltas_of_gaussian(mu, most, -1.0), _deltas_of_gaussian(mu, least, 1.0)
    lower = smaller * (1.0 - high) * (1.0 - 4.0 * _ROUNDING)
    upper = np.minimum(smaller * (1.0 - low) * (1.0 + 4.0 * _ROUNDING), smaller)
    return np.append(0.0, lower), np.append(0.0, upper)


def _deltas_of_gaussian(mu: float, epsilons: Array, sign: float) -> Array:
    """Return delta_mu(eps) rounded up (sign 1) or down (sign -1), as `AnalyticGaussian` has it."""
    places = epsilons / mu - 0.5 * mu
    places = places - sign * 4.0 * _ROUNDING * (epsilons / mu + 0.5 * mu)
    deltas = scaled_mills_difference(places, mu) * (1.0 + sign * 1e-14 * (1.0 + places * places))
    return np.clip(deltas, 0.0, 1.0)


def _regret(priors: Array, first: Ends, second: Ends) -> float:
    """Return an upper bound of the largest R_first - R_second over all priors, which is at least 0.

    On a cell, R_first is below the extensions of the chords on either side (of slope 1 at prior 0, and mirrored at
    1/2), and R_second is above its own chord. The difference of these bounds is largest at a node, or where the
    extensions cross.
    """
    gaps = np.diff(priors)
    lower, upper = first
    rise = np.append(1.0, np.minimum((upper[1:-1] - lower[:-2]) / gaps[:-1], 1.0))
    beyond = (np.append(lower[2:], lower[-2]) - upper[1:]) / np.append(gaps[1:], gaps[-1])
    chord = np.diff(second[0]) / gaps
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (upper[1:] - beyond * gaps - upper[:-1]) / (rise - beyond)
    inside = np.isfinite(crossing) & (crossing > 0.0) & (crossing < gaps)
    shift = np.where(inside, crossing, 0.0)
    ceilings = np.maximum(upper[:-1] + rise * shift, upper[1:] - beyond * (gaps - shift))
    between = np.where(inside, ceilings - second[0][:-1] - chord * shift, 0.0)
    largest = max(float(np.max(upper - second[0])), float(np.max(between)), 0.0)
    return largest + 8.0 * _ROUNDING


def _first(met: Callable[[float], bool], start: float) -> float | None:
    """Return the smallest mu from which on a condition is met, to a relative `_TOLERANCE`; None beyond `MAX_MU`."""
    low = high = start
    while not met(high):
        if high >= MAX_MU:
            return None
        low, high = high, min(2.0 * high, MAX_MU)
    while low == high and met(low) and low > _SMALLEST_MU:
        low, high = max(0.5 * low, _SMALLEST_MU), low
        if met(low):
            high = low
    while high > low * (1.0 + _TOLERANCE):
        middle = math.sqrt(low * high)
        if met(middle):
            high = middle
        else:
            low = middle
    return high
