"""The forms of a proof for one direction. Each reads its witness, and then encloses delta(e) as far as it can.

A witness is trusted in nothing: it says where to look, and every bound is evaluated for what it says. The theorems are
proved in docs/concepts/fourier.md (1, 4 and 5) and docs/concepts/certificates.md (A, B and C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flint import acb, arb, arb_poly

from epsilond_verifier.bounds import Above, Below, CannotCheck, Enclosure, kernel, normal_cdf, refuse_unless, require
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Normal, Sampled, Step, is_symmetric, largest_loss
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import Line, Place, Transform, above_cut, read_nodes, read_place, transform

MOST_POINTS, _MOST_NODES, _MOST_NODE_POINTS, _MOST_TERMS, _MOST_PANELS = 400_000, 200_000, 10**8, 200_000, 10_000
_TILTS = (1e-9, 1e9)
Proof = Callable[[], Enclosure]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: delta at e of these steps in one direction."""

    steps: Sequence[Step]
    direction: str
    e: arb
    known: dict[tuple[str, str], Any] = field(default_factory=dict)

    def once(self, what: str, find: Callable[[], Any]) -> Any:
        """Return what does not depend on e: it is found once for all e that are asked with the same witness."""
        if (self.direction, what) not in self.known:
            self.known[self.direction, what] = find()
        return self.known[self.direction, what]

    def variance(self) -> arb:
        """Return mu^2 of all full batches of Gaussian noise."""
        return sum((step.count * step.law.mu_squared for step in self.steps if isinstance(step.law, Normal)), arb(0))

    def transforms(self, tilt: float, places: Sequence[Place]) -> list[tuple[Transform, int]]:
        """Return M of each other step, with their numbers."""
        pairs = [pair for pair in zip(self.steps, places, strict=True) if not isinstance(pair[0].law, Normal)]
        return [(transform(step.law, self.direction, tilt, place), step.count) for step, place in pairs]

    def chernoff(self, tilt: float, places: Sequence[Place], window: arb) -> arb:
        """Return V(x) = M(x) B(x) e^(-x e) >= delta(e) at x > 0, M(x) bounded from above, with a window's variance."""
        x = arb(tilt)

        def moments() -> arb:
            found = arb(1)
            for each, count in self.transforms(tilt, places):
                found *= each.moment() ** count
            return found

        bound = kernel(x) * ((self.variance() + window) * x * (x + 1) / 2 - x * self.e).exp()
        found: arb = self.once(f"moments at {tilt}", moments)
        return bound * found


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

    def of(self, values: Sequence[acb], gaussian: arb, e: arb) -> tuple[arb, arb]:
        """Return S = (h/pi) (term_0 / 2 + sum of Re term_k), and the same without the factor 1/(z (z+1)).

        term_k = M(z_k) e^(g z (z+1) / 2 - z e) / (z (z+1)), M(z_k) being ``values`` and g ``gaussian``.
        """
        total = density = arb(0)
        for k, value in enumerate(values):
            z = acb(arb(self.tilt), k * self.h)
            term = value * (gaussian * z * (z + 1) / 2 - z * e).exp() / (2 if k == 0 else 1)
            density += term.real
            total += (term / (z * (z + 1))).real
        return self.h / arb.pi() * total, self.h / arb.pi() * density

    def modulus(self, envelope: arb, gaussian: arb, t: arb, e: arb) -> arb:
        """Return a bound of |M e^(g z (z+1) / 2 - z e)| from t on."""
        c = arb(self.tilt)
        return envelope * (gaussian * (c * (c + 1) - t * t) / 2 - c * e).exp()

    def beyond(self, envelope: arb, gaussian: arb, e: arb) -> arb:
        """Bound the terms from N on: 1/k^2 is at most the integral of 1/x^2 over k - 1/2 .. k + 1/2."""
        modulus = self.modulus(envelope, gaussian, self.points * self.h, e)
        return modulus / (arb.pi() * self.h * (self.points - arb(1) / 2))

    def aliases(self, asked: Asked, window: arb) -> arb:
        """Bound the aliases, two geometric series: delta <= 1 on the left, V(x) at a tilt x > c on the right."""
        assert self.far is not None
        x, c, period = arb(self.far[0]), arb(self.tilt), arb(self.period)
        require(x > c, "the tilt of far is above the line's")
        return 1 / (c * period).expm1() + asked.chernoff(*self.far, window) / ((x - c) * period).expm1()


def read_form(reader: Reader, asked: Asked) -> Proof:
    """Read the witness of one direction, with all limits; the proof is evaluated when it is called."""
    proof = _FORMS[reader.word("form", *_FORMS)](reader, asked)
    reader.close()
    return proof


def _gaussian(_reader: Reader, asked: Asked) -> Proof:
    """Full batches alone: delta = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)  (Balle & Wang 2018, Theorem 8)."""
    alone = all(isinstance(step.law, Normal) for step in asked.steps)
    refuse_unless(alone, "the closed form is that of full batches of Gaussian noise alone")
    mu, e = asked.variance().sqrt(), asked.e
    return lambda: Enclosure.of(normal_cdf(mu / 2 - e / mu) - e.exp() * normal_cdf(-mu / 2 - e / mu))


def _one_step(_reader: Reader, asked: Asked) -> Proof:
    """One step. Sampled: the loss of remove is above e exactly where x > 1/2 + s^2 log(1 + (e^e - 1)/q).

    delta is P - e^e Q beyond that place. For add, P and Q are exchanged and it is before the place with -e for e. A
    batch of a fixed size has the delta of remove, since e >= 0. Laplace noise: delta = (1 - e^((e - lam)/2))_+.
    """
    law, e, add = asked.steps[0].law, asked.e, asked.direction == "add"
    closed = isinstance(law, Laplace) or (isinstance(law, Sampled) and not law.replace)
    refuse_unless(
        closed and len(asked.steps) == asked.steps[0].count == 1,
        "the closed form is that of one step of Laplace noise or on batches, but not of a replaced record",
    )

    def prove() -> Enclosure:
        if isinstance(law, Laplace):
            return Enclosure.of((-((e - law.lam) / 2).expm1()).max(arb(0)))
        assert isinstance(law, Sampled)
        odds = 1 + (-e if add else e).expm1() / law.q
        if add and odds <= 0:
            return Enclosure.of(arb(0))
        require(odds > 0, "the loss does or does not reach epsilon")
        place = arb(1) / 2 + law.s * law.s * odds.log()
        side = place / law.s if add else -place / law.s
        null, moved = normal_cdf(side), normal_cdf(side + (-1 if add else 1) / law.s)
        mixed = (1 - law.q) * null + law.q * moved
        return Enclosure.of(null - e.exp() * mixed if add else mixed - e.exp() * null)

    return prove


def _bounded(_reader: Reader, asked: Asked) -> Proof:
    """The losses add up to at most e: delta is 0. Nothing else follows, so that there is no other answer."""

    def prove() -> Enclosure:
        largest = sum((step.count * largest_loss(step.law, asked.direction) for step in asked.steps), arb(0))
        require(largest <= asked.e, "the largest loss is at most epsilon")
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

    def prove() -> Enclosure:
        gap = (following - base) / (2 if others else 1)
        powers = arb_poly([first, *(probability for probability, _ in others), second]) ** count
        gains = (powers[k] * (-(asked.e - count * base - k * gap).expm1()).max(arb(0)) for k in range(len(powers)))
        return Enclosure.of(sum(gains, arb(0)))

    return prove


def _chernoff(reader: Reader, asked: Asked) -> Proof:
    """delta(e) <= V(x) at one tilt."""
    tilt, places = reader.real("tilt", *_TILTS), _read_places(reader, asked)
    return lambda: Enclosure(above=Above(asked.chernoff(tilt, places, arb(0))))


def _contour(reader: Reader, asked: Asked) -> Proof:
    """Theorem 1, with a window of variance eta^2 by Theorem 4; g = mu^2 of full batches + eta^2.

    S - beyond - 1/(e^(cP) - 1) - V(x)/(e^((x-c)P) - 1) - window <= delta <= S + beyond
    window = eta^2 e^(eta^2/8) times the density's sum and what is beyond it; aliases are nonnegative
    """
    line, window = _read_sum(reader, asked), reader.real("window", 0.0, 1e6)

    def transforms() -> tuple[list[acb], arb]:
        envelope, values = arb(1), [acb(1)] * line.points
        for each, count in asked.transforms(line.tilt, line.places):
            values = [m * own**count for m, own in zip(values, each.on_line(line.h, line.points), strict=True)]
            envelope *= each.envelope(line.points * line.h) ** count
        return values, envelope

    def prove() -> Enclosure:
        eta_squared = arb(window) ** 2
        gaussian, (values, envelope) = asked.variance() + eta_squared, asked.once("transforms", transforms)
        total, density = line.of(values, gaussian, asked.e)
        beyond = line.beyond(envelope, gaussian, asked.e)
        if line.far is None:
            return Enclosure(Above(total + beyond))
        below = total - beyond - line.aliases(asked, eta_squared)
        if window > 0.0:
            last = (line.points - 1) * line.h
            density += line.modulus(envelope, gaussian, last, asked.e) / (arb.pi() * gaussian * last)
            below -= eta_squared * (eta_squared / 8).exp() * density
        return Enclosure(Above(total + beyond), Below(below))

    return prove


def _cut(reader: Reader, asked: Asked) -> Proof:
    """Theorem 5 with one cut at equal steps, M_above being the transform of what is above it.

    The profile D of P^T - P_below^T has the transform M^T - (M - M_above)^T, at most T M(c)^(T-1) |M_above| in modulus,
    and D <= delta <= D + bulk. For a fixed size M_above is that of remove on the whole line. What it has below x = 1/2
    weighs at most extra = psi's complement there, is added to P, and (1 + extra)^T - 1 is taken off below.
    """
    law, count, line = asked.steps[0].law, asked.steps[0].count, _read_sum(reader, asked)
    place, width = arb(reader.real("place", -1e9, 1e9)), arb(reader.real("width", 1e-12, 1e9))
    if len(asked.steps) > 1 or not isinstance(law, Sampled) or (asked.direction == "add" and not is_symmetric(law)):
        raise CannotCheck("one cut is proved for equal steps on batches, not for Poisson batches in the direction add")
    above = reader.inside("above")
    nodes, bulk = read_nodes(above, False), _read_bulk(reader.inside("bulk"), asked, place, width)
    above.close()
    assert isinstance(nodes, Line)
    _check_work(nodes.nodes, line.points)

    def transforms() -> tuple[list[acb], arb, arb]:
        ((whole, _),) = asked.transforms(line.tilt, line.places)
        high = above_cut(law, arb(line.tilt), nodes, place, width)
        extra = normal_cdf((arb(1) / 2 - place) / width) if isinstance(law, FixedSize) else arb(0)
        blur = acb(arb(0, extra), arb(0, extra))
        pairs = zip(whole.on_line(line.h, line.points), high.on_line(line.h, line.points), strict=True)
        values = [(m + blur) ** count - (m - m_above + blur) ** count for m, m_above in pairs]
        envelope = count * (whole.moment() + extra) ** (count - 1) * high.envelope(line.points * line.h)
        return values, envelope, (1 + extra) ** count

    def prove() -> Enclosure:
        values, envelope, mass = asked.once("transforms", transforms)
        total, _ = line.of(values, arb(0), asked.e)
        beyond = line.beyond(envelope, arb(0), asked.e)
        below = Below(total - beyond - mass * line.aliases(asked, arb(0)) - (mass - 1)) if line.far else None
        return Enclosure(Above(total + beyond + bulk()), below)

    return prove


def _read_bulk(reader: Reader, asked: Asked, place: arb, width: arb) -> Callable[[], arb]:
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

    def sampled(at: arb, move: int) -> arb:
        return (1 - law.q) * normal_cdf(at / law.s) + law.q * normal_cdf((at - move) / law.s)

    def height(at: arb) -> arb:
        r = law.f(acb(at)).real / (law.f(acb(-at)).real if replaced else 1)
        return (r**x - 1) * (r - r**-x) if fixed else r ** (x + 1) - 1 - (x + 1) * (r - 1)

    def share(at: arb) -> arb:
        return normal_cdf((place - at) / width)

    def moment() -> arb:
        require(start < end, "the panels have a length")
        edges = [start + (end - start) * k / panels for k in range(panels + 1)]
        under = [sampled(at, -1) if replaced else normal_cdf(at / law.s) for at in edges]
        heights = [height(at) for at in edges]
        total = 1 + (0 if fixed else under[0] * x.max(heights[0]))
        for k in range(panels):
            total += (under[k + 1] - under[k]) * heights[k].max(heights[k + 1]) * share(edges[k])
        return total**count

    def prove() -> arb:
        found: arb = asked.once("bulk", moment)
        return found * kernel(x) * (-x * asked.e).exp() + count * share(end) * (1 - sampled(end, 1))

    return prove


def _read_sum(reader: Reader, asked: Asked) -> Sum:
    tilt, period = reader.real("tilt", *_TILTS), reader.real("period", 1e-12, 1e12)
    points = reader.whole("points", 2, MOST_POINTS)
    places, far = _read_places(reader, asked), None
    _check_work(sum(place[0].nodes if place else 3 for place in places), points)
    if reader.has("far"):
        inner = reader.inside("far")
        far = inner.real("tilt", *_TILTS), _read_places(inner, asked)
        inner.close()
    return Sum(tilt, period, points, places, far)


def _check_work(nodes: int, points: int) -> None:
    most = _MOST_NODE_POINTS
    refuse_unless(nodes * points <= most, f"{nodes} nodes at {points} points are more than {most}")


def _read_places(reader: Reader, asked: Asked) -> list[Place]:
    """Read the nodes of each step, in the order of the statement's events."""
    readers = reader.objects("steps", len(asked.steps))
    many = len(asked.steps)
    refuse_unless(len(readers) == many, f"{reader.where}.steps must have an entry for each of {many} events")
    places = [read_place(each, step.law) for each, step in zip(readers, asked.steps, strict=True)]
    nodes = sum(each.nodes for place in places for each in place)
    refuse_unless(nodes <= _MOST_NODES, f"{reader.where} has {nodes} nodes; at most {_MOST_NODES} are evaluated")
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
