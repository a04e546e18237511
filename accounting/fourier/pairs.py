"""The subsampled Gaussian pairs on the real line and on lines parallel to it.

s = noise multiplier, q = sampling probability, a(x) = (2x - 1) / (2 s^2), f(x) = 1 - q + q e^a(x), x ~ N(0, s^2).
f vanishes only at Im x = pi s^2 (2k + 1), so everything here is analytic for |Im x| < pi s^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.normal import log_normal_below

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


#: The pairs, as the compiled loops know them.
_REMOVE, _ADD, _REPLACE = 0, 1, 2
#: Panels towards the ends, in units of s: a band's share needs finer ones, because tilts there are larger.
_FAR_STEPS = np.concatenate([np.arange(40) * 0.25, 10.0 * 1.35 ** np.arange(16)])
_FINE_FAR_STEPS = np.concatenate([np.arange(80) * 0.125, 10.0 * 1.1 ** np.arange(120)])


class Pair(Enum):
    """The exponents of f in the moment.

    REMOVE: M(z) = E f(x)^(z+1). ADD: E f(x)^(-z). REPLACE: E f(x)^(z+1) f(-x)^(-z).
    """

    REMOVE = "remove"
    ADD = "add"
    REPLACE = "replace"


_NUMBERS = {Pair.REMOVE: _REMOVE, Pair.ADD: _ADD, Pair.REPLACE: _REPLACE}


@dataclass(frozen=True, slots=True)
class Band:
    """A smooth share of a law: Phi((high - x) / width) - Phi((low - x) / width).

    Bands that follow each other with one width add up to everything.

    Attributes:
        low, high: Where it begins and ends, in units of x; -inf and inf for no end.
        width: w > 0.
    """

    low: float
    high: float
    width: float

    def log_share(self, x: Array) -> Array:
        """Return the log of the share on the real line."""
        below, above = (
            scipy.special.log_ndtr((x - self.low) / self.width),
            scipy.special.log_ndtr((self.high - x) / self.width),
        )
        if math.isinf(self.low):
            return np.asarray(above)
        if math.isinf(self.high):
            return np.asarray(below)
        left = x < 0.5 * (self.low + self.high)
        larger = np.where(left, below, above)
        smaller = np.where(
            left,
            scipy.special.log_ndtr((x - self.high) / self.width),
            scipy.special.log_ndtr((self.low - x) / self.width),
        )
        share: Array = larger + np.log1p(-np.exp(smaller - larger))
        return share

    def shifted_log_share(self, u: Array, shift: float) -> Complex:
        """Return log of the share at u + i shift: its real part is at most shift^2 / (2 width^2) above that at u."""
        x: Complex = (u + 1j * shift).astype(np.complex128)
        if math.isinf(self.low):
            return _log_normal_tail((x - self.high) / self.width)
        if math.isinf(self.high):
            return _log_normal_tail((self.low - x) / self.width)
        # Each side from the end that it is near, so that nothing cancels.
        left = u < 0.5 * (self.low + self.high)
        near: Complex = np.where(left, self.low - x, x - self.high)
        far: Complex = np.where(left, self.high - x, x - self.low)
        larger, smaller = _log_normal_tail(near / self.width), _log_normal_tail(far / self.width)
        share: Complex = larger + np.log1p(-np.exp(smaller - larger))
        return share


def _log_normal_tail(z: Complex) -> Complex:
    """log of 1 - Phi(z) = erfc(z / sqrt 2) / 2, continued."""
    v = z / math.sqrt(2.0)
    # erfc(v) = e^(-v^2) wofz(iv) where Re v >= 0, by reflection elsewhere.
    right = v.real >= 0.0
    folded = np.where(right, v, -v)
    log_tail = np.log(0.5 * scipy.special.wofz(1j * folded)) - folded * folded
    with np.errstate(under="ignore"):
        tail = np.exp(np.where(right, -800.0, log_tail))
    return np.where(right, log_tail, np.log1p(-tail))


@dataclass(frozen=True, slots=True)
class GaussianPair:
    """One of the three pairs with its noise and its probability; losses as functions of x.

    Attributes:
        noise: s.
        probability: q, in (0, 1).
    """

    pair: Pair
    noise: float
    probability: float

    def exponents(self, x: Array) -> tuple[Array, Array]:
        """Real line: (log density of P over N(0, s^2), loss), both of the shape of ``x``."""
        here = self._log_f(x)
        if self.pair is Pair.REMOVE:
            return here, here
        if self.pair is Pair.ADD:
            return np.zeros_like(here), -here
        return here, here - self._log_f(-x)

    def shifted_exponents(self, u: Array, angle: float) -> tuple[Array, Array, Array, Array]:
        """Return the exponents on the line u + i angle s^2 (ADD: u - i angle s^2), as real and imaginary parts.

        The imaginary part of the loss is nonnegative for 0 <= angle <= pi, so e^(itL) decays for t > 0.
        """
        modulus, argument = self._shifted_log_f(u, angle)
        if self.pair is Pair.REMOVE:
            return modulus, argument, modulus, argument
        if self.pair is Pair.ADD:
            return np.zeros_like(modulus), np.zeros_like(modulus), -modulus, argument
        other_modulus, other_argument = self._shifted_log_f(-u, angle)
        return modulus, argument, modulus - other_modulus, argument + other_argument

    def slope(self, x: Array) -> Array:
        """|d loss / dx|."""
        here = np.exp(self._a(x) + math.log(self.probability) - self._log_f(x))
        if self.pair is Pair.REPLACE:
            here = here + np.exp(self._a(-x) + math.log(self.probability) - self._log_f(-x))
        slope: Array = here / self.noise**2
        return slope

    @property
    def log_least(self) -> float:
        """log of the infimum of f."""
        return math.log1p(-self.probability)

    @property
    def cancellation(self) -> float:
        """The rounding of log f beyond its own size, in units of the unit roundoff."""
        return 0.0

    def largest_tilt(self, count: int, epsilon: float, level: float) -> float:
        """Bound the tilt as `steps.Step` says; not for ADD.

        It follows from M(x) >= q^(x+1) e^(x(x+1)/(2 s^2)), the part in which the record takes part.
        """
        return steepest_tilt(math.log(self.probability), 0.5 / self.noise**2, count, epsilon, level)

    def mass_beyond(self, x: float, width: float) -> float:
        """P-mass beyond x, of x with more noise of this width, but for rounding (not ADD)."""
        s, q = math.hypot(self.noise, width), self.probability
        return float((1.0 - q) * scipy.special.ndtr(-x / s) + q * scipy.special.ndtr((1.0 - x) / s))

    def log_growth(self, angle: float, tilt: float) -> float:
        """log of how much |density e^(tilt L)| on the line at ``angle`` s^2 can exceed its value on the real line.

        Without the Gaussian's own e^(angle^2 s^2 / 2). |f(u + iv)| <= f(u) and >= f(u) cos(v / (2 s^2)), because
        |A + B e^(i phi)|^2 = (A + B)^2 - 2AB (1 - cos phi) >= (A + B)^2 cos^2(phi / 2) for A, B >= 0.
        """
        return 0.0 if self.pair is Pair.REMOVE else -tilt * math.log(math.cos(0.5 * angle))

    def window(self, tilt: float) -> tuple[float, float]:
        """Return a generous window for the density e^(tilt L) N(0, s^2); `log_tail` bounds what is left out."""
        reach, floor = 13.0 * self.noise, self._floor
        if self.pair is Pair.REMOVE:
            return -reach, tilt + 1.0 + reach
        if self.pair is Pair.ADD:
            return -reach - min(tilt, max(0.0, -floor)), reach
        return -reach, tilt + 1.0 + reach + min(tilt, max(0.0, -floor))

    def log_tail(self, left: float, right: float, tilts: Array, band: Band | None = None) -> Array:
        """log of a bound of the integral of density e^(tilt L) N(0, s^2) outside [left, right], for every tilt.

        Over panels towards either end: the largest value of the monotone factor times the mass of N(0, s^2) beyond
        the panel's nearer end; and a closed form behind the last panel.
        """
        s = self.noise
        steps = (_FAR_STEPS if band is None else _FINE_FAR_STEPS) * s
        # The factor grows away from the centre on one side only; on the other its value at the end bounds it.
        outward, flat = (left - steps, right) if self.pair is Pair.ADD else (right + steps, left)
        base, loss = self.exponents(np.append(outward, flat))
        if self.pair is Pair.ADD:
            ratios = (0.0, 0.0)
        else:
            first, last = (base[[0, -2]] - self._a(outward[[0, -1]])).tolist()
            ratios = (first, last)
        near_flat = log_normal_below(-abs(flat) / s) if band is None else self._log_below(flat, band)
        ends = (-math.inf, math.inf, 1.0) if band is None else (band.low, band.high, band.width)
        return _log_tail(
            _NUMBERS[self.pair],
            s,
            tilts,
            outward,
            base[1:-1],
            loss[1:-1],
            ratios,
            self.log_least,
            (float(base[-1]), float(loss[-1]), near_flat),
            ends,
        )

    def _log_below(self, left: float, band: Band) -> float:
        """log of a bound of the integral of N(0, s^2) times the band's share over x < ``left``, left of the band.

        There Phi((x - low) / w) is at most its value at ``left`` times e^(k (x - left)) with k = (low - left) / w^2,
        because phi(z) >= -z Phi(z).
        """
        s = self.noise
        if math.isinf(band.low):
            return log_normal_below(left / s)
        k = max((band.low - left) / band.width**2, 0.0)
        m = k * s - left / s
        return (
            log_normal_below((left - band.low) / band.width)
            - 0.5 * (left / s) ** 2
            + 0.5 * m * m
            + log_normal_below(-m)
        )

    @property
    def _floor(self) -> float:
        """Left of it f is dominated by its infimum, and hardly moves."""
        return 0.5 + self.noise**2 * (math.log1p(-self.probability) - math.log(self.probability))

    def place_of_loss(self, loss: float) -> float:
        """x with loss(x) = ``loss`` > 0; the loss grows with x in the directions that are cut."""
        if self.pair is Pair.REMOVE:
            # log(1 - q + q e^a) = loss
            q = self.probability
            a = math.log1p(math.expm1(loss) / q) if loss < 30.0 else loss - math.log(q)
            return 0.5 + a * self.noise**2
        return self._searched_place(loss)

    def _searched_place(self, loss: float) -> float:
        low, high = -20.0 * self.noise, 20.0 * self.noise + 1.0
        while float(self.exponents(np.array([high]))[1][0]) < loss:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            if float(self.exponents(np.array([middle]))[1][0]) < loss:
                low = middle
            else:
                high = middle
        return high

    def _a(self, x: Array) -> Array:
        a: Array = (x - 0.5) / self.noise**2
        return a

    def _log_f(self, x: Array) -> Array:
        """log f without overflow, relatively accurate where f is near 1."""
        return _log_ratio(x, self.noise, self.probability)

    def _shifted_log_f(self, u: Array, angle: float) -> tuple[Array, Array]:
        """log |f| and arg f at u + i angle s^2."""
        return _shifted_log_ratio(u, self.noise, self.probability, angle)


@compiled
def _log_ratio(x: Array, s: float, q: float) -> Array:
    """log(1 - q + q e^a(x)) at each x."""
    log_q, log_f = math.log(q), np.empty(x.size)
    for j in range(x.size):
        a = (x[j] - 0.5) / (s * s)
        scaled = a + log_q
        if scaled < 0.0:
            change = q * math.expm1(a)
            # Where f is small, 1 - q is most of what is left of it, and log1p of a number near -1 would lose it.
            log_f[j] = math.log1p(change) if change > -0.5 else math.log((1.0 - q) + math.exp(scaled))
        else:
            log_f[j] = scaled + math.log1p((1.0 - q) * math.exp(-scaled))
    return log_f


@compiled
def _shifted_log_ratio(u: Array, s: float, q: float, angle: float) -> tuple[Array, Array]:
    """log |f| and arg f at each u + i angle s^2."""
    log_q, modulus, argument = math.log(q), np.empty(u.size), np.empty(u.size)
    cosine, sine = math.cos(angle), math.sin(angle)
    turned = 2.0 * math.sin(0.5 * angle) ** 2
    for j in range(u.size):
        a = (u[j] - 0.5) / (s * s)
        scaled = a + log_q
        term = math.exp(-abs(scaled))
        if scaled < 0.0:
            real, imaginary = (1.0 - q) + term * cosine, term * sine
            change = q * (math.expm1(a) * cosine - turned)
            if abs(change) < 0.3:
                modulus[j] = 0.5 * math.log1p(change * (2.0 + change) + imaginary * imaginary)
            else:
                modulus[j] = math.log(max(math.hypot(real, imaginary), 1e-300))
        else:
            real, imaginary = cosine + (1.0 - q) * term, sine
            modulus[j] = scaled + math.log(max(math.hypot(real, imaginary), 1e-300))
        argument[j] = math.atan2(imaginary, real)
    return modulus, argument


@compiled
def _log_tail(
    number: int,
    s: float,
    tilts: Array,
    places: Array,
    base: Array,
    loss: Array,
    ratios: tuple[float, float],
    log_least: float,
    flat: tuple[float, float, float],
    band: tuple[float, float, float],
) -> Array:
    """`GaussianPair.log_tail`, from what the pair says of the panels' ends.

    Args:
        number: The pair's.
        places: Ends of the panels, outwards; ``base`` and ``loss`` at all but the first.
        ratios: log f - a at the first and at the last place.
        flat: At the other end: the density's exponent, the loss, and log of the mass beyond.
        band: Its low and high end and its width; infinite ends without a band.
    """
    panels, low, high, width = places.size - 1, band[0], band[1], band[2]
    mass, share, logs = np.empty(panels + 1), np.zeros(panels), np.empty(panels)
    for k in range(panels + 1):
        mass[k] = log_normal_below(-abs(places[k]) / s)
    if low > -math.inf or high < math.inf:
        # ADD has no bands: outward is to the right. Each factor of the share at the end where it is larger.
        for k in range(panels):
            share[k] = min(
                log_normal_below((high - places[k]) / width), log_normal_below((places[k + 1] - low) / width)
            )
    tails = np.empty(tilts.size)
    for i in range(tilts.size):
        x = tilts[i]
        for k in range(panels):
            logs[k] = base[k] + x * loss[k] + mass[k] + share[k]
        summed = _log_sum(logs)
        ends = np.empty(2)
        for at in range(2):
            place, log_mass = places[at * panels], mass[at * panels]
            if number == _ADD:
                ends[at] = -x * log_least + log_mass
                continue
            # f e^-a decreases, so f^p <= (f e^-a)(place)^p e^(p a), a Gaussian of mean p.
            p = x + 1.0
            beyond = p * ratios[at] + 0.5 * p * (p - 1.0) / (s * s) + log_normal_below(-(place - p) / s)
            if number == _REPLACE:
                beyond -= x * log_least
            ends[at] = beyond + log_normal_below((high - place) / width)
        other = flat[0] + x * flat[1] + flat[2]
        # A closed form for all that lies beyond one place: behind the last panel, or in place of the panels.
        tails[i] = _log_sum(np.array([min(_log_sum(np.array([summed, ends[1]])), ends[0]), other]))
    return tails


@compiled
def _log_sum(logs: Array) -> float:
    """log of the sum of e^logs; what is e^-60 of the largest or less counts as that much."""
    top = logs.max()
    if not -math.inf < top < math.inf:
        return float(top)
    total = 0.0
    for j in range(logs.size):
        total += math.exp(max(logs[j] - top, -60.0))
    return float(top + math.log(total))


def steepest_tilt(log_weight: float, half: float, count: int, epsilon: float, level: float) -> float:
    """x with count ((x + 1) log_weight + half x (x + 1)) - x eps = level."""
    slope = half + log_weight - epsilon / count
    return (-slope + math.sqrt(slope * slope + 4.0 * half * (level / count - log_weight))) / (2.0 * half)
