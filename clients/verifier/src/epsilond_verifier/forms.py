"""The forms of a proof for one direction. Each reads its witness, and then encloses delta(e) as far as it can.

A witness is trusted in nothing: it says where to look, and every bound is evaluated for what it says. The theorems are
proved in docs/concepts/fourier.md (1, 4 and 5) and docs/concepts/certificates.md (A, B and C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flint import acb, arb, arb_poly

from epsilond_verifier.bounds import Above, Below, CannotCheck, Enclosure, kernel, normal_cdf, require
from epsilond_verifier.laws import Atoms, FixedSize, Laplace, Law, Normal, Poisson, Step
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import Line, Places, Transform, cut_line, read_places, transform

MOST_POINTS, _MOST_NODE_POINTS, _MOST_TERMS, _MOST_PANELS = 400_000, 4 * 10**8, 200_000, 10_000
_TILTS = (1e-9, 1e9)
Proof = Callable[[], Enclosure]


def read_form(reader: Reader, steps: Sequence[Step], direction: str, epsilon: arb) -> Proof:
    """Read the witness of one direction, with all limits; the proof is evaluated when it is called."""
    kind = reader.word("form", *_FORMS)
    proof = _FORMS[kind](reader, steps, direction, epsilon)
    reader.close()
    return proof


def _gaussian(_reader: Reader, steps: Sequence[Step], _direction: str, e: arb) -> Proof:
    """Full batches alone: delta = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)  (Balle & Wang 2018, Theorem 8)."""
    variances = [step.law.mu_squared for step in steps if isinstance(step.law, Normal)]
    if len(variances) != len(steps):
        raise CannotCheck("the closed form is that of full batches of Gaussian noise alone")
    mu = sum(variances, arb(0)).sqrt()
    return lambda: Enclosure.of(normal_cdf(mu / 2 - e / mu) - e.exp() * normal_cdf(-mu / 2 - e / mu))


def _one_step(_reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """One step. Sampled: the loss of remove is above e exactly where x > 1/2 + s^2 log(1 + (e^e - 1)/q).

    delta is P - e^e Q beyond that place. For add, P and Q are exchanged and it is before the place with -e for e. A
    batch of a fixed size has the delta of remove, since e >= 0. Laplace noise: delta = (1 - e^((e - lam)/2))_+.
    """
    law = steps[0].law
    if len(steps) > 1 or steps[0].count > 1 or isinstance(law, Normal | Atoms) or getattr(law, "replace", False):
        raise CannotCheck("the closed form is that of one step, of Laplace noise or on batches but of a replaced record")

    def prove() -> Enclosure:
        if isinstance(law, Laplace):
            return Enclosure.of((-((e - law.lam) / 2).expm1()).max(arb(0)))
        assert isinstance(law, Poisson | FixedSize)
        s, q, add = law.s, law.q, direction == "add"
        odds = 1 + (-e if add else e).expm1() / q
        if add and odds <= 0:
            return Enclosure.of(arb(0))
        require(odds > 0, "the loss does or does not reach epsilon")
        place = arb(1) / 2 + s * s * odds.log()
        null, moved = normal_cdf(-place / s), normal_cdf((1 - place) / s)
        if add:
            null, moved = 1 - null, 1 - moved
            return Enclosure.of(null - e.exp() * ((1 - q) * null + q * moved))
        return Enclosure.of((1 - q) * null + q * moved - e.exp() * null)

    return prove


def _bounded(_reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """The losses add up to at most e: delta is 0. Nothing else follows, so that there is no other answer."""

    def prove() -> Enclosure:
        largest = sum((step.count * _largest_loss(step.law, direction) for step in steps), arb(0))
        require(largest <= e, "the largest loss is at most epsilon")
        return Enclosure(above=Above(arb(0)))

    return prove


def _largest_loss(law: Law, direction: str) -> arb:
    if isinstance(law, Laplace):
        return law.lam
    if isinstance(law, Atoms):
        largest = arb.neg_inf()
        for _, loss in law.add if direction == "add" else law.remove:
            largest = largest.max(loss)
        return largest
    if isinstance(law, Poisson) and not law.replace and direction == "add":
        return -(1 - law.q).log()
    raise CannotCheck("the loss of a step has no bound in this direction")


def _outcomes(_reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """Equal steps whose losses are base + k gap: those of T steps are T base + k gap, with the weights of a power."""
    law, count = steps[0].law, steps[0].count
    if len(steps) > 1 or not isinstance(law, Atoms) or count > _MOST_TERMS:
        raise CannotCheck(f"the sum over outcomes is that of at most {_MOST_TERMS} equal steps with few outcomes")
    (first, base), (second, following), *others = law.add if direction == "add" else law.remove

    def prove() -> Enclosure:
        # A third outcome has the loss 0, halfway between the other two, which are each other's opposites.
        gap = (following - base) / (2 if others else 1)
        powers = arb_poly([first, *(probability for probability, _ in others), second]) ** count
        gains = (powers[k] * (-(e - count * base - k * gap).expm1()).max(arb(0)) for k in range(powers.length()))
        return Enclosure.of(sum(gains, arb(0)))

    return prove


def _read_places(reader: Reader, steps: Sequence[Step]) -> list[Places]:
    """Read the nodes of each step, in the order of the statement's events."""
    places = reader.objects("steps", len(steps))
    if len(places) != len(steps):
        raise CannotCheck(f"{reader.where}.steps must have an entry for each of {len(steps)} events")
    return [read_places(place, step.law) for place, step in zip(places, steps, strict=True)]


def _variance(steps: Sequence[Step]) -> arb:
    return sum((step.law.mu_squared for step in steps if isinstance(step.law, Normal)), arb(0))


def _transforms(
    steps: Sequence[Step], direction: str, tilt: float, places: Sequence[Places]
) -> list[tuple[Transform, int]]:
    return [
        (transform(step.law, direction, tilt, place), step.count)
        for step, place in zip(steps, places, strict=True)
        if not isinstance(step.law, Normal)
    ]


def _moment(transforms: Sequence[tuple[Transform, int]], gaussian: arb, x: arb) -> arb:
    """Return an upper bound of the M(x) of all steps."""
    product = (gaussian * x * (x + 1) / 2).exp()
    for each, count in transforms:
        product *= each.moment() ** count
    return product


def _chernoff(reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """delta(e) <= M(x) B(x) e^(-x e) at one tilt x > 0."""
    tilt, places = reader.real("tilt", *_TILTS), _read_places(reader, steps)

    def prove() -> Enclosure:
        return Enclosure(above=Above(_chernoff_bound(steps, direction, e, tilt, places, arb(0))))

    return prove


def _chernoff_bound(
    steps: Sequence[Step], direction: str, e: arb, tilt: float, places: Sequence[Places], window: arb
) -> arb:
    x = arb(tilt)
    moment = _moment(_transforms(steps, direction, tilt, places), _variance(steps) + window, x)
    return moment * kernel(x) * (-x * e).exp()


def _contour(reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """Theorem 1, with a window of variance eta^2 by Theorem 4: points k < N at z_k = c + ikh, h = 2 pi / P.

        S = (h/pi) (term_0 / 2 + sum of Re term_k),    term_k = prod M(z_k)^T e^(g z(z+1)/2 - z e) / (z (z+1))
        delta <= S + beyond                            g = mu^2 of full batches + eta^2
        delta >= S - beyond - 1/(e^(cP) - 1) - V(x)/(e^((x-c)P) - 1) - window

    Aliases are nonnegative. On the left delta <= 1; on the right V(x) is Chernoff's bound at a tilt x > c.
    """
    tilt, period, points = _read_line(reader)
    window, places = reader.real("window", 0.0, 1e6), _read_places(reader, steps)
    far = _read_far(reader, steps)
    nodes = sum(place[0].nodes if place else 3 for place in places)
    if nodes * points > _MOST_NODE_POINTS:
        raise CannotCheck(f"{nodes} nodes at {points} points are more than {_MOST_NODE_POINTS}")

    def prove() -> Enclosure:
        c, h, eta_squared = arb(tilt), 2 * arb.pi() / arb(period), arb(window) ** 2
        gaussian = _variance(steps) + eta_squared
        transforms = _transforms(steps, direction, tilt, places)
        values = [acb(1)] * points
        envelope = arb(1)
        for each, count in transforms:
            values = [value * m**count for value, m in zip(values, each.on_line(h, points), strict=True)]
            envelope *= each.envelope(points * h) ** count
        total, density = _sums(values, c, h, gaussian, e)
        beyond = _beyond(envelope, gaussian, c, h, points, e)
        below = None
        if far is not None:
            below = Below(total - beyond - _aliases(steps, direction, e, tilt, period, far, eta_squared))
            if window > 0.0:
                last = (points - 1) * h
                rest = envelope * (gaussian * (c * (c + 1) - last * last) / 2 - c * e).exp()
                density += rest / (arb.pi() * gaussian * last)
                below = Below(below.ball - eta_squared * (eta_squared / 8).exp() * density)
        return Enclosure(Above(total + beyond), below)

    return prove


def _cut(reader: Reader, steps: Sequence[Step], direction: str, e: arb) -> Proof:
    """Theorem 5 with one cut: M_below and M_above of one step's shares, on a line of their own.

    The profile D of P^T - P_below^T has the transform (M_below + M_above)^T - M_below^T, at most T M(c)^(T-1)
    |M_above| in modulus, and D <= delta <= D + bulk.
    """
    law, count = steps[0].law, steps[0].count
    tilt, period, points = _read_line(reader)
    places, far = _read_places(reader, steps), _read_far(reader, steps)
    line, envelope = places[0] or (None, None)
    if len(steps) > 1 or not isinstance(law, Poisson) or (direction == "add" and not law.replace):
        raise CannotCheck("one cut is proved for equal steps on Poisson batches, not in the direction add")
    if not isinstance(line, Line) or envelope:
        raise CannotCheck("a cut step has one line, which is its envelope's, too")
    if 2 * line.nodes * points > _MOST_NODE_POINTS:
        raise CannotCheck(f"{line.nodes} nodes at {points} points are more than {_MOST_NODE_POINTS}")
    place, width = reader.real("place", -1e9, 1e9), reader.real("width", 1e-12, 1e9)
    bulk = _read_bulk(reader.object("bulk"), law, count, e, arb(place), arb(width))

    def prove() -> Enclosure:
        c, h = arb(tilt), 2 * arb.pi() / arb(period)
        low, high = cut_line(law, c, line, arb(place), arb(width))
        pairs = zip(low.on_line(h, points), high.on_line(h, points), strict=True)
        values = [(m + above) ** count - m**count for m, above in pairs]
        total, _ = _sums(values, c, h, arb(0), e)
        envelope = count * (low.moment() + high.moment()) ** (count - 1) * high.envelope(points * h)
        beyond = _beyond(envelope, arb(0), c, h, points, e)
        aliases = None if far is None else _aliases(steps, direction, e, tilt, period, far, arb(0))
        below = None if aliases is None else Below(total - beyond - aliases)
        return Enclosure(Above(total + beyond + bulk()), below)

    return prove


def _read_bulk(reader: Reader, law: Poisson, count: int, e: arb, place: arb, width: arb) -> Callable[[], arb]:
    """Read where to bound what lies below the cut, by Chernoff at another tilt c' with p = c' + 1, r = dP/dQ:

        (1 + sum of Q(panel) max k psi + Q(x < start) max(p - 1, k(r(start))))^T B(c') e^(-c' e) + T psi(end) P(x > end)

    k(r) = r^p - 1 - p (r - 1) is convex with its minimum at 1, and E_Q psi (r - 1) <= 0 as psi falls and r rises.
    """
    x = arb(reader.real("tilt", *_TILTS))
    start, end = arb(reader.real("start", -1e9, 1e9)), arb(reader.real("end", -1e9, 1e9))
    panels = reader.whole("panels", 1, _MOST_PANELS)
    reader.close()
    if not start < end:
        raise CannotCheck(f"{reader.where}: start must be below end")
    s, q, p = law.s, law.q, x + 1

    def sampled(at: arb, move: int) -> arb:
        return (1 - q) * normal_cdf(at / s) + q * normal_cdf((at - move) / s)

    def ratio(at: arb) -> arb:
        f = 1 - q + q * ((2 * at - 1) / (2 * s * s)).exp()
        return f / (1 - q + q * ((-2 * at - 1) / (2 * s * s)).exp()) if law.replace else f

    def convex(r: arb) -> arb:
        return r**p - 1 - p * (r - 1)

    def share(at: arb) -> arb:
        return normal_cdf((place - at) / width)

    def prove() -> arb:
        edges = [start + (end - start) * k / panels for k in range(panels + 1)]
        under = [sampled(at, -1) if law.replace else normal_cdf(at / s) for at in edges]
        heights = [convex(ratio(at)) for at in edges]
        total = 1 + under[0] * (p - 1).max(heights[0])
        for k in range(panels):
            total += (under[k + 1] - under[k]) * heights[k].max(heights[k + 1]) * share(edges[k])
        return total**count * kernel(x) * (-x * e).exp() + count * share(end) * (1 - sampled(end, 1))

    return prove


def _read_line(reader: Reader) -> tuple[float, float, int]:
    return reader.real("tilt", *_TILTS), reader.real("period", 1e-12, 1e12), reader.whole("points", 2, MOST_POINTS)


def _read_far(reader: Reader, steps: Sequence[Step]) -> tuple[float, list[Places]] | None:
    """Read where to bound the aliases on the right; without it there is no bound of delta from below."""
    if not reader.has("far"):
        return None
    far = reader.object("far")
    found = far.real("tilt", *_TILTS), _read_places(far, steps)
    far.close()
    return found


def _sums(values: Sequence[acb], c: arb, h: arb, gaussian: arb, e: arb) -> tuple[arb, arb]:
    """Return S, and the same without the factor 1/(z (z+1))."""
    total = density = arb(0)
    for k, value in enumerate(values):
        z = acb(c, k * h)
        square = z * (z + 1)
        term = value * (gaussian * square / 2 - z * e).exp() / (2 if k == 0 else 1)
        density += term.real
        total += (term / square).real
    return h / arb.pi() * total, h / arb.pi() * density


def _beyond(envelope: arb, gaussian: arb, c: arb, h: arb, points: int, e: arb) -> arb:
    """Bound the points from t = N h on: 1/k^2 is at most the integral of 1/x^2 over k - 1/2 .. k + 1/2."""
    t = points * h
    modulus = envelope * (gaussian * (c * (c + 1) - t * t) / 2 - c * e).exp()
    return modulus / (arb.pi() * h * (points - arb(1) / 2))


def _aliases(
    steps: Sequence[Step],
    direction: str,
    e: arb,
    tilt: float,
    period: float,
    far: tuple[float, list[Places]],
    window: arb,
) -> arb:
    """Bound the aliases on both sides, two geometric series."""
    x, places = far
    require(arb(x) > arb(tilt), "the tilt of far is above the line's")
    bound = _chernoff_bound(steps, direction, e, x, places, window)
    return 1 / (arb(tilt) * arb(period)).expm1() + bound / ((arb(x) - arb(tilt)) * arb(period)).expm1()


_FORMS = {
    "gaussian": _gaussian,
    "one_step": _one_step,
    "bounded": _bounded,
    "outcomes": _outcomes,
    "chernoff": _chernoff,
    "contour": _contour,
    "cut": _cut,
}
