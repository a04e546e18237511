"""This module chooses, in double precision, the nodes at which a verifier evaluates Theorems A and C.

A certificate is sound whatever is chosen here. A bad choice gives a certificate that fails verification or is slow to
verify. s, q, f and the tilt c are defined in docs/concepts/fourier.md. ``digits`` are natural digits: the rules aim at
an error of e^-digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.canonical import Json
from accounting.certificates.certificate import NoCertificate

Array = NDArray[np.float64]

_STEEPEST = 1.45
#: The most nodes that a verifier evaluates, and the most that a rule for the envelope alone may have.
MOST_NODES, MOST_FOR_ENVELOPE = 19_000, 6_000
_MOST_ORDER = 400
_FINE = 1 / 12
_MOST_PLACES = 60_000


@dataclass(frozen=True, slots=True)
class SampledStep:
    """A step on sampled batches, in one direction.

    Attributes:
        kind: "remove", "add" or "replace" on Poisson batches, or "fixed_size" with half the noise multiplier.
        noise: s.
        log_weights: Logarithms of p_0, ..., p_H, the probabilities that h records are in the batch.
    """

    kind: str
    noise: float
    log_weights: tuple[float, ...]

    @classmethod
    def of_one(cls, kind: str, noise: float, probability: float) -> SampledStep:
        """Return the step for one record."""
        return cls(kind, noise, (math.log1p(-probability), math.log(probability)))

    @property
    def most(self) -> int:
        """Return H, the largest number of records in the batch."""
        return len(self.log_weights) - 1

    @property
    def probability(self) -> float:
        """Return the probability that the batch holds any of the records."""
        return -math.expm1(self.log_weights[0])

    def height(self, angle: float) -> float:
        """Return theta = A s^2 / H, the distance of the line at angle A from the real axis. H is the largest number of
        records.
        """
        return angle * self.noise**2 / self.most

    def log_ratio(self, u: Array, angle: float | Array) -> tuple[Array, Array]:
        """Return log |f| and arg f at u + i theta, where f is the likelihood ratio."""
        terms = [
            log_weight + h * (2.0 * u - h) / (2.0 * self.noise**2) + 1j * (h / self.most) * angle
            for h, log_weight in enumerate(self.log_weights)
        ]
        over = np.max([term.real for term in terms], axis=0)
        f = sum(np.exp(term - over) for term in terms)
        return np.log(np.abs(f)) + over, np.angle(f)

    def tilted(self, u: Array, angle: float | Array, tilt: float) -> tuple[Array, Array]:
        """Return the log of the integrand's modulus at tilt c, and the imaginary part of the loss, on the line."""
        s = self.noise
        modulus, argument = self.log_ratio(u, angle)
        density = (-u * u / s**2 + (self.height(1.0) * angle / s) ** 2) / 2.0 - math.log(s * math.sqrt(2.0 * math.pi))
        if self.kind == "add":
            return density - tilt * modulus, argument
        if self.kind == "remove":
            return density + (tilt + 1.0) * modulus, argument
        if self.kind == "replace":
            other, turned = self.log_ratio(-u, angle)
            return density + (tilt + 1.0) * modulus - tilt * other, argument + turned
        both = np.logaddexp((tilt + 1.0) * modulus, -tilt * modulus)
        return np.where(u >= 0.5, density + both, -math.inf), argument

    def log_growth(self, angle: float, tilt: float) -> float:
        """Return the log of a bound on the factor by which the integrand grows from the axis to the line at twice the
        angle.
        """
        grown = 2.0 * (self.height(angle) / self.noise) ** 2
        return grown if self.kind == "remove" else grown - tilt * math.log(math.cos(angle))

    def steepest(self, tilt: float, most: float) -> float:
        """Return the largest angle at which the integrand grows by at most e^most."""
        low, high = 0.0, _STEEPEST
        if self.log_growth(high, tilt) <= most:
            return high
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_growth(middle, tilt) <= most else (low, middle)
        return low

    def reach(self, tilt: float, digits: float, log_moment: float) -> tuple[float, float]:
        """Return the numbers Y and X such that the tails of Theorem A left of -Y and right of X are below e^(log_moment
        - digits).
        """
        s = self.noise
        drift = 0.0 if self.kind == "add" else self.most * (tilt + 1.0)
        hidden = 0.0 if self.kind == "remove" else -tilt * self.log_weights[0]
        right = self._end(drift, tilt, hidden, digits, log_moment, right=True)
        left = 0.5 if self.kind == "fixed_size" else self._end(0.0, tilt, hidden, digits, log_moment, right=False)
        return max(left, s * 0.5), right

    def _end(self, drift: float, tilt: float, hidden: float, digits: float, log_moment: float, *, right: bool) -> float:
        s = self.noise

        def log_tail(x: float) -> float:
            at = np.array([x if right else -x])
            modulus = float(self.log_ratio(at, 0.0)[0][0])
            power = (tilt + 1.0) * modulus + (hidden if right else 0.0)
            if self.kind == "add":
                power = -tilt * modulus if right else hidden
            elif self.kind == "replace" and not right:
                power -= tilt * float(self.log_ratio(-at, 0.0)[0][0])
            return -x * x / (2.0 * s * s) + power - math.log(max((x - drift) / s, 1e-3))

        low, high = drift, drift + s * math.sqrt(2.0 * (digits + 10.0)) + s
        for _ in range(60):
            if log_tail(high) <= log_moment - digits:
                break
            low, high = high, drift + 1.3 * (high - drift)
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if log_tail(middle) <= log_moment - digits else (middle, high)
        return max(high, drift + 1e-3 * s)

    def places(self, tilt: float, digits: float, log_moment: float, *, finest: float = math.inf) -> tuple[Array, Array]:
        """Return places on the axis with quadrature weights, for estimates that steer the search."""
        left, right = self.reach(tilt, digits + 10.0, log_moment)
        spacing = max(min(self.noise * _FINE, finest), (left + right) / _MOST_PLACES)
        if self.kind == "fixed_size":
            panels = math.ceil((right - 0.5) / (6.0 * spacing))
            return panels_of(np.linspace(0.5, right, panels + 1))
        places = np.arange(-left, right, spacing)
        return places, np.full(places.shape, spacing)

    def rise(self, angle: float, tilt: float) -> tuple[Array, Array]:
        """Return the weights' logs and the losses' imaginary parts on the segment from 1/2 to the line, for batches of
        a fixed size.
        """
        theta = angle * self.noise**2
        heights, lengths = panels_of(theta * np.concatenate([[0.0], 4.0 ** np.arange(-24.0, 1.0)]))
        logs, arguments = self.tilted(np.full(heights.shape, 0.5), heights / self.noise**2, tilt)
        return logs + np.log(lengths), arguments

    def nodes(
        self,
        angle: float,
        tilt: float,
        digits: float,
        log_moment: float,
        *,
        more_growth: float = 0.0,
        latest: float = math.inf,
    ) -> dict[str, Json]:
        """Return the nodes of a rule on the line of ``angle``.

        Args:
            more_growth: The log of how much a share of the law grows from the axis to twice the angle.
            latest: The largest t for which the rule is used. If it is finite, a fixed size needs fewer nodes.
        """
        growth = self.log_growth(angle, tilt) + more_growth
        # The added digits cover the growth on the line and the sums of geometric series in the bounds of the tails.
        left, right = self.reach(tilt, digits + growth / 4.0 + 3.0, log_moment)
        angle = rounded(angle)
        if self.kind == "fixed_size":
            return self._panels(angle, tilt, right, digits + 2.0 - min(log_moment, 0.0), latest)
        spacing = rounded(2.0 * math.pi * self.height(angle) / (digits + growth + math.log(2.0)), down=True)
        if not spacing > 0.0 or (left + right) / spacing > MOST_NODES:
            raise NoCertificate("a step needs more nodes than a verifier evaluates")
        return {
            "angle": angle,
            "spacing": spacing,
            "low": -math.ceil(left / spacing),
            "high": math.ceil(right / spacing),
        }

    def _panels(self, angle: float, tilt: float, end: float, digits: float, latest: float) -> dict[str, Json]:
        """Return the panels of Theorem C with the fewest nodes such that all errors together stay below e^-digits."""
        theta, end = angle * self.noise**2, rounded(1.006 * end + 0.1 * self.noise)
        best: dict[str, Json] = {}
        for slope in (0.9, 1.2, 1.6, 2.2, 3.0):
            panels = max(1, math.ceil((end - 0.5) * slope / (2.0 * theta)))
            half = (end - 0.5) / (2.0 * panels)
            middles = 0.5 + half * (2.0 * np.arange(panels, dtype=np.float64) + 1.0)
            most = float(np.max(self._log_largest(middles, math.hypot(half, theta), 2.0 * theta, angle, tilt)))
            wanted = digits + most + math.log(5.0 * half * panels)
            order = max(4, math.ceil(wanted / (2.0 * math.log(theta / half + math.hypot(theta / half, 1.0)))))
            if order <= _MOST_ORDER and (
                not best or panels * order < int(str(best["panels"])) * int(str(best["order"]))
            ):
                best = {"angle": angle, "end": end, "panels": panels, "order": order}
        if not best or int(str(best["panels"])) * int(str(best["order"])) > MOST_NODES // 3:
            raise NoCertificate("a step needs more nodes than a verifier evaluates")
        most = float(self._log_largest(np.array([0.5]), theta / 2.0, 1.25 * theta, angle, tilt)[0])
        wanted = digits + most + math.log(theta) + 3.0
        depth = math.ceil(max(wanted, 1.0) / math.log(4.0))
        steep = max(4, math.ceil(wanted / (2.0 * math.log(3.0))))
        last = self._last_panel(theta, wanted, steep, latest)
        if last is not None:
            return {**best, "steep": steep, "depth": last[0], "last": last[1]}
        if depth > 120 or steep > _MOST_ORDER:
            raise NoCertificate("a step needs more nodes than a verifier evaluates")
        return {**best, "depth": depth, "steep": steep}

    def _last_panel(self, theta: float, wanted: float, steep: int, latest: float) -> tuple[int, int] | None:
        """Return how many steep panels precede the last panel, and the nodes of the last panel, such that all nodes are
        fewest.
        """
        found: list[tuple[int, int, int]] = []
        before = 0
        for depth in range(60):
            rest = theta / 4.0**depth
            turned = float(self.log_ratio(np.array([0.5 + rest]), 0.5625 * rest / self.noise**2)[1][0])
            last = max(2, math.ceil((wanted + latest * turned) / (2.0 * math.log(4.0)))) if latest < math.inf else 0
            if 0 < last <= _MOST_ORDER:
                found.append((before + last, depth, last))
            before += max(2, steep - 5 * depth // 8)
        return min(found)[1:] if found else None

    def _log_largest(self, middles: Array, reach: float, height: float, angle: float, tilt: float) -> Array:
        """Return approximately the log of Theorem C's bound on moduli around each place."""
        found = np.full(middles.shape, -math.inf)
        for k in range(8):
            left, right = middles + reach * (k / 4.0 - 1.0), middles + reach * ((k + 1) / 4.0 - 1.0)
            nearest = np.maximum(left, 0.0) + np.minimum(right, 0.0)
            up = (tilt + 1.0) * self.log_ratio(right, 0.0)[0]
            down = -tilt * (self.log_ratio(left, 0.0)[0] + math.log(math.cos(angle)))
            found = np.maximum(found, np.logaddexp(up, down) - 0.5 * (nearest / self.noise) ** 2)
        return found + 0.5 * (height / self.noise) ** 2 - math.log(self.noise * math.sqrt(2.0 * math.pi))

    def number_of(self, nodes: dict[str, Json]) -> int:
        """Return the number of nodes in a rule."""
        if self.kind == "fixed_size":
            panels, order, depth, steep = (int(str(nodes[key])) for key in ("panels", "order", "depth", "steep"))
            rising = sum(max(2, steep - 5 * k // 8) for k in range(depth)) + int(str(nodes.get("last", 0)))
            return 2 * (panels * order + rising)
        return int(str(nodes["high"])) - int(str(nodes["low"])) + 1


def log_above(u: Array, theta: float, place: float, width: float) -> Array:
    """Return log |1 - psi| at u + i theta, psi(x) = P(N(x, width^2) <= place)."""
    z = (place - u - 1j * theta) / (width * math.sqrt(2.0))
    flipped = np.where(z.real < 0.0, -z, z)
    small = np.log(np.abs(scipy.special.wofz(1j * flipped)) + 1e-300) - (flipped * flipped).real
    large = np.log(np.abs(2.0 - scipy.special.wofz(1j * flipped) * np.exp(-flipped * flipped)))
    log: Array = np.where(z.real < 0.0, large, small) - math.log(2.0)
    return log


def log_growth_above(step: SampledStep, angle: float, width: float) -> float:
    """Return the log of a bound on the factor by which the share above a cut grows from the axis to the line at
    twice the angle.
    """
    return 2.0 * (step.height(angle) / width) ** 2


def panels_of(edges: Array) -> tuple[Array, Array]:
    """Return the places and the weights of Gauss-Legendre rules between ``edges``."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    return (middle + half * nodes).ravel(), (half * weights).ravel()


def rounded(number: float, *, down: bool = False) -> float:
    """Return a nearby number with few digits. This keeps certificates short; places of nodes need not be exact."""
    digits = 3 if number < 1e3 else 6
    scaled = float(f"{number:.{digits}g}")
    return scaled if not down or scaled <= number else float(f"{number * (1 - 10.0 ** (1 - digits)):.{digits}g}")
