"""The forms of a proof for one direction: each reads its witness and encloses delta(e), at any e, as far as it can.

A witness is not trusted: it says where to look, and every bound is evaluated for what it says. The theorems are
proved in docs/concepts/fourier.md (1, 4 and 5) and docs/concepts/certificates.md (A, B and C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from flint import acb, acb_mat, arb, arb_poly, ctx

from epsilond_verifier.bounds import Above, Below, CannotCheck, Enclosure, kernel, normal_cdf, refuse_unless, require
from epsilond_verifier.laws import (
    MOST_BRANCHES,
    MOST_IN_GROUP,
    Atoms,
    Draws,
    FixedSize,
    Laplace,
    Law,
    Mixture,
    Normal,
    Sampled,
    Step,
    delta_of_normal,
    is_symmetric,
    largest_loss,
    without_rare,
)
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import OF_VALUE, AboveCut, Place, Transform, powers, read_place, transform

MOST_POINTS, _MOST_WORK, _MOST_TERMS, _MOST_PANELS = 400_000, 10**8, 200_000, 10_000
#: The work of finding a node, of turning a line's sum to another e, and of finding a place, in nodes at points.
_OF_NODE, _OF_SUM, _OF_PLACE, _DOUBLINGS = 100, 4, 10_000, 60
_TILTS, _GOLDEN = (1e-9, 1e9), 0.618
#: It encloses delta at e. What does not depend on e is found once.
Proof = Callable[[arb], Enclosure]


@dataclass(slots=True)
class Work:
    """The evaluation work that a certificate may still ask for, in nodes times points."""

    left: int = _MOST_WORK

    def take(self, nodes: int, points: int) -> None:
        """Refuse work beyond the limit."""
        self.left -= nodes * points
        refuse_unless(self.left >= 0, f"with {nodes} nodes at {points} points it is more than {_MOST_WORK} in all")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: delta of these steps in one direction, at several epsilons."""

    steps: Sequence[Step]
    direction: str
    work: Work = field(default_factory=Work)
    times: int = 1

    def variance(self) -> arb:
        """Return mu^2 of all full batches of Gaussian noise."""
        return sum((step.count * step.law.mu_squared for step in self.steps if isinstance(step.law, Normal)), arb(0))

    def transforms(self, tilt: float, places: Sequence[Place]) -> list[tuple[Transform, int]]:
        """Return M of each other step, with their numbers."""
        pairs = [pair for pair in zip(self.steps, places, strict=True) if not isinstance(pair[0].law, Normal)]
        return [(transform(step.law, self.direction, tilt, place), step.count) for step, place in pairs]

    def chernoff(self, tilt: float, places: Sequence[Place], window: arb) -> Callable[[arb], arb]:
        """Return V(x) = M(x) B(x) e^(-x e) >= delta(e) at x > 0, M(x) bounded from above, with a window's variance."""
        x = arb(tilt)

        @cache
        def constant() -> arb:
            found = kernel(x) * ((self.variance() + window) * x * (x + 1) / 2).exp()
            for each, count in self.transforms(tilt, places):
                found *= each.moment() ** count
            return found

        return lambda e: constant() * (-x * e).exp()


@dataclass(frozen=True, slots=True)
class Sum:
    """A line on which Theorem 1's sum is taken: z_k = c + ikh for k < N, h = 2 pi / P.

    ``far`` is the tilt that bounds aliases on the right. Without it there is no bound of delta from below.
    """

    tilt: float
    period: float
    points: int
    places: Sequence[Place]
    far: tuple[float, Sequence[Place]] | None

    @property
    def h(self) -> arb:
        """Return the distance of the points."""
        return 2 * arb.pi() / arb(self.period)

    def terms(self, values: Sequence[acb], gaussian: arb) -> tuple[acb_mat, acb_mat]:
        """Return term_k e^(z e), of which S is made, and the same without the factor 1/(z (z+1)); half of the first.

        term_k = M(z_k) e^(g z (z+1) / 2 - z e) / (z (z+1)), M(z_k) being ``values`` and g ``gaussian``.
        """
        total, density = [], []
        for k, value in enumerate(values):
            z = acb(arb(self.tilt), k * self.h)
            density.append(value * (gaussian * z * (z + 1) / 2).exp() / (2 if k == 0 else 1))
            total.append(density[k] / (z * (z + 1)))
        return acb_mat(1, self.points, total), acb_mat(1, self.points, density)

    def of(self, terms: acb_mat, e: arb) -> arb:
        """Return (h/pi) times the sum of Re terms_k e^(-z_k e)."""
        turned = acb_mat(self.points, 1, powers(acb(0, -self.h * e).exp(), self.points))
        return self.h / arb.pi() * (-self.tilt * e).exp() * (terms * turned)[0, 0].real

    def modulus(self, envelope: arb, gaussian: arb, t: arb, e: arb) -> arb:
        """Return a bound of |M e^(g z (z+1) / 2 - z e)| from t on."""
        c = arb(self.tilt)
        return envelope * (gaussian * (c * (c + 1) - t * t) / 2 - c * e).exp()

    def beyond(self, envelope: arb, gaussian: arb, e: arb) -> arb:
        """Bound the terms from N on: 1/k^2 is at most the integral of 1/x^2 over k - 1/2 .. k + 1/2."""
        modulus = self.modulus(envelope, gaussian, self.points * self.h, e)
        return modulus / (arb.pi() * self.h * (self.points - arb(1) / 2))

    def aliases(self, asked: Asked, window: arb) -> Callable[[arb], arb] | None:
        """Bound the aliases, two geometric series: delta <= 1 on the left, V(x) at a tilt x > c on the right."""
        if self.far is None:
            return None
        x, c, period = arb(self.far[0]), arb(self.tilt), arb(self.period)
        require(x > c, "the tilt of far is above the line's")
        right = asked.chernoff(*self.far, window)
        return lambda e: 1 / (c * period).expm1() + right(e) / ((x - c) * period).expm1()


def read_form(reader: Reader, asked: Asked) -> Proof:
    """Read the witness of one direction, with all limits.

    ``kept``: of each step at most this many records in a batch, or branches; 0 for all. What is left out of P and of Q
    weighs at most w in all steps, so that delta is at most w more, and at least e^e w less. ``draws``: the shares of
    each step of draws. Another choice may lose less: nothing follows from below.
    """
    number = len(asked.steps)
    kept = reader.wholes("kept", number, 0, MOST_IN_GROUP) if reader.has("kept") else [0] * number
    drawn = sum(isinstance(step.law, Draws) for step in asked.steps)
    chosen = reader.objects("draws", drawn, drawn) if drawn else []
    left_out, steps = arb(0), list[Step]()
    for step, most in zip(asked.steps, kept, strict=True):
        law, beyond = step.law, arb(0)
        if isinstance(law, Draws):
            own = chosen.pop(0)
            law, beyond = law.seen([arb(share) for share in own.reals("shares", MOST_BRANCHES, 5e-324, 1.0)])
            own.close()
        law, mass = without_rare(law, most)
        steps.append(replace(step, law=law))
        left_out += step.count * (mass + beyond)
    asked = replace(asked, steps=steps)
    proof = _FORMS[reader.word("form", *_FORMS)](reader, asked)
    reader.close()

    def prove(e: arb) -> Enclosure:
        found = proof(e).wider(left_out, e.exp() * left_out)
        return replace(found, below=None) if drawn else found

    return prove


def _gaussian(_reader: Reader, asked: Asked) -> Proof:
    """Full batches alone: one normal loss."""
    alone = all(isinstance(step.law, Normal) for step in asked.steps)
    refuse_unless(alone, "the closed form is that of full batches of Gaussian noise alone")
    mu = asked.variance().sqrt()
    return lambda e: Enclosure.of(delta_of_normal(mu, e))


def _one_step(_reader: Reader, asked: Asked) -> Proof:
    """One step: delta is P - e^e Q where the loss is above e; that of a mixture is the weighted sum of its branches'.

    Sampled: the loss of remove is above e exactly beyond a place. For add, P and Q are exchanged and it is before the
    place with -e for e. A batch of a fixed size has the delta of remove, since e >= 0. Laplace noise: delta =
    (1 - e^((e - lam)/2))_+.
    """
    law, add = asked.steps[0].law, asked.direction == "add"
    alone = len(asked.steps) == asked.steps[0].count == 1
    refuse_unless(alone and not isinstance(law, Atoms), "the closed form is that of one step of noise")
    branches = law.branches if isinstance(law, Mixture) else ((arb(1), law),)
    asked.work.take(_OF_PLACE * len(branches), asked.times)

    def of_one(law: Law, e: arb) -> arb:
        if isinstance(law, Normal):
            return delta_of_normal(law.mu_squared.sqrt(), e)
        if isinstance(law, Laplace):
            return (-((e - law.lam) / 2).expm1()).max(arb(0))
        assert isinstance(law, Sampled)
        if add and not law.replace and not isinstance(law, FixedSize):
            if e >= -law.weights[0].log():
                return arb(0)
            x = _place(law, (-e).exp())
            return normal_cdf(x / law.s) - e.exp() * (sum(law.weights) - law.mass_beyond(x, 1))
        x = _place(law, e.exp())
        other = law.mass_beyond(x, -1) if law.replace else normal_cdf(-x / law.s)
        return law.mass_beyond(x, 1) - e.exp() * other

    return lambda e: Enclosure.of(sum((p * of_one(branch, e) for p, branch in branches), arb(0)))


def _place(law: Sampled, level: arb) -> arb:
    """Enclose the x where f(x), or f(x) / f(-x) for replaced records, is ``level``; both rise, from p_0 or 0 on."""

    def ratio(x: arb) -> arb:
        return law.f(acb(x)).real / (law.f(acb(-x)).real if law.replace else 1)

    low, high = -law.s, law.s
    for _ in range(_DOUBLINGS):
        low, high = (low if ratio(low) < level else 2 * low), (high if ratio(high) > level else 2 * high)
    require(ratio(low) < level and ratio(high) > level, "the loss reaches epsilon")
    for _ in range(2 * ctx.prec):
        # Not halfway: where the place is 0 or 1/2 that may be it, and no ball decides there.
        middle = arb((low + (high - low) * _GOLDEN).mid())
        at = ratio(middle)
        if at < level:
            low = middle
        elif at > level:
            high = middle
        else:
            break
    return low.union(high)


def _bounded(_reader: Reader, asked: Asked) -> Proof:
    """The losses add up to at most e: delta is 0. Nothing else follows, so that there is no other answer."""

    def prove(e: arb) -> Enclosure:
        largest = sum((step.count * largest_loss(step.law, asked.direction) for step in asked.steps), arb(0))
        require(largest <= e, "the largest loss is at most epsilon")
        return Enclosure(above=Above(arb(0)))

    return prove


def _outcomes(_reader: Reader, asked: Asked) -> Proof:
    """Equal steps whose losses are base + k gap: those of T steps are T base + k gap, with the weights of a power.

    A third outcome has the loss 0, halfway between the other two, which are each other's opposites.
    """
    law, count = asked.steps[0].law, asked.steps[0].count
    if len(asked.steps) > 1 or not isinstance(law, Atoms) or count > _MOST_TERMS:
        raise CannotCheck(f"the sum over outcomes is that of at most {_MOST_TERMS} equal steps with few outcomes")
    (first, base), (second, following), *others = law.outcomes(asked.direction)
    one = arb_poly([first, *(probability for probability, _ in others), second])
    asked.work.take(_OF_NODE * asked.times, count)
    masses = cache(lambda: one**count)

    def prove(e: arb) -> Enclosure:
        gap = (following - base) / (2 if others else 1)
        gains = (mass * (-(e - count * base - k * gap).expm1()).max(arb(0)) for k, mass in enumerate(masses()))
        return Enclosure.of(sum(gains, arb(0)))

    return prove


def _chernoff(reader: Reader, asked: Asked) -> Proof:
    """delta(e) <= V(x) at one tilt."""
    bound = asked.chernoff(reader.real("tilt", *_TILTS), _read_places(reader, asked), arb(0))
    return lambda e: Enclosure(above=Above(bound(e)))


def _contour(reader: Reader, asked: Asked) -> Proof:
    """Theorem 1, with a window of variance eta^2 by Theorem 4; g = mu^2 of full batches + eta^2.

    S - beyond - 1/(e^(cP) - 1) - V(x)/(e^((x-c)P) - 1) - window <= delta <= S + beyond
    window = eta^2 e^(eta^2/8) times the density's sum and what is beyond it; aliases are nonnegative
    """
    line, eta_squared = _read_sum(reader, asked), arb(reader.real("window", 0.0, 1e6)) ** 2
    gaussian, aliases = asked.variance() + eta_squared, line.aliases(asked, eta_squared)

    @cache
    def transforms() -> tuple[acb_mat, acb_mat, arb]:
        envelope, values = arb(1), [acb(1)] * line.points
        for each, count in asked.transforms(line.tilt, line.places):
            values = [m * own**count for m, own in zip(values, each.on_line(line.h, line.points), strict=True)]
            envelope *= each.envelope(line.points * line.h) ** count
        return *line.terms(values, gaussian), envelope

    def prove(e: arb) -> Enclosure:
        terms, densities, envelope = transforms()
        total, beyond = line.of(terms, e), line.beyond(envelope, gaussian, e)
        if aliases is None:
            return Enclosure(Above(total + beyond))
        below = total - beyond - aliases(e)
        if eta_squared > 0:
            last = (line.points - 1) * line.h
            density = line.modulus(envelope, gaussian, last, e) / (arb.pi() * gaussian * last)
            below -= eta_squared * (eta_squared / 8).exp() * (line.of(densities, e) + density)
        return Enclosure(Above(total + beyond), Below(below))

    return prove


def _cut(reader: Reader, asked: Asked) -> Proof:
    """Theorem 5 for equal steps with one cut. M_above is the transform of the part above the cut.

    The profile D of P^T - P_below^T has the transform M^T - (M - M_above)^T, at most T M(c)^(T-1) |M_above| in modulus,
    and D <= delta <= D + bulk. For a fixed size, M_above is the transform of remove on the whole line. Its part below
    x = 1/2 weighs at most extra, psi's complement there. That part is added to P, and the lower bound loses
    (1 + extra)^T - 1.
    """
    law, count, line = asked.steps[0].law, asked.steps[0].count, _read_sum(reader, asked)
    above = reader.inside("above")
    cut = AboveCut.read(reader, above)
    above.close()
    if len(asked.steps) > 1 or not isinstance(law, Sampled) or (asked.direction == "add" and not is_symmetric(law)):
        raise CannotCheck("one cut is proved for equal steps on batches, not for Poisson batches in the direction add")
    bulk, aliases = _read_bulk(reader.inside("bulk"), asked, cut), line.aliases(asked, arb(0))
    asked.work.take(cut.nodes, line.points)

    @cache
    def transforms() -> tuple[acb_mat, arb, arb]:
        ((whole, _),) = asked.transforms(line.tilt, line.places)
        high, extra = cut.rule(law, asked.direction, arb(line.tilt)), cut.outside(law)
        blur = acb(arb(0, extra), arb(0, extra))
        pairs = zip(whole.on_line(line.h, line.points), high.on_line(line.h, line.points), strict=True)
        values = [(m + blur) ** count - (m - m_above + blur) ** count for m, m_above in pairs]
        envelope = count * (whole.moment() + extra) ** (count - 1) * high.envelope(line.points * line.h)
        return line.terms(values, arb(0))[0], envelope, (1 + extra) ** count

    def prove(e: arb) -> Enclosure:
        terms, envelope, mass = transforms()
        total, beyond = line.of(terms, e), line.beyond(envelope, arb(0), e)
        below = None if aliases is None else Below(total - beyond - mass * aliases(e) - (mass - 1))
        return Enclosure(Above(total + beyond + bulk(e)), below)

    return prove


def _read_bulk(reader: Reader, asked: Asked, cut: AboveCut) -> Callable[[arb], arb]:
    """Read where to bound what lies below the cut, by Chernoff at another tilt c' with p = c' + 1, r = dP/dQ:

        (1 + sum of Q(panel) max k psi + Q(x < start) max(p - 1, k(r(start))))^T B(c') e^(-c' e) + T psi(end) P(x > end)

    k(r) = r^p - 1 - p (r - 1) is convex with its minimum at 1, and E_Q psi (r - 1) <= 0 as psi falls and r rises. For a
    fixed size the start is 1/2 and k = (f^c' - 1)(f - f^-c'), which is 0 there and rises.
    """
    law, count = asked.steps[0].law, asked.steps[0].count
    assert isinstance(law, Sampled)
    x, panels = arb(reader.real("tilt", *_TILTS)), reader.whole("panels", 1, _MOST_PANELS)
    fixed, replaced = isinstance(law, FixedSize), law.replace
    start, end = arb(0.5 if fixed else reader.real("start", -1e9, 1e9)), arb(reader.real("end", -1e9, 1e9))
    reader.close()
    asked.work.take(_OF_NODE, panels)

    def height(at: arb) -> arb:
        r = law.f(acb(at)).real / (law.f(acb(-at)).real if replaced else 1)
        return (r**x - 1) * (r - r**-x) if fixed else r ** (x + 1) - 1 - (x + 1) * (r - 1)

    def share(at: arb) -> arb:
        return normal_cdf((cut.place - at) / cut.width)

    @cache
    def moment() -> arb:
        require(start < end, "the panels have a length")
        edges = [start + (end - start) * k / panels for k in range(panels + 1)]
        under = [law.mass_beyond(-at, 1) if replaced else normal_cdf(at / law.s) for at in edges]
        heights = [height(at) for at in edges]
        total = 1 + (0 if fixed else under[0] * x.max(heights[0]))
        for k in range(panels):
            total += (under[k + 1] - under[k]) * heights[k].max(heights[k + 1]) * share(edges[k])
        return total**count

    return lambda e: moment() * kernel(x) * (-x * e).exp() + count * share(end) * law.mass_beyond(end, 1)


def _read_sum(reader: Reader, asked: Asked) -> Sum:
    tilt, period = reader.real("tilt", *_TILTS), reader.real("period", 1e-12, 1e12)
    points = reader.whole("points", 2, MOST_POINTS)
    places, far = _read_places(reader, asked), None
    of_values = sum(OF_VALUE + (place[0].nodes if place else 0) for place in places)
    asked.work.take(of_values + _OF_SUM * asked.times, points)
    if reader.has("far"):
        inner = reader.inside("far")
        far = inner.real("tilt", *_TILTS), _read_places(inner, asked)
        inner.close()
    return Sum(tilt, period, points, places, far)


def _read_places(reader: Reader, asked: Asked) -> list[Place]:
    """Read the nodes of each step, in the order of the statement's events."""
    readers = reader.objects("steps", len(asked.steps), len(asked.steps))
    places = [read_place(each, step.law) for each, step in zip(readers, asked.steps, strict=True)]
    asked.work.take(_OF_NODE, sum(each.nodes for place in places for each in place))
    return places


_FORMS: dict[str, Callable[[Reader, Asked], Proof]] = {
    "gaussian": _gaussian,
    "one_step": _one_step,
    "bounded": _bounded,
    "outcomes": _outcomes,
    "chernoff": _chernoff,
    "contour": _contour,
    "cut": _cut,
}
