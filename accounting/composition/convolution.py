"""This module computes the composition's privacy loss by one Fourier transform on a lattice, with bounds on both sides.

Each step's loss is rounded to a lattice (`composition.lattice`), tilted by e^(c loss), and the tilted laws are
convolved: transforms multiply. With the tilt near the saddle point the result is accurate where it is read, however
small delta is (rounding is relative to M(c) e^(-c eps), not to 1). The following errors separate the computed number
from the truth. Each of them is bounded and named in the error budget:

* rounding to the lattice ("lattice"). The rounded profile is above the true one. Below: given the losses, X = e^-(sum
  of roundings) is a product of independent factors of mean 1 in [e^-h, e^h]. Each is, in convex order, below the
  likelihood ratio of h-randomised response, hence below that of a Gaussian pair with mu_h = 2 Phi^-1(e^h / (1 + e^h))
  (whose trade-off curve passes through the same vertex). With eta = sqrt(count) mu_h, the rounding therefore adds at
  most E b(L - eps), b(y) = eta phi(y/eta) e^(-y/2): a Black-Scholes price of volatility eta less its intrinsic value is
  the integral of vega. L is known only rounded, so b is replaced by its supremum over a distance kappa = 7 eta, and
  the Gaussian's moments bound P(|log X| > kappa).
* periodicity ("aliasing"). The window has length P; what lies beyond is folded in. Folding only adds mass inside. Mass
  beyond the right end is bounded by Chernoff and added. Lower bounds subtract both.
* the tails sent to +infinity or lifted to the lattice's end ("truncation").
* floating point ("rounding"): an estimate of the transform's error with a margin, not a proof. It is checked against
  closed forms and against long-precision references in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.composition.lattice import LatticeLaw, lattice_law
from accounting.composition.line import Line, LoweringTerms
from accounting.composition.renyi import RenyiBound
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction

Array = NDArray[np.float64]

#: Largest transform, in lattice points.
MAX_TRANSFORM = 2**19
#: The most kinds of steps in one list, since the law of each must be made and transformed.
MAX_DIFFERENT_STEPS = 40
_UNIT = 2.0**-53
RIGHT_TILTS = np.array([1.1, 1.25, 1.5, 2.0, 3.0, 6.0])
LEFT_TILTS = np.array([0.0, 0.25, 0.5, 0.75])
#: Sums of smaller numbers may be subnormal, and then have no bounded relative error.
_SMALLEST_DELTA = 1e-300


@dataclass(frozen=True)
class Convolution:
    """The evaluator that convolves laws on a lattice.

    Attributes:
        max_points: Largest transform; a smaller one is faster and gives wider, still sound bounds.
        truncation_margin: How far the mass that each tail may lose lies below the expected delta, in nats.
        window: Length of the window relative to the length at which aliasing is negligible. A number below 1 gives a
            coarser answer.

    Guarantees: interval_contains_truth, whatever the attributes are; each_knob_grows_its_term.
    """

    max_points: int = MAX_TRANSFORM
    truncation_margin: float = 30.0
    window: float = 1.0

    name = "privacy_loss_distribution"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        if not _is_worthwhile(composition):
            return None
        tilt = RenyiBound().best_tilt(composition, epsilon=epsilon)
        target = RenyiBound().delta(composition, epsilon)
        assert target is not None
        if target.upper < _SMALLEST_DELTA:
            return None
        log_delta = math.log(target.upper) - 8.0
        bounds = [
            self._line(composition, way, tilt, epsilon, log_delta).delta_bounds(epsilon)
            for way in composition.directions
        ]
        return worse_direction(bounds)

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        if not _is_worthwhile(composition) or delta < _SMALLEST_DELTA:
            return None
        tilt = RenyiBound().best_tilt(composition, delta=delta)
        guess = RenyiBound().epsilon(composition, delta)
        assert guess is not None
        centre = max(0.0, guess.upper - 4.0 / tilt)
        bounds = []
        for way in composition.directions:
            line = self._line(composition, way, tilt, centre, math.log(delta))
            bounds.append(line.epsilon_bounds(delta))
        return worse_direction(bounds)

    def _line(self, composition: Composition, way: Direction, tilt: float, centre: float, log_delta: float) -> Line:
        """Return the convolved law around ``centre``, for deltas of the size e^log_delta."""
        remove = way is Direction.REMOVE
        tilt, period = choose_tilt(composition, tilt, centre, log_delta)
        log_mass = log_delta - math.log(composition.count) - self.truncation_margin
        step = self._step(composition, tilt, period, log_mass, remove)
        # A tilt as large as the inverse of the lattice step would amplify the rounding and not the losses.
        tilt = min(tilt, 1.0 / (step * math.sqrt(composition.count)))
        laws = [
            (lattice_law(loss, remove=remove, step=step, log_mass=log_mass), count) for loss, count in composition.steps
        ]
        tilts = np.concatenate([[tilt], RIGHT_TILTS * tilt, LEFT_TILTS * tilt])
        moments = np.zeros_like(tilts)
        for law, count in laws:
            moments += count * law.log_moments(tilts)
        lowering = _lowering(composition.count, step, tilt)
        log_scale = float(moments[0]) - tilt * centre
        margin = min(12.0 / tilt, 300.0 / (tilt + 1.0))
        period = window_length(tilt, moments, tilts, centre, log_delta - 21.0) + 2.0 * (lowering.reach + margin)
        length = self.window * min(float(self.max_points), max(4096.0, period / step))
        points = scipy.fft.next_fast_len(math.ceil(length), real=True)
        first = math.floor((centre - margin - lowering.reach) / step)
        values, rounding = convolve(laws, tilt, points, first)
        return Line(
            values=values,
            first=first,
            step=step,
            tilt=tilt,
            centre=centre,
            log_scale=log_scale,
            tilts=tilts[1:],
            moments=moments[1:],
            rounding=rounding,
            infinite_mass=math.fsum(count * law.infinite_mass for law, count in laws),
            lumped_mass=math.fsum(count * law.lumped_mass for law, count in laws),
            lowering=lowering,
        )

    def _step(self, composition: Composition, tilt: float, period: float, log_mass: float, remove: bool) -> float:
        """Return the lattice step. It is as coarse as the accuracy goal allows, but not finer than the transform's
        size allows.
        """
        goal = math.sqrt(1e-7 / (composition.count * (tilt + 1.0) ** 2))
        longest = 0.0
        for loss, _ in composition.steps:
            support = loss.support(log_mass, remove=remove)
            longest = max(longest, support.upper - support.lower)
        window = period + 2.0 * min(12.0 / tilt, 300.0 / (tilt + 1.0))
        return max(goal, 1.05 * window / self.max_points, longest / (2.0 * self.max_points))


def _is_worthwhile(composition: Composition) -> bool:
    """Return whether the convolution is worth its time. It is not if very many steps differ; then only the Renyi
    bound answers.
    """
    return composition.has_pairs and len(composition.steps) <= MAX_DIFFERENT_STEPS


def choose_tilt(composition: Composition, saddle: float, centre: float, log_delta: float) -> tuple[float, float]:
    """Return the tilt with the shortest window, and the length of that window. The tilt is at most that of the saddle
    point.

    Beyond the order at which the moments of a sampled mechanism explode, the saddle point's own window is far too long;
    a smaller tilt only amplifies rounding, which is allowed up to e^14.
    """
    best, shortest = saddle, math.inf
    for factor in (1.0, 0.8, 0.65, 0.5, 0.35, 0.2):
        tilt = saddle * factor
        tilts = np.concatenate([[tilt], RIGHT_TILTS * tilt, LEFT_TILTS[1:] * tilt])
        moments = composition.log_moment(tilts)
        amplification = float(moments[0]) - tilt * centre - math.log1p(tilt) - log_delta
        if not math.isfinite(amplification) or (amplification > 14.0 and shortest < math.inf):
            continue
        finite = np.isfinite(moments)
        period = window_length(tilt, moments[finite], tilts[finite], centre, log_delta - 21.0)
        if period < 0.8 * shortest:
            best, shortest = tilt, period
    return best, shortest


def window_length(tilt: float, moments: Array, tilts: Array, centre: float, log_tolerance: float) -> float:
    """Return a window length at which both alias bounds are below e^log_tolerance (for the tilts that are known)."""
    longest = 0.0
    for side in (tilts > tilt, tilts < tilt):
        gaps = np.abs(tilts[side] - tilt)
        excess = np.logaddexp(0.0, moments[side] - tilts[side] * centre - log_tolerance)
        if gaps.size:
            longest = max(longest, float(np.min(excess / gaps)))
    return longest


def _lowering(count: int, step: float, tilt: float) -> LoweringTerms:
    """Return eta and kappa, which bound the effect of rounding ``count`` steps to a lattice of spacing ``step``.

    Both are defined in the first bullet of the module's docstring.
    """
    mu = 2.0 * float(scipy.special.ndtri(1.0 / (1.0 + math.exp(-step)))) * (1.0 + 1e-9) + 1e-15
    eta = math.sqrt(count) * mu
    return LoweringTerms(eta=eta, kappa=7.0 * eta, usable=eta < 0.25 and (tilt + 0.5) * eta < 1.0)


def convolve(laws: list[tuple[LatticeLaw, int]], tilt: float, points: int, first: int) -> tuple[Array, float]:
    """Return the tilted law of the sum at lattice indices first .. first + points - 1 (modulo ``points``), and its
    error.

    Returns:
        The masses, whose sum is 1 up to rounding, and a bound of the sum of their absolute errors.
    """
    spectrum: NDArray[np.complex128] = np.zeros(points // 2 + 1, dtype=np.complex128)
    offset, error = 0, 0.0
    for law, count in laws:
        losses = (law.first + np.arange(law.masses.size)) * law.step
        with np.errstate(divide="ignore"):
            logs = np.log(law.masses) + tilt * losses
        tilted = np.exp(logs - logs.max())
        total = float(tilted.sum())
        tilted /= total
        with np.errstate(divide="ignore"):
            # Lifted mass is multiplied by its weight under the tilt. This weight may be large at large losses.
            lifted = float(np.exp(np.log(law.lifted) + tilt * losses - logs.max()).sum()) / total
        folded = np.bincount(np.arange(tilted.size) % points, weights=tilted, minlength=points)
        transform = scipy.fft.rfft(folded)
        spectrum += count * np.log(np.where(transform == 0.0, 1e-300, transform))
        offset += count * law.first
        per_step = 4.0 * math.log2(points) * float(np.linalg.norm(folded)) + 40.0
        error += count * (per_step * _UNIT + law.defect + lifted)
    product = np.exp(spectrum)
    masses: Array = scipy.fft.irfft(product, points)
    # Relative errors of the spectrum's entries become absolute errors of the masses, in the mean square.
    rounding = error * math.sqrt(2.0 * float(np.sum(np.abs(product) ** 2))) + 8.0 * _UNIT * math.log2(points)
    return np.roll(masses, -((first - offset) % points)), rounding


def worse_direction(bounds: list[Bounds]) -> Bounds:
    """Return the interval of the larger of the two directions' numbers."""
    worst = max(bounds, key=lambda item: item.upper)
    lower = max(item.lower for item in bounds)
    estimates = max(item.estimate for item in bounds)
    return Bounds(min(lower, worst.upper), worst.upper, estimates, worst.error_budget)
