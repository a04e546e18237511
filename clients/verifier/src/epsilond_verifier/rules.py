"""One step's transform M(c + it), t >= 0, as a finite sum with an error bound that holds for every t.

A **rule** is a constant, weights w_j, losses l_j with Im l_j >= 0 and an error E such that, for every t >= 0,

    |M(c+it) - constant - sum of w_j e^(i t l_j)| <= E.

Theorems A, B and C are proved in docs/concepts/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from flint import acb, acb_mat, arb

from epsilond_verifier.bounds import CannotCheck, normal_cdf, normal_density, require
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Law, Mixture, Normal, Sampled
from epsilond_verifier.reading import Reader

_MOST_NODES, _MOST_ORDER, _ANGLES = 20_000, 400, (5e-324, 2.0)
#: The work of one value of a transform, in evaluations of nodes, in addition to the work at its nodes, if it has any.
_OF_VALUE = 40


@dataclass(frozen=True, slots=True)
class Rule:
    """A transform as a finite sum; the module's docstring has the formula.

    ``coarse`` is a rule that bounds the envelope in place of this one, with the moment of the part of the law that it
    leaves out. ``late`` is a pair a, b by which the error at t is larger by a e^(b t). The envelope of a rule with
    ``late`` is only bounded by its moment.
    """

    constant: arb
    weights: list[acb]
    losses: list[acb]
    error: arb
    coarse: tuple[Rule, arb] | None = None
    late: tuple[arb, arb] | None = None

    def error_at(self, t: arb) -> arb:
        """Return a bound on the error of the rule that holds at all points from 0 to t."""
        return self.error if self.late is None else self.error + self.late[0] * (t * self.late[1]).exp()

    def at_zero(self) -> acb:
        """Return the sum at t = 0."""
        return self.constant + sum(self.weights, acb(0))

    def moment(self) -> arb:
        """Return a bound on M(c): |constant + sum of w_j| + E."""
        return abs(self.at_zero()) + self.error_at(arb(0))

    def envelope(self, t: arb) -> arb:
        """Return Theorem B's bound: min(|constant| + sum |w_j| e^(-t Im l_j) + E, |constant + sum w_j| + E)."""
        if self.coarse is not None:
            rule, left_out = self.coarse
            return (left_out + rule.envelope(t)).min(self.moment())
        if self.late is not None:
            return self.moment()
        total = abs(self.constant) + self.error
        for weight, loss in zip(self.weights, self.losses, strict=True):
            total += abs(weight) * (-t * loss.imag.lower().max(arb(0))).exp()
        return total.min(self.moment())

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return balls with M at the points t = k h, k < ``points``, where h is ``spacing``. With k = a width + b, the
        sums are one product of the matrices e^(i a width h l_j) and w_j e^(i b h l_j)."""
        width, nodes = math.isqrt(points - 1) + 1, len(self.weights)
        rows = -(-points // width)
        steps = [acb(0, 1) * spacing * loss for loss in self.losses]
        fine = [[w * power for power in powers(step.exp(), width)] for w, step in zip(self.weights, steps, strict=True)]
        coarse = [powers((width * step).exp(), rows) for step in steps]
        left = acb_mat(rows, nodes, [coarse[j][a] for a in range(rows) for j in range(nodes)])
        right = acb_mat(nodes, width, [power for row in fine for power in row])
        around = self.constant + blurred(self.error_at(spacing * points))
        return [value + around for value in (left * right).entries()[:points]]


def blurred(radius: arb) -> acb:
    """Return a ball that contains all complex numbers whose modulus is at most ``radius``."""
    return acb(arb(0, radius), arb(0, radius))


def powers(base: acb, number: int) -> list[acb]:
    """Return base^k for 0 <= k < ``number``. Each power is the product of two powers of half its exponent, so that the
    radii of the balls grow like sqrt(k)."""
    found = [acb(1), base]
    for k in range(2, number):
        found.append(found[k // 2] * found[k - k // 2])
    return found[:number]


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A transform that is known at every z. ``envelope`` is a bound of |M(c + it)| that decreases in t."""

    tilt: arb
    at: Callable[[acb], acb]
    envelope: Callable[[arb], arb]

    def moment(self) -> arb:
        """Return M(c)."""
        return self.at(acb(self.tilt)).real

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return M at the points t = k h, k < ``points``, where h is ``spacing``."""
        return [self.at(acb(self.tilt, k * spacing)) for k in range(points)]


def laplace(lam: arb, c: arb) -> ClosedForm:
    """Return M(z) = ((z+1) e^(lam z) + z e^(-lam (z+1))) / (2z+1)  (Mironov 2017, Proposition 6).

    The envelope follows because |z+1| / |2z+1| decreases in t, |z| / |2z+1| is at most 1/2, and |M| is at most M(c).
    """

    def at(z: acb) -> acb:
        return ((z + 1) * (lam * z).exp() + z * (-lam * (z + 1)).exp()) / (2 * z + 1)

    def envelope(t: arb) -> arb:
        first = (((c + 1) ** 2 + t * t) / ((2 * c + 1) ** 2 + 4 * t * t)).sqrt() * (lam * c).exp()
        return (first + (-lam * (c + 1)).exp() / 2).min(at(acb(c)).real)

    return ClosedForm(c, at, envelope)


def normal(mu_squared: arb, c: arb) -> ClosedForm:
    """Return M(z) = e^(mu^2 z (z+1) / 2) of a full batch of Gaussian noise, with its modulus as the envelope."""
    modulus = lambda t: (mu_squared * (c * (c + 1) - t * t) / 2).exp()  # noqa: E731
    return ClosedForm(c, lambda z: (mu_squared * z * (z + 1) / 2).exp(), modulus)


@dataclass(frozen=True, slots=True)
class MixtureTransform:
    """The sum of the branches' transforms, each times its probability."""

    branches: list[tuple[arb, Transform]]

    def moment(self) -> arb:
        """Return a bound on M(c)."""
        return sum((p * branch.moment() for p, branch in self.branches), arb(0))

    def envelope(self, t: arb) -> arb:
        """Return a bound on |M| from t on."""
        return sum((p * branch.envelope(t) for p, branch in self.branches), arb(0))

    def on_line(self, spacing: arb, points: int) -> list[acb]:
        """Return balls with M at the points t = k h, k < ``points``, where h is ``spacing``."""
        total = [acb(0)] * points
        for p, branch in self.branches:
            total = [value + p * own for value, own in zip(total, branch.on_line(spacing, points), strict=True)]
        return total


Transform = Rule | ClosedForm | MixtureTransform


@dataclass(frozen=True, slots=True)
class Place:
    """The means to evaluate the transform of a step at a tilt c > 0.

    Attributes:
        at: A function that returns the transform at a tilt.
        of_value: The work of one value, in evaluations of nodes.
        nodes: The number of nodes, which are computed before the first value.
    """

    at: Callable[[arb], Transform]
    of_value: int = _OF_VALUE
    nodes: int = 0


def read_place(reader: Reader, law: Law, direction: str) -> Place:
    """Read the positions of a step's nodes. For a law whose transform has a closed form, the object is empty."""
    if isinstance(law, Normal | Laplace):
        return Place(partial(normal, law.mu_squared) if isinstance(law, Normal) else partial(laplace, law.lam))
    if isinstance(law, Atoms):
        atoms = law.outcomes(direction)
        losses = [acb(loss) for _, loss in atoms]
        return Place(lambda c: Rule(arb(0), [acb(p * (c * loss).exp()) for p, loss in atoms], losses, arb(0)))
    if isinstance(law, Mixture):
        readers = reader.objects("branches", len(law.branches), len(law.branches))
        parts = [(p, read_place(each, own, direction)) for each, (p, own) in zip(readers, law.branches, strict=True)]
        nodes = sum(_OF_VALUE + place.nodes for _, place in parts)
        return Place(lambda c: MixtureTransform([(p, place.at(c)) for p, place in parts]), _OF_VALUE + nodes, nodes)
    if not isinstance(law, Sampled):
        raise CannotCheck("for discrete noise, the only form is the sum over outcomes")
    return _read_sampled(reader, law, direction)


def _read_sampled(reader: Reader, law: Sampled, direction: str) -> Place:
    """Read the nodes of a rule and, if there is one, of the rule for its envelope."""
    read = read_panels if isinstance(law, FixedSize) else read_line
    own, nodes = read(reader, law, direction)
    at, more = own, 0
    if reader.has("envelope"):
        inner = reader.inside("envelope")
        if isinstance(law, FixedSize) and inner.has("place"):
            cut = AboveCut.read(inner, inner, law)
            at, more = lambda c: cut.coarse(own(c), c), cut.nodes
        else:
            other, more = read(inner, law, direction)
            at = lambda c: replace(own(c), coarse=(other(c), arb(0)))  # noqa: E731
    return Place(at, _OF_VALUE + nodes, nodes + more)


def read_line(reader: Reader, law: Sampled, direction: str) -> tuple[Callable[..., Rule], int]:
    """Read the nodes j = low .. high of Theorem A. Return a function that makes the rule at a tilt, and the number of
    nodes."""
    low, high = reader.whole("low", -_MOST_NODES, -1), reader.whole("high", 1, _MOST_NODES)
    angle, spacing = arb(reader.real("angle", *_ANGLES)), arb(reader.real("spacing", 1e-12, 1e12))
    return partial(shifted_line, law, direction, angle, spacing, range(low, high + 1)), high - low + 1


@dataclass(frozen=True, slots=True)
class AboveCut:
    """The share 1 - psi of a law, where psi(x) = P(N(x, width^2) <= place), with the nodes on its line. For a fixed
    size, it is the share of remove's law."""

    law: Sampled
    place: arb
    width: arb
    line: Callable[..., Rule]
    nodes: int

    @classmethod
    def read(cls, cut: Reader, line: Reader, law: Sampled) -> AboveCut:
        """Read the place of the cut, and the nodes of the part above it."""
        place, width = arb(cut.real("place", -1e9, 1e9)), arb(cut.real("width", 1e-12, 1e9))
        return cls(law, place, width, *read_line(line, law, "remove"))

    def share(self, x: acb) -> acb:
        """Return 1 - psi(x)."""
        return ((self.place - x) / (self.width * arb(2).sqrt())).erfc() / 2

    def rule(self, c: arb) -> Rule:
        """Return the rule of Theorem A for the share."""
        return self.line(c, self)

    def outside(self) -> arb:
        """Return a bound on the mass of the share at x < 1/2, which the law of a fixed size does not have."""
        return self.share(acb(0.5)).real if isinstance(self.law, FixedSize) else arb(0)

    def coarse(self, whole: Rule, c: arb) -> Rule:
        """Return the rule of the whole law, whose envelope comes from the part above the cut."""
        above = self.rule(c)
        errors = whole.error_at(arb(0)) + above.error + 2 * self.outside()
        return replace(whole, coarse=(above, abs(whole.at_zero() - above.at_zero()) + errors))


def shifted_line(
    law: Sampled, direction: str, angle: arb, d: arb, nodes: range, c: arb, above: AboveCut | None = None
) -> Rule:
    """Return the rule of Theorem A: the trapezoid rule on the line Im x = A s^2 / H, or its mirror image below the axis
    for add.

    For the share above a cut, the modulus at height v is at most e^(v^2 / (2 width^2)) times that on the axis.
    """
    s, add = law.s, direction == "add" and not law.replace
    require(2 * angle < arb.pi(), "the angle is below pi/2")
    square, theta = s * s, angle * law.turned
    growth = (theta * theta / (2 * above.width**2)).exp() if above else arb(1)
    weights, losses = [], []
    for j in nodes:
        x = acb(j * d, -theta if add else theta)
        log_f = law.f(x).log()
        loss = -log_f if add else log_f - (law.f(-x).log() if law.replace else 0)
        weight = normal_density(x, s) * (c * loss + (0 if add else log_f)).exp() * d
        weights.append(weight * above.share(x) if above else weight)
        losses.append(loss)
    right, left = nodes[-1] * d, -nodes[0] * d
    negative = c if add or law.replace else arb(0)
    one_sided, two_sided, hidden = (angle / 2).cos() ** -negative, angle.cos() ** -negative, law.weights[0] ** -negative
    high, low, mirrored = (law.f(acb(x)).real for x in (right, -left, left))
    ends = [(right, law.most * (c + 1), high ** (c + 1) * hidden), (left, arb(0), low ** (c + 1) * mirrored**-negative)]
    if add:
        ends = [(right, arb(0), high**-c), (left, arb(0), hidden)]
    tails = arb(0)
    for end, drift, first in ends:
        ratio = (-(end - drift) * d / square).exp()
        require(ratio < 1, "the nodes extend beyond the peak of the integrand")
        tails += normal_density(acb(end), s).real * first * ratio / (1 - ratio)
    tails *= d * (theta * theta / (2 * square)).exp() * one_sided * growth
    kappa = ((2 * theta * theta / square).exp() * two_sided * growth**4 + 1) / ((2 * arb.pi() * theta / d).expm1())
    require(kappa < 1, "the spacing of the nodes is small enough")
    error = kappa / (1 - kappa) * (abs(sum(weights, acb(0))) + tails) + tails
    return Rule(arb(0), weights, losses, error)


def read_panels(reader: Reader, law: Sampled, _direction: str) -> tuple[Callable[..., Rule], int]:
    """Read the panels of Theorem C: level ones with ``order`` nodes each, ``depth`` steep ones, and possibly a last
    one.

    Return a function that makes the rule at a tilt, and a bound on the number of nodes in both halves.
    """
    angle, end = arb(reader.real("angle", *_ANGLES)), arb(reader.real("end", 0.5, 1e12))
    panels, depth = reader.whole("panels", 1, _MOST_NODES), reader.whole("depth", 0, 120)
    order, steep = (reader.whole(key, 2, _MOST_ORDER) for key in ("order", "steep"))
    last = reader.whole("last", 2, _MOST_ORDER) if reader.has("last") else 0
    found = partial(fixed_size, law, angle, end, panels, order, depth, steep, last)
    return found, 2 * (panels * order + depth * steep + last)


def fixed_size(
    law: Sampled, angle: arb, end: arb, panels: int, order: int, depth: int, steep: int, last: int, c: arb
) -> Rule:
    """Return the rule of Theorem C: M(z) = a_0 + integrals over x > 1/2 of phi f^(z+1) and phi f^(-z), on a path by way
    of 1/2 + i theta.

    The path of the second integral is the mirror image of the first, so its nodes are the conjugates.
    """
    require(2 * angle < arb.pi(), "the angle is below pi/2")
    s, theta, half = law.s, angle * law.turned, arb(1) / 2
    require(end > half, "the panels end beyond their start")
    weights: list[acb] = []
    losses: list[acb] = []

    def largest(low: arb, high: arb, v: arb) -> arb:
        """Return a bound on the moduli of both integrands for low <= Re x <= high and 0 <= |Im x| <= v <= 2 theta."""
        found, step = arb(0), (high - low) / 8
        for k in range(8):
            left, right = low + k * step, low + (k + 1) * step
            nearest = left.max(arb(0)) + right.min(arb(0))
            both = law.f(acb(right)).real ** (c + 1) + (law.f(acb(left)).real * angle.cos()) ** -c
            found = found.max(normal_density(acb(nearest), s).real * both)
        return found * (v * v / (2 * s * s)).exp()

    def panel(centre: acb, way: acb, rho: arb, nodes: list[tuple[arb, arb]], reach: arb, height: arb) -> arb:
        """Add the nodes of a panel of half length |way|, and return a bound on its error. On its ellipse, 0 <= Im x <=
        height."""
        for node, weight in nodes:
            x = centre + way * node
            density, log_f = way * weight * normal_density(x, s), law.f(x).log()
            weights.extend((density * ((c + 1) * log_f).exp(), (density * (-c * log_f).exp()).conjugate()))
            losses.extend((log_f, -log_f.conjugate()))
        most = largest(centre.real - reach, centre.real + reach, height)
        return arb(64) / 15 * abs(way) * most * rho ** (-2 * len(nodes)) / (1 - rho**-2)

    b, level, error, late = (end - half) / (2 * panels), _gauss_legendre(order), arb(0), None
    rho, reach = theta / b + (1 + (theta / b) ** 2).sqrt(), (b * b + theta * theta).sqrt()
    for k in range(panels):
        error += panel(acb(half + (2 * k + 1) * b, theta), acb(b), rho, level, reach, 2 * theta)
    for k in range(depth):
        # A rule for an interval of a quarter of the length needs log 4 / (2 log 3) fewer nodes.
        u, fewer = theta / 4 ** (k + 1), _gauss_legendre(max(2, steep - 5 * k // 8))
        error += panel(acb(half, 5 * u / 2), acb(0, 3 * u / 2), arb(3), fewer, 2 * u, 5 * u)
    rest = theta / 4**depth
    if last:
        middle, reach, below = rest / 2, 15 * rest / 16, 9 * rest / 16
        missed = panel(acb(half, middle), acb(0, middle), arb(4), _gauss_legendre(last), reach, 25 * rest / 16)
        late = missed, law.f(acb(half + reach, below)).log().imag
    else:
        error += rest * largest(half, half, rest)
    require(end > c + 1, "the panels extend beyond the peak of the integrand")
    f_end = law.f(acb(end)).real
    beyond = f_end ** (c + 1) / (end - c - 1) + (f_end * (angle / 2).cos()) ** -c / end
    error += normal_density(acb(end), s).real * s * s * beyond * (angle * angle * s * s / 2).exp()
    never = 1 - (2 - law.q) * normal_cdf(-1 / (2 * s)) - law.q * normal_cdf(1 / (2 * s))
    return Rule(never, weights, losses, error, late=late)


def _gauss_legendre(order: int) -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(order, k, weight=True) for k in range(order)]
