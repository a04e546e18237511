"""Laws of one step's privacy loss as quadrature rules in long precision.

The moment generating function of the loss L under P is M(z) = E_P e^(z L) = sum_j w_j e^(z l_j), where the nodes come
from a trapezoid rule on a line parallel to the real axis (Gaussian noise: the integrand is entire in the noise up to
the zeros of the likelihood ratio) or from Gauss-Legendre panels (half lines and intervals). Nothing here is shared with
the engine under test: only the densities of the pairs enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import mpmath as mp
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Choice:
    """Free parameters of a rule: two different choices must give the same digits.

    Attributes:
        digits: Decimal digits that the rule itself must reach.
        shift: Factor on the distance of the line from the real axis (or on the panels' width).
        frequency: Largest Im z that must be resolved where the line is the real axis.
    """

    digits: int
    shift: float = 1.0
    frequency: float = 0.0


@dataclass(frozen=True)
class Rule:
    """Nodes: ``tilted[j] = w_j e^(c l_j)`` at the tilt c for which it was built, and ``losses[j] = l_j``."""

    tilted: list[mp.mpc]
    losses: list[mp.mpc]


class Step:
    """One step's pair of distributions in one direction. ``atomic``: the loss has atoms, so that M never decays."""

    atomic = False

    def rule(self, tilt: float, choice: Choice) -> Rule:
        """Quadrature nodes accurate on the line Re z = tilt, Im z >= 0."""
        raise NotImplementedError

    def coarse(self, largest_tilt: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(log P-mass, loss) in double precision: only for choosing parameters, never for an answer."""
        raise NotImplementedError


def log_ratio(x: NDArray[np.float64], s: float, q: float) -> NDArray[np.float64]:
    """log f(x) of f = 1 - q + q e^((2 x - 1)/(2 s^2)) in double precision, without overflow."""
    a = (2.0 * x - 1.0) / (2.0 * s * s)
    small = np.log1p(q * np.expm1(np.minimum(a, 30.0)))
    with np.errstate(over="ignore"):
        large = math.log(q) + a + np.log1p((1.0 - q) / q * np.exp(-np.maximum(a, 0.0)))
    return np.where(a < 30.0, small, large)


@dataclass(frozen=True)
class PoissonGaussian(Step):
    """(1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2) (remove), the reverse (add), or against its mirror (replace)."""

    s: float
    q: float
    direction: str

    def _log_modulus(self, u: NDArray[np.float64], tilt: float) -> NDArray[np.float64]:
        """log of P-density times e^(tilt L), on the real axis."""
        base = -(u**2) / (2.0 * self.s**2)
        f = log_ratio(u, self.s, self.q)
        if self.direction == "add":
            return base - tilt * f
        if self.direction == "remove":
            return base + (tilt + 1.0) * f
        return base + (tilt + 1.0) * f - tilt * log_ratio(-u, self.s, self.q)

    def _angle(self, tilt: float) -> float:
        """Im x / s^2 of the line: the ratio vanishes at pi; -tilt-th powers grow like cos(angle/2)^-tilt."""
        if self.direction == "remove":
            return min(1.5, 1.6 / self.s)
        return min(0.7, 1.6 / self.s, 5.0 / math.sqrt(1.0 + tilt))

    def _flat_below(self, tilt: float) -> float:
        """-x where f^-tilt stops growing to the left, as the ratio reaches 1 - q."""
        if self.q == 1.0:
            return tilt
        return min(tilt, max(0.0, self.s**2 * (math.log(self.q / (1.0 - self.q) * (tilt + 1.0)) + 5.0)))

    def rule(self, tilt: float, choice: Choice) -> Rule:
        s, q, c = mp.mpf(self.s), mp.mpf(self.q), mp.mpf(tilt)
        theta = self.s**2 * self._angle(tilt) * choice.shift
        cut = math.log(10.0) * choice.digits
        step = 2.0 * math.pi * theta / (cut + 12.0)
        reach = self.s * math.sqrt(2.0 * cut + 60.0)
        left = reach + (self._flat_below(tilt) if self.direction == "add" else 0.0)
        right = reach + (0.0 if self.direction == "add" else tilt + 1.0)
        indices = np.arange(math.floor(-left / step), math.ceil(right / step) + 1)
        modulus = self._log_modulus(np.asarray(indices * step, dtype=np.float64), tilt)
        kept = indices[modulus > modulus.max() - cut - 25.0]
        side = -1 if self.direction == "add" else 1
        width, shift = mp.mpf(step), mp.mpc(0, side * theta)
        scale, front = 1 / (2 * s * s), width / (s * mp.sqrt(2 * mp.pi))
        tilted: list[mp.mpc] = []
        losses: list[mp.mpc] = []
        for k in kept:
            x = int(k) * width + shift
            right_loss = mp.log(1 - q + q * mp.exp((2 * x - 1) * scale))
            exponent = -x * x * scale
            if self.direction == "add":
                loss = -right_loss
            elif self.direction == "remove":
                loss, exponent = right_loss, exponent + right_loss
            else:
                loss = right_loss - mp.log(1 - q + q * mp.exp((-2 * x - 1) * scale))
                exponent += right_loss
            tilted.append(front * mp.exp(exponent + c * loss))
            losses.append(loss)
        return Rule(tilted, losses)

    def coarse(self, largest_tilt: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        s = self.s
        step = min(s / 8.0, s * s / 4.0)
        left, right = 40.0 * s, 40.0 * s
        if self.direction == "add":
            left += self._flat_below(largest_tilt)
        else:
            right += largest_tilt + 1.0
        u = np.arange(-left, right, step)
        f = log_ratio(u, s, self.q)
        mass = -(u**2) / (2.0 * s * s) + math.log(step / (s * math.sqrt(2.0 * math.pi)))
        if self.direction == "add":
            return mass, -f
        return mass + f, f if self.direction == "remove" else f - log_ratio(-u, s, self.q)


@lru_cache(maxsize=16)
def _legendre(order: int, precision: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """Nodes and weights of Gauss-Legendre on (-1, 1), by Newton's method from Tricomi's guess."""
    rule = []
    with mp.workprec(precision + 20):
        for k in range(1, order + 1):
            x = mp.cos(mp.pi * (k - mp.mpf(1) / 4) / (order + mp.mpf(1) / 2))
            for _ in range(12):
                before, value = mp.mpf(1), x
                for n in range(2, order + 1):
                    before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
                slope = order * (x * value - before) / (x * x - 1)
                correction = value / slope
                x -= correction
                if abs(correction) < mp.mpf(2) ** (-precision // 2 - 5):
                    break
            rule.append((x, 2 / ((1 - x * x) * slope * slope)))
    return rule


def _panels(
    first: float, last: float, width: float, choice: Choice, integrand: Callable[[mp.mpf, mp.mpf], None]
) -> None:
    """Call ``integrand(x, weight)`` at every Gauss-Legendre node of equal panels between two points."""
    order = 3 * choice.digits // 2 // 4 * 4
    rule = _legendre(order, mp.mp.prec)
    count = max(1, math.ceil((last - first) / (width * choice.shift)))
    half = (mp.mpf(last) - mp.mpf(first)) / (2 * count)
    for panel in range(count):
        middle = mp.mpf(first) + (2 * panel + 1) * half
        for x, weight in rule:
            integrand(middle + half * x, half * weight)


@dataclass(frozen=True)
class FixedSizeGaussian(Step):
    """The symmetrised pair: the remove profile of Poisson's pair at s/2 and q = b/n for eps >= 0, mirrored below.

    Its loss has the remove law on (0, inf), the reflected Q-law on (-inf, 0) and an atom at 0 with the rest:
    M(z) = 1 + E[(f^(z+1) + f^(-z) - f - 1) 1{x >= 1/2}], x ~ N(0, (s/2)^2).
    """

    s: float
    batch: int
    size: int

    @property
    def q(self) -> mp.mpf:
        return mp.mpf(self.batch) / self.size

    def rule(self, tilt: float, choice: Choice) -> Rule:
        nu, q, c = mp.mpf(self.s) / 2, self.q, mp.mpf(tilt)
        spread, cut = self.s / 2.0, math.log(10.0) * choice.digits
        bend = spread**2 * min(0.7, 1.2 / spread, 5.0 / math.sqrt(1.0 + tilt)) * choice.shift
        scale, front = 1 / (2 * nu * nu), 1 / (nu * mp.sqrt(2 * mp.pi))
        tilted: list[mp.mpc] = []
        losses: list[mp.mpc] = []

        def add(v: mp.mpf, weight: mp.mpf) -> None:
            # A path that leaves 1/2 upwards and becomes parallel to the axis; mirrored for the reflected half.
            fall = mp.exp(-v / bend)
            x, slope = mp.mpc(mp.mpf(1) / 2 + v, bend * (1 - fall)), mp.mpc(1, fall)
            loss = mp.log(1 - q + q * mp.exp((2 * x - 1) * scale))
            base, loss_below = front * weight * slope * mp.exp(-x * x * scale), -mp.conj(loss)
            tilted.extend((base * mp.exp((c + 1) * loss), mp.conj(base) * mp.exp(c * loss_below)))
            losses.extend((loss, loss_below))

        reach, first = tilt + 1.5 + spread * math.sqrt(2.0 * cut + 60.0), bend * 2.0**-24
        _panels(0.0, first, first, choice, add)
        while first < bend / 2.0:
            _panels(first, 2.0 * first, first, choice, add)
            first *= 2.0
        _panels(first, reach, 0.6 * bend, choice, add)

        def above(x: mp.mpf) -> mp.mpf:
            return mp.erfc(x / (nu * mp.sqrt(2))) / 2

        half = mp.mpf(1) / 2
        atom = 1 - (2 - q) * above(half) - q * above(-half)
        return Rule([*tilted, mp.mpc(atom)], [*losses, mp.mpc(0)])

    def coarse(self, largest_tilt: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        nu = self.s / 2.0
        step = min(nu / 16.0, nu * nu / 8.0)
        u = np.arange(0.5 + step / 2.0, largest_tilt + 2.0 + 40.0 * nu, step)
        f = log_ratio(u, nu, self.batch / self.size)
        mass = -(u**2) / (2.0 * nu * nu) + math.log(step / (nu * math.sqrt(2.0 * math.pi)))
        atom = max(1e-300, 1.0 - float(np.sum(np.exp(mass + f) + np.exp(mass))))
        return np.concatenate([mass + f, mass, [math.log(atom)]]), np.concatenate([f, -f, [0.0]])


@dataclass(frozen=True)
class PoissonLaplace(Step):
    """(1-q) Lap(0, b) + q Lap(1, b) against Lap(0, b) (remove) or the reverse (add); q = 1 is the full batch."""

    b: float
    q: float
    direction: str
    atomic = True

    def rule(self, tilt: float, choice: Choice) -> Rule:
        lam, q, c = 1 / mp.mpf(self.b), mp.mpf(self.q), mp.mpf(tilt)
        tilted: list[mp.mpc] = []
        losses: list[mp.mpc] = []

        def add(exponent: mp.mpf, mass: mp.mpf) -> None:
            f = 1 - q + q * mp.exp(exponent)
            loss = mp.log(f) if self.direction == "remove" else -mp.log(f)
            tilted.append(mp.mpc(mass * (f if self.direction == "remove" else 1) * mp.exp(c * loss)))
            losses.append(mp.mpc(loss))

        add(-lam, mp.mpf(1) / 2)
        add(lam, mp.exp(-lam) / 2)
        steepest = 2.0 / self.b * min(1.0, self.q * math.exp(1.0 / self.b))
        width = min(0.125, choice.digits / (1.0 + choice.frequency * steepest))
        _panels(0.0, 1.0, width, choice, lambda x, w: add(lam * (2 * x - 1), w * lam * mp.exp(-lam * x) / 2))
        return Rule(tilted, losses)

    def coarse(self, largest_tilt: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lam, nodes = 1.0 / self.b, (np.arange(4000) + 0.5) / 4000.0
        mass = np.concatenate([[0.5, math.exp(-lam) / 2.0], lam * np.exp(-lam * nodes) / 8000.0])
        f = 1.0 - self.q + self.q * np.exp(lam * np.concatenate([[-1.0, 1.0], 2.0 * nodes - 1.0]))
        if self.direction == "remove":
            return np.log(mass * f), np.log(f)
        return np.log(mass), -np.log(f)
