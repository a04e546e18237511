"""One step's transform M(c + it), t >= 0, as a finite sum with an error that holds for every t at once.

A **rule** is a constant, weights w_j, losses l_j with Im l_j >= 0 and an error E such that, for every t >= 0,

    |M(c+it) - constant - sum of w_j e^(i t l_j)| <= E.

Theorems A, B and C are proved in docs/concepts/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from flint import acb, acb_mat, arb

from epsilond_verifier.bounds import CannotCheck, normal_cdf, normal_density, require
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Law, Poisson
from epsilond_verifier.reading import Reader

MOST_NODES, _MOST_ORDER = 20_000, 400


@dataclass(frozen=True, slots=True)
class Line:
    """Where to put the nodes of Theorem A."""

    angle: float
    spacing: float
    low: int
    high: int

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.high - self.low + 1


@dataclass(frozen=True, slots=True)
class Panels:
    """Where to put the panels of Theorem C: ``panels`` level ones of ``order`` nodes, ``depth`` steep ones."""

    angle: float
    end: float
    panels: int
    order: int
    depth: int
    steep: int

    @property
    def nodes(self) -> int:
        """How many there are at most, both halves counted."""
        return 2 * (self.panels * self.order + self.depth * self.steep)

    def steep_order(self, k: int) -> int:
        """Return the nodes of the k-th steep panel: one of a quarter of the length needs log 4 / (2 log 3) fewer."""
        return max(2, self.steep - 5 * k // 8)


Place = Line | Panels
#: The nodes of a step; those of a second rule that serves the envelope, or None. None for a transform that is known.
Places = tuple[Place, Place | None] | None


def read_places(reader: Reader | None, law: Law) -> Places:
    """Read where the nodes of a step are; null for laws whose transform is known in closed form."""
    if not isinstance(law, Poisson | FixedSize):
        if reader is not None:
            raise CannotCheck(f"{reader.where} must be null: the transform of this step is known")
        return None
    if reader is None:
        raise CannotCheck("a sampled step needs its nodes, but has null")
    own, envelope = _read_place(reader, law), None
    if reader.has("envelope"):
        coarse = reader.object("envelope")
        envelope = _read_place(coarse, law)
        coarse.close()
    reader.close()
    return own, envelope


def _read_place(reader: Reader, law: Poisson | FixedSize) -> Place:
    place: Place
    angle = reader.real("angle", 5e-324, 2.0)
    if isinstance(law, Poisson):
        low, high = reader.whole("low", -MOST_NODES, -1), reader.whole("high", 1, MOST_NODES)
        place = Line(angle, reader.real("spacing", 1e-12, 1e12), low, high)
    else:
        panels, order = reader.whole("panels", 1, MOST_NODES), reader.whole("order", 2, _MOST_ORDER)
        depth, steep = reader.whole("depth", 1, 60), reader.whole("steep", 2, _MOST_ORDER)
        place = Panels(angle, reader.real("end", 0.5, 1e12), panels, order, depth, steep)
    if place.nodes > MOST_NODES:
        raise CannotCheck(f"{reader.where} has {place.nodes} nodes; at most {MOST_NODES} are evaluated")
    return place


class Transform(Protocol):
    """M(c + it) of one step."""

    def moment(self) -> arb:
        """Return an upper bound of M(c)."""

    def envelope(self, t: arb) -> arb:
        """Return an upper bound of |M(c + it')| for every t' >= t."""

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return balls that contain M(c + ik spacing), 0 <= k < points."""


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
        """Theorem B: |M(c+it')| <= min(|constant| + sum |w_j| e^(-t Im l_j) + E, |constant + sum w_j| + E)."""
        if self.coarse is not None:
            return self.coarse.envelope(t).min(self.moment())
        total = abs(self.constant) + self.error
        for weight, loss in zip(self.weights, self.losses, strict=True):
            total += abs(weight) * (-t * loss.imag.lower().max(arb(0))).exp()
        return total.min(self.moment())

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return the sums at k = a width + b as one product of matrices, of e^(i a width h l_j) and w_j e^(i b h l_j)."""
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
        """|z+1| / |2z+1| falls in t, |z| / |2z+1| is at most 1/2, and |M| at most M(c)."""
        c = self.tilt
        first = (((c + 1) ** 2 + t * t) / ((2 * c + 1) ** 2 + 4 * t * t)).sqrt() * (self.lam * c).exp()
        return (first + (-self.lam * (c + 1)).exp() / 2).min(self.moment())

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return the closed form at each point."""
        return [self._at(acb(self.tilt, k * spacing)) for k in range(points)]

    def _at(self, z: acb) -> acb:
        return ((z + 1) * (self.lam * z).exp() + z * (-self.lam * (z + 1)).exp()) / (2 * z + 1)


def transform(law: Law, direction: str, tilt: float, places: Places) -> Transform:
    """Return M at Re z = tilt > 0 of a step that is no full batch of Gaussian noise."""
    c = arb(tilt)
    if isinstance(law, Laplace):
        return LaplaceTransform(law.lam, c)
    if isinstance(law, Atoms):
        atoms = law.add if direction == "add" else law.remove
        return Rule(arb(0), [acb(p * (c * loss).exp()) for p, loss in atoms], [acb(loss) for _, loss in atoms], arb(0))
    assert places is not None
    own, envelope = (place and _rule(law, direction, c, place) for place in places)
    assert own is not None
    return replace(own, coarse=envelope)


def _rule(law: Law, direction: str, c: arb, place: Place) -> Rule:
    if isinstance(place, Panels):
        assert isinstance(law, FixedSize)
        return fixed_size(law, c, place)
    assert isinstance(law, Poisson)
    return _on_line(law, direction, c, place, [lambda _: acb(1)], arb(1))[0]


def cut_line(law: Poisson, c: arb, line: Line, place: arb, width: arb) -> tuple[Rule, Rule]:
    """Theorem A for the shares of P below and above a cut, psi(x) = P(N(x, width^2) <= place) and 1 - psi."""
    scale = width * arb(2).sqrt()
    shares: list[Callable[[acb], acb]] = [
        lambda x: ((x - place) / scale).erfc() / 2,
        lambda x: ((place - x) / scale).erfc() / 2,
    ]
    theta = arb(line.angle) * law.s * law.s
    below, above = _on_line(law, "remove", c, line, shares, (theta * theta / (2 * width * width)).exp())
    return below, above


def _on_line(
    law: Poisson,
    direction: str,
    c: arb,
    line: Line,
    shares: list[Callable[[acb], acb]],
    growth: arb,
) -> list[Rule]:
    """Theorem A: the trapezoid rule on the line Im x = A s^2, below the axis for add, for each share of the law.

    On the line at v the modulus of a share is at most growth^((v/theta)^2) times what it is on the axis.
    """
    s, q, d, angle, add = law.s, law.q, arb(line.spacing), arb(line.angle), direction == "add" and not law.replace
    require(2 * angle < arb.pi(), "the angle is below pi/2")
    square, theta = s * s, angle * s * s
    weights: list[list[acb]] = [[] for _ in shares]
    losses = []
    for j in range(line.low, line.high + 1):
        x = acb(j * d, -theta if add else theta)
        log_f = _ratio(law, x).log()
        other = _ratio(law, -x).log() if law.replace else acb(0)
        loss = -log_f if add else log_f - other
        tilted = normal_density(x, s) * (c * loss + (0 if add else log_f)).exp() * d
        losses.append(loss)
        for share, own in zip(shares, weights, strict=True):
            own.append(tilted * share(x))
    right, left = line.high * d, -line.low * d
    one_sided = arb(1) if not add and not law.replace else 1 / (angle / 2).cos() ** c
    two_sided = arb(1) if not add and not law.replace else 1 / angle.cos() ** c
    hidden = (1 - q) ** -c if add or law.replace else arb(1)
    tails = arb(0)
    for end, is_right in ((right, True), (left, False)):
        drift = c + 1 if is_right and not add else arb(0)
        ratio = (-(end - drift) * d / square).exp()
        require(ratio < 1, "the nodes reach beyond the peak of the integrand")
        if is_right:
            first = _at(law, end) ** -c if add else _at(law, end) ** (c + 1) * hidden
        else:
            first = hidden if add else _at(law, -end) ** (c + 1) * (_at(law, end) ** -c if law.replace else 1)
        tails += normal_density(acb(end), s).real * first * ratio / (1 - ratio)
    tails *= d * (angle * angle * square / 2).exp() * one_sided * growth
    kappa = ((2 * angle * angle * square).exp() * two_sided * growth**4 + 1) / ((2 * arb.pi() * theta / d).expm1())
    require(kappa < 1, "the spacing is fine enough")
    rules = []
    for own in weights:
        error = kappa / (1 - kappa) * (abs(sum(own, acb(0))) + tails) + tails
        rules.append(Rule(arb(0), own, losses, error))
    return rules


def _ratio(law: Poisson | FixedSize, x: acb) -> acb:
    return 1 - law.q + law.q * ((2 * x - 1) / (2 * law.s * law.s)).exp()


def _at(law: Poisson | FixedSize, x: arb) -> arb:
    return _ratio(law, acb(x)).real


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
            both = _at(law, right) ** (c + 1) + (_at(law, left) * angle.cos()) ** -c
            found = found.max(normal_density(acb(nearest), s).real * both)
        return found * (v * v / (2 * s * s)).exp()

    def panel(centre: acb, way: acb, b: arb, nodes: list[tuple[arb, arb]]) -> None:
        for node, weight in nodes:
            x = centre + way * b * node
            density, log_f = way * b * weight * normal_density(x, s), _ratio(law, x).log()
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
    up = _at(law, end) ** (c + 1) / (end - c - 1)
    down = (_at(law, end) * (angle / 2).cos()) ** -c / end
    error += normal_density(acb(end), s).real * s * s * (up + down) * (angle * angle * s * s / 2).exp()
    never = 1 - (2 - law.q) * normal_cdf(-1 / (2 * s)) - law.q * normal_cdf(1 / (2 * s))
    return Rule(never, weights, losses, error)


def _gauss_legendre(order: int) -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(order, k, weight=True) for k in range(order)]
