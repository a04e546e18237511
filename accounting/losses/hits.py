"""This module accounts a step of Gaussian noise whose batch holds h contributions of one direction with probability
w_h.

With the largest contributions, which are h times the bound, the pairs are

* one direction comes or goes: sum_h w_h N(h, s^2) against N(0, s^2);
* it is replaced by its opposite: sum_h w_h N(h, s^2) against sum_h w_h N(-h, s^2).

These are the pairs of groups (`losses.group_poisson`) and, with h up to 2, of batches that are cut at random
(`losses.truncated_poisson`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.group_pairs import GroupPair
from accounting.fourier.pairs import Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.losses.mills import scaled_mills_difference
from accounting.losses.privacy_loss import PrivacyLoss, line_digits
from accounting.losses.support import Support, mirrored

Array = NDArray[np.float64]

#: The tilts at which moments are computed, and the largest number of nodes.
_TILTS, _MAX_NODES = np.geomspace(1e-3, 400.0, 70), 40_000
_ALLOWANCE = 1e-9
#: The largest number of hits whose moments are integrated; beyond it, a full batch bounds them.
FEW_HITS = 32
#: The most places that are searched one by one, and the points of a table for more places.
_FEW, _TABLE = 64, 4096
_REACH = 13.0
#: The largest distance of the means of a mixture, in standard deviations, and the largest number of its parts, for
#: which a lattice is tried.
_FARTHEST, _MOST_ON_LATTICE = 100.0, 32


@dataclass(frozen=True)
class HitsLoss(PrivacyLoss):
    """The loss of one step.

    Attributes:
        noise_multiplier: The noise multiplier s, over the bound of one contribution.
        log_weights: log w_h for h = 0, ..., H. The w_h add up to 1 up to less than rounding, and w_0 > 0.
        replaced: Whether the contributions are replaced by their opposites.
    """

    noise_multiplier: float
    log_weights: tuple[float, ...]
    replaced: bool

    pure_epsilon = math.inf
    has_pair = True

    @property
    def symmetric(self) -> bool:
        return self.replaced

    @property
    def most_hits(self) -> int:
        """The largest number H of hits."""
        return len(self.log_weights) - 1

    @cached_property
    def _hits(self) -> tuple[Array, Array]:
        """The means h / s for every h up to H, and the logs of the weights w_h."""
        return np.arange(self.most_hits + 1.0) / self.noise_multiplier, np.array(self.log_weights)

    @property
    def slow_on_lattice(self) -> bool:
        """Return whether the Gaussians of the mixture are so far apart, or so many, that a lattice takes minutes."""
        return self.most_hits > _MOST_ON_LATTICE or self.most_hits > _FARTHEST * self.noise_multiplier

    def contour_step(self, log_count: float, *, remove: bool) -> GaussianPairStep:
        pair = Pair.REPLACE if self.replaced else Pair.REMOVE if remove else Pair.ADD
        noise, weights = self.noise_multiplier / self.most_hits, self.log_weights
        return GaussianPairStep(GroupPair(pair, noise, -math.expm1(weights[0]), weights), line_digits(log_count))

    def _log_f(self, z: Array) -> tuple[Array, Array]:
        """Return log of sum_h w_h N(h) over N(0) at x = s z, and its slope in z."""
        shifts, logs = self._hits
        exponents = (z[..., None] - 0.5 * shifts) * shifts
        terms = logs + exponents
        top = terms.max(axis=-1)
        shares = np.exp(terms - top[..., None])
        total = shares.sum(axis=-1)
        # Differences from 1 lose no digits where f is close to 1, and no sum with a term above e is close to 1.
        change = np.expm1(np.minimum(exponents, 700.0)) @ np.exp(logs)
        near = np.abs(change) < 0.3
        return np.where(near, np.log1p(np.where(near, change, 0.0)), top + np.log(total)), (shares @ shifts) / total

    def log_moment(self, tilts: Array) -> Array:
        """Return K of the worse direction, by the trapezoid rule at some tilts and chords between them.

        Guarantees: moment_is_an_upper_bound: if every h Im z / s is within pi / 3, |f(z)| is between f(Re z) / 2 and
        f(Re z). So the rule's error is below 2^(2x+1) e^(w^2/2 - 2 pi w / step) times the integral, with w = pi s / (3
        H). Beyond the last node the integrand falls by e^-13 per unit. The moment of a full batch is an upper bound,
        too.
        """
        places, moments = self._moments
        mu = (2.0 if self.replaced else 1.0) * self.most_hits / self.noise_multiplier
        full = 0.5 * mu * mu * tilts * (tilts + 1.0) * (1.0 + 1e-14)
        return np.minimum(np.interp(tilts, places, moments, right=math.inf) * (1.0 + 1e-14), full)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        places, moments = [0.0], [0.0]
        for tilt in _TILTS.tolist() if self.most_hits <= FEW_HITS else []:
            moment = self._moment(tilt)
            if not math.isfinite(moment):
                break
            places.append(tilt)
            moments.append(moment)
        return np.array(places), np.array(moments)

    def _moment(self, tilt: float) -> float:
        steepest = self.most_hits / self.noise_multiplier
        strip = min(math.pi / (3.0 * steepest), 4.0)
        step = 2.0 * math.pi * strip / (50.0 + 0.5 * strip * strip + 2.0 * tilt)
        reach = (2.0 * tilt + 2.0) * steepest + _REACH
        if 2.0 * reach / step > _MAX_NODES:
            return math.inf
        z = np.arange(-reach, reach + step, step)
        log_weights = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) + math.log(step)
        logs, _ = self._log_f(z)
        if self.replaced:
            # Both densities relative to N(0): P^(x+1) Q^-x; the mirror image is the other direction.
            other, _ = self._log_f(-z)
            return float(scipy.special.logsumexp(log_weights + (tilt + 1.0) * logs - tilt * other)) + _ALLOWANCE
        worst = 0.0
        for power in (tilt + 1.0, -tilt):
            with np.errstate(over="ignore", invalid="ignore"):
                # f has mean 1 under N(0), so power (f - 1) can be subtracted. Every remaining term is nonnegative.
                rest = np.expm1(power * logs) - power * np.expm1(logs)
                small = float(np.sum(np.exp(log_weights) * np.maximum(rest, 0.0)))
            moment = math.log1p(small) if small < 1.0 else float(scipy.special.logsumexp(log_weights + power * logs))
            worst = max(worst, moment * (1.0 + _ALLOWANCE) + 1e-18)
        return worst

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess, as a sum of nonnegative differences of Mills ratios at the place where the likelihood
        ratio is e^eps.
        """
        if self.replaced:
            return mirrored(epsilons, self._replaced(np.abs(epsilons)))
        excess = np.empty_like(epsilons)
        positive = epsilons >= 0.0
        up, down = epsilons[positive], epsilons[~positive]
        if remove:
            excess[positive], excess[~positive] = self._beyond(up), self._before(down, np.zeros_like(down))
        else:
            excess[positive], excess[~positive] = self._before(-up, up), np.exp(down) * self._beyond(-down)
        return excess

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        reach, mass = -float(scipy.special.ndtri_exp(log_mass)), math.exp(log_mass)
        largest = float(self._hits[0][-1])
        if self.replaced:
            there = np.array([largest + reach])
            loss = float((self._log_f(there)[0] - self._log_f(-there)[0])[0])
            return Support(-loss, loss, mass, mass)
        floor = float(self._hits[1][0])
        if remove:
            return Support(floor, max(0.0, float(self._log_f(np.array([largest + reach]))[0][0])), 0.0, mass)
        return Support(min(0.0, -float(self._log_f(np.array([reach]))[0][0])), -floor, mass, 0.0)

    def _beyond(self, epsilons: Array) -> Array:
        """Return P(z > z*) - e^eps Q(z > z*)."""
        place, (shifts, logs) = self._place(epsilons), self._hits
        parts = [math.exp(w) * scaled_mills_difference(place - d, d) for d, w in zip(shifts[1:], logs[1:], strict=True)]
        return np.sum(parts, axis=0) if epsilons.size else epsilons

    def _before(self, epsilons: Array, times_exp: Array) -> Array:
        """Return e^eps Q(z < z*) - P(z < z*), times e^times_exp; zero below log w_0."""
        shifts, logs = self._hits
        before = np.zeros_like(epsilons)
        inside = epsilons > logs[0]
        place = self._place(epsilons[inside])
        with np.errstate(divide="ignore", under="ignore", over="ignore"):
            for d, w in zip(shifts[1:].tolist(), logs[1:].tolist(), strict=True):
                exponent = w + d * place - 0.5 * d * d + times_exp[inside]
                before[inside] += np.exp(np.log(scaled_mills_difference(-place, d)) + exponent)
        return before

    def _replaced(self, epsilons: Array) -> Array:
        """Return P(z > z*) - e^eps Q(z > z*) for eps >= 0, where z* is the place with likelihood ratio e^eps.

        Each N(h) is split among the N(-g) in proportion to their densities at z*.
        """
        shifts, logs = self._hits
        high = self._place(epsilons)
        low = np.zeros_like(high)
        place = 0.5 * high
        for _ in range(70):
            # This is Newton's method, with bisection where a Newton step would leave the bracket.
            (up, rise), (down, fall) = self._log_f(place), self._log_f(-place)
            gap = up - down - epsilons
            low, high = np.where(gap > 0.0, low, place), np.where(gap > 0.0, place, high)
            moved = place - gap / (rise + fall)
            moved = np.where((moved > low) & (moved < high), moved, 0.5 * (low + high))
            done = bool(np.all(np.abs(moved - place) <= 1e-13 * (1.0 + np.abs(moved))))
            place = moved
            if done:
                break
        high = place
        terms = logs - 0.5 * shifts * shifts - high[:, None] * shifts
        shares = np.exp(terms - scipy.special.logsumexp(terms, axis=1)[:, None])
        stick, last = np.zeros_like(high), shifts.size - 1
        for together in range(1, 2 * last + 1):
            # A place with h hits on one side and one with the other hits on the other side are equally far apart for
            # every h.
            h = np.arange(max(0, together - last), min(last, together) + 1)
            parts = scaled_mills_difference(high[:, None] - shifts[h], together / self.noise_multiplier)
            stick += (shares[:, together - h] * parts) @ np.exp(logs[h])
        return stick

    def _place(self, epsilons: Array) -> Array:
        """Return the z at which log f(z) = eps, by Newton's method. log f is convex, so from the first step on every
        iterate is above the root.
        """
        shifts, logs = self._hits
        if epsilons.size > _FEW:
            # For many epsilons, the search starts at the places that chords of a table give. They are close, and below
            # the true places.
            ends = self._place(np.array([epsilons.min(), epsilons.max()]))
            table = np.linspace(ends[0], ends[1], _TABLE)
            place: Array = np.interp(epsilons, self._log_f(table)[0], table)
        else:
            starts = (epsilons[:, None] - logs[1:] + 0.5 * shifts[1:] ** 2) / shifts[1:]
            place = starts.min(axis=1)
        for _ in range(200):
            value, slope = self._log_f(place)
            move = (value - epsilons) / slope
            place = place - move
            if bool(np.all(np.abs(move) <= 1e-13 * (1.0 + np.abs(place)))):
                break
        return place
