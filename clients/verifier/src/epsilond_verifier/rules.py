"""One step's transform M(c + it), t >= 0, as a finite sum with an error that holds for every t at once.

A **rule** is a constant, weights w_j, losses l_j with Im l_j >= 0 and an error E such that, for every t >= 0,

    |M(c+it) - constant - sum of w_j e^(i t l_j)| <= E.

Theorems A, B and C are proved in docs/concepts/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from flint import acb, acb_mat, arb

from epsilond_verifier.bounds import CannotCheck, normal_cdf, normal_density, require
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Law, Poisson, Sampled
from epsilond_verifier.reading import Reader

MOST_NODES, _MOST_ORDER = 20_000, 400
P = TypeVar("P", "Line", "Panels")


@dataclass(frozen=True, slots=True)
class Line:
    """The nodes of Theorem A, j = low .. high; ``envelope`` has those of a rule for the envelope alone."""

    angle: float
    spacing: float
    low: int
    high: int
    envelope: Line | None

    @property
    def nodes(self) -> int:
        """Return how many there are."""
        return self.high - self.low + 1


@dataclass(frozen=True, slots=True)
class Panels:
    """The panels of Theorem C: ``panels`` level ones of ``order`` nodes, ``depth`` steep ones."""

    angle: float
    end: float
    panels: int
    order: int
    depth: int
    steep: int
    envelope: Panels | None

    @property
    def nodes(self) -> int:
        """Return how many there are at most, both halves counted."""
        return 2 * (self.panels * self.order + self.depth * self.steep)

    def steep_order(self, k: int) -> int:
        """Return the nodes of the k-th steep panel: one of a quarter of the length needs log 4 / (2 log 3) fewer."""
        return max(2, self.steep - 5 * k // 8)


#: The nodes of a step; None for a transform that is known.
Place = Line | Panels | None


def read_place(reader: Reader, law: Law) -> Place:
    """Read where the nodes of a step are: an empty object for laws whose transform is known in closed form."""
    place: Place = None
    if isinstance(law, Poisson):
        place = read_line(reader, True)
    elif isinstance(law, FixedSize):
        place = _read_panels(reader, True)
    reader.close()
    return place


def read_line(reader: Reader, coarse: bool) -> Line:
    """Read the nodes of Theorem A, and with ``coarse`` those of a rule for the envelope, if there is one."""
    angle, spacing = reader.real("angle", 5e-324, 2.0), reader.real("spacing", 1e-12, 1e12)
    low, high = reader.whole("low", -MOST_NODES, -1), reader.whole("high", 1, MOST_NODES)
    return _limited(Line(angle, spacing, low, high, _read_envelope(reader, read_line) if coarse else None))


def _read_panels(reader: Reader, coarse: bool) -> Panels:
    angle, end = reader.real("angle", 5e-324, 2.0), reader.real("end", 0.5, 1e12)
    panels, order = reader.whole("panels", 1, MOST_NODES), reader.whole("order", 2, _MOST_ORDER)
    depth, steep = reader.whole("depth", 1, 120), reader.whole("steep", 2, _MOST_ORDER)
    envelope = _read_envelope(reader, _read_panels) if coarse else None
    return _limited(Panels(angle, end, panels, order, depth, steep, envelope))


def _read_envelope(reader: Reader, read: Callable[[Reader, bool], P]) -> P | None:
    if not reader.has("envelope"):
        return None
    inner = reader.inside("envelope")
    found = read(inner, False)
    inner.close()
    return found


def _limited(place: P) -> P:
    if place.nodes > MOST_NODES:
        raise CannotCheck(f"a rule has at most {MOST_NODES} nodes")
    return place


@dataclass(frozen=True, slots=True)
class Rule:
    """A transform as in the module's docstring; ``coarse`` bounds the envelope in this one's place."""

    constant: arb
    weights: list[acb]
    losses: list[acb]
    error: arb
    coarse: Rule | None = None

    def moment(self) -> arb:
        """Return |constant + sum of w_j| + E: the rule at t = 0."""
        return abs(self.constant + sum(self.weights, acb(0))) + self.error

    def envelope(self, t: arb) -> arb:
        """Return Theorem B's bound: min(|constant| + sum |w_j| e^(-t Im l_j) + E, |constant + sum w_j| + E)."""
        if self.coarse is not None:
            return self.coarse.envelope(t).min(self.moment())
        total = abs(self.constant) + self.error
        for weight, loss in zip(self.weights, self.losses, strict=True):
            total += abs(weight) * (-t * loss.imag.lower().max(arb(0))).exp()
        return total.min(self.moment())

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return the sums at k = a width + b as one product of matrices: e^(i a width h l_j), w_j e^(i b h l_j)."""
        width, nodes = math.isqrt(points - 1) + 1, len(self.weights)
        rows = -(-points // width)
        fine, coarse = [], []
        for weight, loss in zip(self.weights, self.losses, strict=True):
            step = acb(0, 1) * spacing * loss
            fine.append([weight * power for power in _powers(step.exp(), width)])
            coarse.append(_powers((width * step).exp(), rows))
        left = acb_mat(rows, nodes, [coarse[j][a] for a in range(rows) for j in range(nodes)])
        right = acb_mat(nodes, width, [power for powers in fine for power in powers])
        error = self.constant + acb(arb(0, self.error), arb(0, self.error))
        return [value + error for value in (left * right).entries()[:points]]


def _powers(base: acb, number: int) -> list[acb]:
    """Return base^k, 0 <= k < number, each from two of half its size: the balls then grow like sqrt(k)."""
    powers = [acb(1), base]
    for k in range(2, number):
        powers.append(powers[k // 2] * powers[k - k // 2])
    return powers[:number]


@dataclass(frozen=True, slots=True)
class LaplaceTransform:
    """M(z) = ((z+1) e^(lam z) + z e^(-lam (z+1))) / (2z+1)  (Mironov 2017, Proposition 6)."""

    lam: arb
    tilt: arb

    def moment(self) -> arb:
        """Return M(c)."""
        return self._at(acb(self.tilt)).real

    def envelope(self, t: arb) -> arb:
        """Return a bound from t on: |z+1| / |2z+1| falls in t, |z| / |2z+1| is at most 1/2, and |M| at most M(c)."""
        c = self.tilt
        first = (((c + 1) ** 2 + t * t) / ((2 * c + 1) ** 2 + 4 * t * t)).sqrt() * (self.lam * c).exp()
        return (first + (-self.lam * (c + 1)).exp() / 2).min(self.moment())

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return the closed form at each point."""
        return [self._at(acb(self.tilt, k * spacing)) for k in range(points)]

    def _at(self, z: acb) -> acb:
        return ((z + 1) * (self.lam * z).exp() + z * (-self.lam * (z + 1)).exp()) / (2 * z + 1)


Transform = Rule | LaplaceTransform


def transform(law: Law, direction: str, tilt: float, place: Place) -> Transform:
    """Return M at Re z = tilt > 0 of a step that is no full batch of Gaussian noise."""
    c = arb(tilt)
    if isinstance(law, Laplace):
        return LaplaceTransform(law.lam, c)
    if isinstance(law, Atoms):
        atoms = law.outcomes(direction)
        return Rule(arb(0), [acb(p * (c * loss).exp()) for p, loss in atoms], [acb(loss) for _, loss in atoms], arb(0))
    assert place is not None
    own, envelope = _rule(law, direction, c, place), place.envelope
    return replace(own, coarse=_rule(law, direction, c, envelope)) if envelope else own


def _rule(law: Law, direction: str, c: arb, place: Line | Panels) -> Rule:
    if isinstance(place, Panels):
        assert isinstance(law, FixedSize)
        return fixed_size(law, c, place)
    assert isinstance(law, Poisson)
    return shifted_line(law, direction, c, place, None, arb(1))


def above_cut(law: Sampled, c: arb, line: Line, place: arb, width: arb) -> Rule:
    """Return Theorem A for the share 1 - psi above a cut, psi(x) = P(N(x, width^2) <= place)."""
    pair = law if isinstance(law, Poisson) else Poisson(law.s, law.q, False)
    theta, scale = arb(line.angle) * law.s * law.s, width * arb(2).sqrt()
    growth = (theta * theta / (2 * width * width)).exp()
    return shifted_line(pair, "remove", c, line, lambda x: ((place - x) / scale).erfc() / 2, growth)


def shifted_line(
    law: Poisson, direction: str, c: arb, line: Line, share: Callable[[acb], acb] | None, growth: arb
) -> Rule:
    """Theorem A: the trapezoid rule on the line Im x = A s^2, below the axis for add, for a share of the law.

    On the line at v the modulus of the share is at most growth^((v/theta)^2) times what it is on the axis.
    """
    s, q, d, angle, add = law.s, law.q, arb(line.spacing), arb(line.angle), direction == "add" and not law.replace
    require(2 * angle < arb.pi(), "the angle is below pi/2")
    square, theta = s * s, angle * s * s
    weights, losses = [], []
    for j in range(line.low, line.high + 1):
        x = acb(j * d, -theta if add else theta)
        log_f = law.f(x).log()
        loss = -log_f if add else log_f - (law.f(-x).log() if law.replace else 0)
        weight = normal_density(x, s) * (c * loss + (0 if add else log_f)).exp() * d
        weights.append(weight * share(x) if share else weight)
        losses.append(loss)
    right, left = line.high * d, -line.low * d
    has_negative_power = add or law.replace
    one_sided = 1 / (angle / 2).cos() ** c if has_negative_power else arb(1)
    two_sided = 1 / angle.cos() ** c if has_negative_power else arb(1)
    hidden = (1 - q) ** -c if has_negative_power else arb(1)
    high, low, mirrored = (law.f(acb(x)).real for x in (right, -left, left))
    if add:
        ends = [(right, arb(0), high**-c), (left, arb(0), hidden)]
    else:
        outside = low ** (c + 1) * mirrored**-c if law.replace else low ** (c + 1)
        ends = [(right, c + 1, high ** (c + 1) * hidden), (left, arb(0), outside)]
    tails = arb(0)
    for end, drift, first in ends:
        ratio = (-(end - drift) * d / square).exp()
        require(ratio < 1, "the nodes reach beyond the peak of the integrand")
        tails += normal_density(acb(end), s).real * first * ratio / (1 - ratio)
    tails *= d * (angle * angle * square / 2).exp() * one_sided * growth
    kappa = ((2 * angle * angle * square).exp() * two_sided * growth**4 + 1) / ((2 * arb.pi() * theta / d).expm1())
    require(kappa < 1, "the spacing is fine enough")
    error = kappa / (1 - kappa) * (abs(sum(weights, acb(0))) + tails) + tails
    return Rule(arb(0), weights, losses, error)


def fixed_size(law: FixedSize, c: arb, place: Panels) -> Rule:
    """Theorem C: M(z) = a_0 + integrals over x > 1/2 of phi f^(z+1) and phi f^(-z), by way of 1/2 + i theta.

    The path of the second integral is the mirror image of the first one's, so that its nodes are the conjugates.
    """
    s, angle = law.s, arb(place.angle)
    require(2 * angle < arb.pi(), "the angle is below pi/2")
    theta, half = angle * s * s, arb(1) / 2
    weights: list[acb] = []
    losses: list[acb] = []
    error = arb(0)

    def largest(low: arb, high: arb, v: arb) -> arb:
        """Return a bound of both integrands' moduli where low <= Re x <= high, 0 <= |Im x| <= v <= 2 theta."""
        found, step = arb(0), (high - low) / 8
        for k in range(8):
            left, right = low + k * step, low + (k + 1) * step
            nearest = left.max(arb(0)) + right.min(arb(0))
            both = law.f(acb(right)).real ** (c + 1) + (law.f(acb(left)).real * angle.cos()) ** -c
            found = found.max(normal_density(acb(nearest), s).real * both)
        return found * (v * v / (2 * s * s)).exp()

    def panel(centre: acb, way: acb, b: arb, nodes: list[tuple[arb, arb]]) -> None:
        for node, weight in nodes:
            x = centre + way * b * node
            density, log_f = way * b * weight * normal_density(x, s), law.f(x).log()
            weights.extend((density * ((c + 1) * log_f).exp(), (density * (-c * log_f).exp()).conjugate()))
            losses.extend((log_f, -log_f.conjugate()))

    def bound(b: arb, most: arb, rho: arb, order: int) -> arb:
        return arb(64) / 15 * b * most * rho ** (-2 * order) / (1 - rho**-2)

    end, b = arb(place.end), (arb(place.end) - half) / (2 * place.panels)
    require(end > half, "the panels have a length")
    level = _gauss_legendre(place.order)
    slope, reach = theta / b, (b * b + theta * theta).sqrt()
    for k in range(place.panels):
        middle = half + (2 * k + 1) * b
        panel(acb(middle, theta), acb(1), b, level)
        most = largest(middle - reach, middle + reach, 2 * theta)
        error += bound(b, most, slope + (1 + slope * slope).sqrt(), place.order)
    for k in range(place.depth):
        u, order = theta / 4 ** (k + 1), place.steep_order(k)
        panel(acb(half, 5 * u / 2), acb(0, 1), 3 * u / 2, _gauss_legendre(order))
        error += bound(3 * u / 2, largest(half - 2 * u, half + 2 * u, 5 * u), arb(3), order)
    rest = theta / 4**place.depth
    error += rest * largest(half, half, rest)
    require(end > c + 1, "the panels reach beyond the peak of the integrand")
    up = law.f(acb(end)).real ** (c + 1) / (end - c - 1)
    down = (law.f(acb(end)).real * (angle / 2).cos()) ** -c / end
    error += normal_density(acb(end), s).real * s * s * (up + down) * (angle * angle * s * s / 2).exp()
    never = 1 - (2 - law.q) * normal_cdf(-1 / (2 * s)) - law.q * normal_cdf(1 / (2 * s))
    return Rule(never, weights, losses, error)


def _gauss_legendre(order: int) -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(order, k, weight=True) for k in range(order)]
