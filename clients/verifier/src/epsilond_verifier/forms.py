"""Defines the forms that a proof for one direction may have. Each form reads its witness and bounds delta(e) at any e.

The witness is the part of a certificate that helps the proof. It is not trusted: it only says where to evaluate
bounds, and each bound is valid for every choice. The theorems are proved in docs/concepts/fourier.md (1, 4 and 5) and
docs/concepts/certificates.md (A to E).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate

from flint import acb, acb_mat, arb, arb_poly, ctx, fmpz_poly

from epsilond_verifier import laws
from epsilond_verifier.bounds import Above, Below, CannotCheck, Enclosure, kernel, normal_cdf, refuse_unless, require
from epsilond_verifier.laws import Atoms, Draws, FixedSize, Laplace, Law, Mixture, Normal, OnGrid, Sampled, Step
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import AboveCut, MixtureTransform, Place, Transform, blurred, powers, read_place

_MOST_POINTS, _MOST_WORK, _MOST_TERMS, _MOST_PANELS, _MOST_LAPLACE = 400_000, 10**8, 200_000, 10_000, 1000
#: The first four are amounts of work, in evaluations of nodes: to find a node, to move a line's sum to another e, to
#: find the x with a given loss, and to compute a polynomial's coefficient. `_place` doubles at most _DOUBLINGS times.
_OF_NODE, _OF_SUM, _OF_PLACE, _OF_SERIES, _DOUBLINGS = 100, 4, 10_000, 40, 60
_TILTS, _GOLDEN = (1e-9, 1e9), 0.618
#: Maps e to an enclosure of delta at e. The parts that do not depend on e are computed once.
Proof = Callable[[arb], Enclosure]


@dataclass(slots=True)
class Work:
    """The work that a certificate may still cause. The unit is one node at one point."""

    left: int = _MOST_WORK

    def take(self, nodes: int, points: int) -> None:
        """Subtract ``nodes`` times ``points`` from the work that is left. Raise `CannotCheck` if that is not enough."""
        self.left -= nodes * points
        refuse_unless(self.left >= 0, f"the work exceeds {_MOST_WORK} in all: {nodes} nodes at {points} points")


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that a proof answers: the delta of these steps in one direction, at ``times`` values of epsilon."""

    steps: Sequence[Step]
    direction: str
    work: Work = field(default_factory=Work)
    times: int = 1


def read_form(reader: Reader, asked: Asked) -> Proof:
    """Read the witness of one direction, and check all its limits.

    ``kept`` limits, for each step, the records in a batch or the branches that are considered; 0 keeps all. The parts
    of P and of Q that are left out have a mass of at most w over all steps, so delta may be larger by up to w, and
    smaller by up to e^e w. ``draws`` has the shares of each step of draws with replacement. Other shares might give a
    smaller delta, so a proof with such steps has no lower bound.
    """
    number = len(asked.steps)
    kept = reader.wholes("kept", number, 0, laws.MOST_IN_GROUP) if reader.has("kept") else [0] * number
    drawn = sum(isinstance(step.law, Draws) for step in asked.steps)
    chosen = iter(reader.objects("draws", drawn, drawn) if drawn else [])
    left_out, steps = arb(0), list[Step]()
    for step, most in zip(asked.steps, kept, strict=True):
        law, beyond = step.law, arb(0)
        if isinstance(law, Draws):
            law, beyond = law.seen(list(map(arb, next(chosen).reals("shares", laws.MOST_BRANCHES, 5e-324, 1.0))))
        law, mass = laws.without_rare(law, most)
        steps.append(replace(step, law=law))
        left_out += step.count * (mass + beyond)
    proof = _FORMS[reader.word("form", *_FORMS)](reader, replace(asked, steps=steps))

    def prove(e: arb) -> Enclosure:
        found = proof(e).wider(left_out, e.exp() * left_out)
        return Enclosure(found.above) if drawn else found

    return prove


def _closed(_reader: Reader, asked: Asked) -> Proof:
    """Return the exact delta, which is P - e^e Q over the losses above e, of one step or of full batches only. The
    normal losses of full batches add up to one normal loss.

    For sampled batches, the loss of remove is above e exactly beyond a place. For add, P and Q are exchanged, and the
    loss is above e exactly before the place for -e. A batch of a fixed size has the delta of remove, since e >= 0. For
    Laplace noise, delta = (1 - e^((e - lam)/2))_+. The delta of a mixture is the weighted sum of its branches' deltas.
    """
    law, alone = asked.steps[0].law, len(asked.steps) == asked.steps[0].count == 1
    normal = [step.count * step.law.mu_squared for step in asked.steps if isinstance(step.law, Normal)]
    if len(normal) == len(asked.steps):
        law, alone = Normal(sum(normal, arb(0))), True
    refuse_unless(alone and not isinstance(law, Atoms | OnGrid), "a closed form needs one step of continuous noise")
    branches = law.branches if isinstance(law, Mixture) else ((arb(1), law),)
    asked.work.take(_OF_PLACE * len(branches), asked.times)

    def of_one(law: Law, e: arb) -> arb:
        if isinstance(law, Normal):
            return laws.delta_of_normal(law.mu_squared.sqrt(), e)
        if isinstance(law, Laplace):
            return (-((e - law.lam) / 2).expm1()).max(arb(0))
        assert isinstance(law, Sampled)
        if asked.direction == "add" and not laws.is_symmetric(law):
            if e >= laws.largest_loss(law, "add"):
                return arb(0)
            x = _place(law, (-e).exp())
            return normal_cdf(x / law.s) - e.exp() * (sum(law.weights) - law.mass_beyond(x, 1))
        x = _place(law, e.exp())
        other = law.mass_beyond(x, -1) if law.replace else normal_cdf(-x / law.s)
        return law.mass_beyond(x, 1) - e.exp() * other

    return lambda e: Enclosure.of(sum((p * of_one(branch, e) for p, branch in branches), arb(0)))


def _place(law: Sampled, level: arb) -> arb:
    """Enclose the x at which dP/dQ, which increases from p_0 or 0, is ``level``."""
    low, high = -law.s, law.s
    for _ in range(_DOUBLINGS):
        low, high = (low if law.ratio(low) < level else 2 * low), (high if law.ratio(high) > level else 2 * high)
    require(law.ratio(low) < level and law.ratio(high) > level, "the privacy loss can reach epsilon")
    for _ in range(2 * ctx.prec):
        # The split is not at the middle, since the solution may be exactly 0 or 1/2, where no ball can decide.
        middle = arb((low + (high - low) * _GOLDEN).mid())
        at = law.ratio(middle)
        if not (at < level or at > level):
            break
        low, high = (middle, high) if at < level else (low, middle)
    return low.union(high)


def _bounded(_reader: Reader, asked: Asked) -> Proof:
    """Prove that delta is 0, because the losses add up to at most e. This form can prove nothing else."""

    def prove(e: arb) -> Enclosure:
        require(laws.sum_of_largest(asked.steps, asked.direction) <= e, "the largest losses add up to at most epsilon")
        return Enclosure(Above(arb(0)))

    return prove


def _outcomes(_reader: Reader, asked: Asked) -> Proof:
    """Sum over the outcomes of equal steps whose losses are base + k gap. T steps have the losses T base + k gap, and
    the coefficients of a polynomial's T-th power are their probabilities.

    The probabilities are rounded down. Delta is the sum of mass (1 - e^(e - loss))_+, so delta is larger by at most the
    mass that rounding removes.
    """
    law, count = asked.steps[0].law, asked.steps[0].count
    if len(asked.steps) > 1 or not isinstance(law, Atoms | OnGrid):
        raise CannotCheck("a sum over outcomes needs equal steps whose losses are equally spaced")
    last = count * (law.number - 1)
    refuse_unless(last <= _MOST_TERMS, f"a sum over outcomes may have at most {_MOST_TERMS} terms, not {last}")
    asked.work.take(ctx.prec // 2 * (1 + asked.times), last)

    @cache
    def found() -> tuple[arb, arb, fmpz_poly]:
        (_, base), (_, following), *_ = outcomes = law.outcomes(asked.direction)
        return count * base, following - base, _power([mass for mass, _ in outcomes], count)

    def prove(e: arb) -> Enclosure:
        base, gap, masses = found()
        gains = (mass * (-(e - base - k * gap).expm1()).max(arb(0)) for k, mass in enumerate(masses) if mass != 0)
        unit = arb(2) ** ctx.prec
        return Enclosure.of(sum(gains, arb(0)) / unit).wider(1 - masses(1) / unit, arb(0))

    return prove


def _power(masses: list[arb], count: int) -> fmpz_poly:
    """Return the probabilities of the sum of ``count`` outcomes. Each is rounded down to units of 2^-precision."""
    # The lower end of a ball is a single number, so its floor is exact.
    power = one = fmpz_poly([(mass * arb(2) ** ctx.prec).lower().max(arb(0)).floor().fmpz() for mass in masses])
    for bit in bin(count)[3:]:
        for factor in (power, one)[: 1 + int(bit)]:
            power = fmpz_poly([c >> ctx.prec for c in power * factor])
    return power


def _laplace(_reader: Reader, asked: Asked) -> Proof:
    """Compute delta for equal steps of Laplace noise (Theorem D). Between its atoms, the loss has a polynomial density.

    delta(e) = 2^(1-T) e^((e - T lam)/2) times the sum over k > T/2 of C(T, k) (h_k(w) + 2^(T-1) e^w if k = T), where
    w = ((2k - T) lam - e)/2 is positive. h_k(w) is the residue at 0 of (x+1)^(k-1) (x-1)^(T-k-1) x^-T e^(xw).
    """
    law, count = asked.steps[0].law, asked.steps[0].count
    if len(asked.steps) > 1 or not isinstance(law, Laplace) or count > _MOST_LAPLACE:
        raise CannotCheck(f"a sum of polynomials needs at most {_MOST_LAPLACE} equal steps of Laplace noise")
    asked.work.take(count * count, _OF_SERIES + asked.times)
    rising, falling = fmpz_poly([1, 1]), fmpz_poly([-1, 1])

    @cache
    def residue(k: int) -> arb_poly:
        """Return h_k. The coefficients of 1/(x-1) are all -1, so a product with it has minus the partial sums."""
        series = [*rising ** (k - 1) * falling ** (count - k - 1), 0] if k < count else accumulate(-(rising ** (k - 1)))
        factorials = accumulate(range(1, count), lambda product, j: product * j, initial=arb(1))
        return arb_poly([c / factorial for c, factorial in zip([*series][::-1], factorials, strict=True)])

    def prove(e: arb) -> Enclosure:
        total = arb(0)
        for k in range(count // 2 + 1, count + 1):
            w = (((2 * k - count) * law.lam - e) / 2).max(arb(0))
            if w == 0:
                continue
            more = arb(2) ** (count - 1) * w.exp() if k == count else 0
            total += arb.bin_uiui(count, k) * (residue(k)(w) + more)
        return Enclosure.of(total * ((e - count * law.lam) / 2).exp() / arb(2) ** (count - 1))

    return prove


@dataclass(frozen=True, slots=True)
class Tilted:
    """The transforms of all steps at a tilt c."""

    c: arb
    places: list[tuple[Place, int]]

    @classmethod
    def read(cls, reader: Reader, asked: Asked) -> Tilted:
        """Read the tilt, and the nodes of each step in the order of the statement's events."""
        readers = zip(reader.objects("steps", len(asked.steps), len(asked.steps)), asked.steps, strict=True)
        places = [(read_place(each, step.law, asked.direction), step.count) for each, step in readers]
        asked.work.take(_OF_NODE, sum(place.nodes for place, _ in places))
        return cls(arb(reader.real("tilt", *_TILTS)), places)

    def transforms(self) -> list[tuple[Transform, int]]:
        """Return the transform M of each step, with the number of equal steps."""
        return [(place.at(self.c), count) for place, count in self.places]

    def chernoff(self, window: arb) -> Callable[[arb], arb]:
        """Return the upper bound V(c) = M(c) B(c) e^(-c e) of delta(e) as a function of e.

        The losses include a window of variance ``window``. An upper bound takes the place of M(c)."""

        @cache
        def constant() -> arb:
            found = kernel(self.c) * (window * self.c * (self.c + 1) / 2).exp()
            for each, count in self.transforms():
                found *= each.moment() ** count
            return found

        return lambda e: constant() * (-self.c * e).exp()


def _chernoff(reader: Reader, asked: Asked) -> Proof:
    """Prove delta(e) <= V(x) at one tilt x."""
    bound = Tilted.read(reader, asked).chernoff(arb(0))
    return lambda e: Enclosure(Above(bound(e)))


#: Takes the steps at a tilt, and the spacing and number of the points on a line. Returns M at each point, an envelope
#: of M beyond the last point, and the mass of the law.
Compose = Callable[[Tilted, arb, int], tuple[list[acb], arb, arb]]


def _line(reader: Reader, asked: Asked, eta: arb, compose: Compose, nodes: int = 0) -> Proof:
    """Evaluate Theorem 1's sum at z_k = c + ikh, k < N, h = 2 pi / P, with a window of variance eta^2 by Theorem 4.

    S - beyond - aliases - window <= delta <= S + beyond, since aliases are nonnegative. ``far`` has the tilt x > c that
    bounds the aliases on the right. Without it there is no lower bound.

    S = (h/pi) times the sum of Re term_k, half of the first, term_k = M(z_k) e^(eta^2 z (z+1) / 2 - z e) / (z (z+1)).
    beyond bounds the terms from k = N on: |term_k| by the envelope, 1/k^2 by the integral of 1/x^2 over k -+ 1/2.
    aliases = mass (1/(e^(cP) - 1) + V(x)/(e^((x-c)P) - 1)) + mass - 1, with delta <= 1 on the left.
    window = eta^2 e^(eta^2/8) times the same sum, and its terms beyond, without the factor 1/(z (z+1)).
    """
    points, period = reader.whole("points", 2, _MOST_POINTS), arb(reader.real("period", 1e-12, 1e12))
    tilted = Tilted.read(reader, asked)
    asked.work.take(nodes + sum(place.of_value for place, _ in tilted.places) + _OF_SUM * asked.times, points)
    c, h, square = tilted.c, 2 * arb.pi() / period, eta * eta
    far = Tilted.read(reader.inside("far"), asked) if reader.has("far") else None
    require(far is None or far.c > c, "the tilt of 'far' is larger than that of the line")
    right = far.chernoff(square) if far else None

    @cache
    def terms() -> tuple[acb_mat, acb_mat, arb, arb]:
        values, envelope, mass = compose(tilted, h, points)
        zs = [acb(c, k * h) for k in range(points)]
        density = [value * (square * z * (z + 1) / 2).exp() for value, z in zip(values, zs, strict=True)]
        density[0] /= 2
        total = [each / (z * (z + 1)) for each, z in zip(density, zs, strict=True)]
        return acb_mat(1, points, total), acb_mat(1, points, density), envelope, mass

    def prove(e: arb) -> Enclosure:
        total, density, envelope, mass = terms()
        turned = acb_mat(points, 1, powers(acb(0, -h * e).exp(), points))

        def summed(row: acb_mat) -> arb:
            return h / arb.pi() * (-c * e).exp() * (row * turned)[0, 0].real

        def modulus(t: arb) -> arb:
            return envelope * (square * (c * (c + 1) - t * t) / 2 - c * e).exp()

        beyond = modulus(points * h) / (arb.pi() * h * (points - arb(1) / 2))
        above = Above(summed(total) + beyond)
        if far is None or right is None:
            return Enclosure(above)
        below = summed(total) - beyond - (mass - 1)
        below -= mass * (1 / (c * period).expm1() + right(e) / ((far.c - c) * period).expm1())
        if eta > 0:
            last = (points - 1) * h
            below -= (square / 8).exp() * (square * summed(density) + modulus(last) / (arb.pi() * last))
        return Enclosure(above, Below(below))

    return prove


def _contour(reader: Reader, asked: Asked) -> Proof:
    """Evaluate the sum of `_line` for the whole law."""

    def compose(tilted: Tilted, h: arb, points: int) -> tuple[list[acb], arb, arb]:
        envelope, values = arb(1), [acb(1)] * points
        for each, count in tilted.transforms():
            values = [m * own**count for m, own in zip(values, each.on_line(h, points), strict=True)]
            envelope *= each.envelope(points * h) ** count
        return values, envelope, arb(1)

    return _line(reader, asked, arb(reader.real("window", 0.0, 1e6)), compose)


def _cut(reader: Reader, asked: Asked) -> Proof:
    """Apply Theorem 5 to equal steps with one cut. M_above is the transform of the part above the cut.

    The profile D of P^T - P_below^T has the transform M^T - (M - M_above)^T, whose modulus is at most T M(c)^(T-1)
    |M_above|, and D <= delta <= D + bulk. For a fixed size, M_above is the transform of remove on the whole line. Its
    part below x = 1/2 has a mass of at most extra = 1 - psi(1/2). That part is added to P, and the lower bound
    loses (1 + extra)^T - 1. Each branch of a mixture has its own cut.

    The bulk has a Chernoff bound at another tilt c', from two sums over panels, each added up over the branches:
    (1 + sums)^T B(c') e^(-c' e) + T psi(end) P(x > end).
    """
    law, count = asked.steps[0].law, asked.steps[0].count
    above, below = reader.inside("above"), reader.inside("bulk")
    branches = [(arb(1), law, reader, above, below)]
    if isinstance(law, Mixture):
        highs, lows = (each.objects("branches", len(law.branches), len(law.branches)) for each in (above, below))
        branches = [(*own, high, high, low) for own, high, low in zip(law.branches, highs, lows, strict=True)]
    x, panels = arb(below.real("tilt", *_TILTS)), below.whole("panels", 1, _MOST_PANELS)
    one_sided = asked.direction == "add" and not laws.is_symmetric(law)
    refuse_unless(not one_sided, "the theorem about a cut excludes Poisson batches in the direction add")
    cuts, sums = list[tuple[arb, AboveCut]](), list[tuple[arb, Callable[[], tuple[arb, arb]]]]()
    for p, own, where, high, low in branches:
        if len(asked.steps) > 1 or not isinstance(own, Sampled):
            raise CannotCheck("the theorem about a cut needs equal steps on sampled batches")
        cuts.append((p, AboveCut.read(where, high, own)))
        sums.append((p, _read_panels(low, cuts[-1][1], x, panels)))
    asked.work.take(_OF_NODE * len(cuts), panels)

    def compose(tilted: Tilted, h: arb, points: int) -> tuple[list[acb], arb, arb]:
        ((whole, _),), extra = tilted.transforms(), sum((p * cut.outside() for p, cut in cuts), arb(0))
        high, blur = MixtureTransform([(p, cut.rule(tilted.c)) for p, cut in cuts]), blurred(extra)
        pairs = zip(whole.on_line(h, points), high.on_line(h, points), strict=True)
        values = [(m + blur) ** count - (m - m_high + blur) ** count for m, m_high in pairs]
        envelope = count * (whole.moment() + extra) ** (count - 1) * high.envelope(points * h)
        return values, envelope, (1 + extra / sum((p for p, *_ in branches), arb(0))) ** count

    line = _line(reader, asked, arb(0), compose, sum(cut.nodes for _, cut in cuts))

    @cache
    def bulk() -> tuple[arb, arb]:
        parts = [(p, *evaluate()) for p, evaluate in sums]
        within, rest = (sum((p * each[k] for p, *each in parts), arb(0)) for k in (0, 1))
        return kernel(x) * (1 + within) ** count, count * rest

    return lambda e: line(e).wider(bulk()[0] * (-x * e).exp() + bulk()[1], arb(0))


def _read_panels(reader: Reader, cut: AboveCut, x: arb, panels: int) -> Callable[[], tuple[arb, arb]]:
    """Return a function that bounds E_P psi r^c' - 1 for one branch, and psi(end) P(x > end).

    Let p = c' + 1 and r = dP/dQ. The first bound is the sum of Q(panel) max k psi, plus Q(x < start) max(p - 1,
    k(r(start))). The function k(r) = r^p - 1 - p (r - 1) is convex with its minimum at 1, and E_Q psi (r - 1) <= 0,
    since psi decreases and r increases. For a fixed size, the start is 1/2 and k = (f^c' - 1)(f - f^-c'), which
    increases from 0 there.
    """
    law, fixed = cut.law, isinstance(cut.law, FixedSize)
    start, end = arb(0.5 if fixed else reader.real("start", -1e9, 1e9)), arb(reader.real("end", -1e9, 1e9))

    def height(at: arb) -> arb:
        r = law.ratio(at)
        return (r**x - 1) * (r - r**-x) if fixed else r ** (x + 1) - 1 - (x + 1) * (r - 1)

    def share(at: arb) -> arb:
        return normal_cdf((cut.place - at) / cut.width)

    def evaluate() -> tuple[arb, arb]:
        require(start < end, "the panels start before they end")
        edges = [start + (end - start) * k / panels for k in range(panels + 1)]
        under = [law.mass_beyond(-at, 1) if law.replace else normal_cdf(at / law.s) for at in edges]
        heights = [height(at) for at in edges]
        total = arb(0) if fixed else under[0] * x.max(heights[0])
        for k in range(panels):
            total += (under[k + 1] - under[k]) * heights[k].max(heights[k + 1]) * share(edges[k])
        return total, share(end) * law.mass_beyond(end, 1)

    return evaluate


_FORMS: dict[str, Callable[[Reader, Asked], Proof]] = {
    "gaussian": _closed,
    "one_step": _closed,
    "bounded": _bounded,
    "outcomes": _outcomes,
    "laplace": _laplace,
    "chernoff": _chernoff,
    "contour": _contour,
    "cut": _cut,
}
