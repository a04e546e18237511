"""30-digit transforms of losses whose law has ends and atoms, straight from the two densities of the noise.

Composite Gauss-Legendre rules on the real axis, with panels short enough for the largest t that is asked for. They
share no code with the engine, and nothing of its path.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from mpmath.calculus.quadrature import GaussLegendre

from accounting.fourier.steps import StepLine

DIGITS = 30
_DEGREE = 4
Density = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Law:
    """A loss under P: its masses and places, to integrate against."""

    masses: tuple[mp.mpf, ...]
    losses: tuple[mp.mpf, ...]

    def moment(self, tilt: float, t: float = 0.0) -> mp.mpc:
        """M(c + it)."""
        with mp.workdps(DIGITS):
            terms = [mass * mp.exp(tilt * loss) for mass, loss in zip(self.masses, self.losses, strict=True)]
            if t == 0.0:
                return mp.mpc(mp.fsum(terms))
            turns = [mp.cos_sin(t * loss) for loss in self.losses]
            real = mp.fsum(term * turn[0] for term, turn in zip(terms, turns, strict=True))
            return mp.mpc(real, mp.fsum(term * turn[1] for term, turn in zip(terms, turns, strict=True)))

    def second_moment(self, tilt: float) -> mp.mpf:
        """E L^2 under the tilted law."""
        pairs = list(zip(self.masses, self.losses, strict=True))
        return mp.fsum(m * loss**2 * mp.exp(tilt * loss) for m, loss in pairs) / mp.re(self.moment(tilt))


def laplace(size: float, q: float, kind: str, panels: int = 8) -> Law:
    """kind: remove, add, replace, symmetrized; q = 1 for a full batch. Noise of scale 1 / size, sensitivity 1."""
    with mp.workdps(DIGITS):
        lam, share = mp.mpf(size), mp.mpf(q)

        def noise(centre: int) -> Density:
            return lambda x: lam / 2 * mp.exp(-lam * abs(x - centre))

        def mixed(centre: int) -> Density:
            return lambda x: (1 - share) * noise(0)(x) + share * noise(centre)(x)

        def tail(edge: int, density: Density) -> tuple[mp.mpf, mp.mpf]:
            # Beyond all centres the densities fall like e^(-lam |x|).
            return density(mp.mpf(edge)) / lam, mp.mpf(edge)

        p, other = mixed(1), mixed(-1) if kind == "replace" else noise(0)
        if kind == "add":
            p, other = other, p
        if kind == "symmetrized":
            return _symmetrized(p, other, [mp.mpf(1) / 2 + mp.mpf(k) / (2 * panels) for k in range(panels + 1)], lam)
        edges = (-1, 0, 1) if kind == "replace" else (0, 1)
        cuts = sorted({mp.mpf(a) + mp.mpf(k) / panels for a in edges[:-1] for k in range(panels + 1)})
        masses, losses = _rule(p, other, cuts)
        for edge in (edges[0], edges[-1]):
            mass, place = tail(edge, p)
            masses.append(mass)
            losses.append(mp.log(p(place) / other(place)))
        return Law(tuple(masses), tuple(losses))


def symmetrized_gaussian(s: float, q: float, tilt: float, panels: int = 36) -> Law:
    """Good for tilts up to ``tilt``."""
    with mp.workdps(DIGITS):
        share, end = mp.mpf(q), mp.mpf(tilt + 1.0 + 12.0 * s)

        def noise(x: mp.mpf) -> mp.mpf:
            return mp.npdf(x, 0, s)

        def mixed(x: mp.mpf) -> mp.mpf:
            return (1 - share) * noise(x) + share * mp.npdf(x, 1, s)

        half = mp.mpf(1) / 2
        return _symmetrized(mixed, noise, [half + end * k / panels for k in range(panels + 1)], None)


def displaced(s: float, r: float, tilt: float, *, remove: bool, panels: int = 36) -> Law:
    """A record that takes another's place against a null record; good for tilts up to ``tilt``."""
    with mp.workdps(DIGITS):
        share, end = mp.mpf(r), mp.mpf(2.0 * tilt + 2.0 + 12.0 * s)

        def mixed(centre: int) -> Density:
            return lambda x: (1 - share) * mp.npdf(x, 0, s) + share * mp.npdf(x, centre, s)

        def beyond(place: mp.mpf) -> list[mp.mpf]:
            return [place + end * k / panels for k in range(panels + 1)]

        # The two sampled laws and where the first is larger; then the same of the null record against nothing.
        above = ((mixed(2), mixed(1)), beyond(mp.mpf(3) / 2))
        below = ((mixed(1), mixed(0)), beyond(mp.mpf(1) / 2))
        (up, up_places), (down, down_places) = (above, below) if remove else (below, above)
        up_masses, up_losses = _rule(*up, up_places)
        down_masses, _ = _rule(down[1], down[1], down_places)
        _, down_losses = _rule(*down, down_places)
        rest = 1 - mp.fsum(up_masses) - mp.fsum(down_masses)
        return Law((*up_masses, *down_masses, rest), (*up_losses, *(-loss for loss in down_losses), mp.mpf(0)))


def distance(line: StepLine, law: Law, tilt: float, t: float) -> tuple[float, float]:
    """|M(c + it) - truth| / M(c), and what the line allows for it."""
    logs, quadrature, rounding = line.log_ratios(1, 2, t)
    with mp.workdps(DIGITS):
        ratio = mp.exp(mp.mpc(logs[1]))
        error = abs(law.moment(tilt, t) / mp.exp(mp.mpf(line.log_moment)) - ratio)
    allowed = float(abs(ratio)) * float(np.expm1(quadrature[1] + rounding[1]))
    return float(error), allowed + float(np.expm1(line.log_moment_error))


def _symmetrized(p: Density, other: Density, cuts: Sequence[mp.mpf], rate: mp.mpf | None) -> Law:
    """P's law on losses above 0, the other's reflected, and the rest at 0."""
    masses, losses = _rule(p, other, cuts)
    reflected, _ = _rule(other, other, cuts)
    if rate is not None:
        end = cuts[-1]
        masses.append(p(end) / rate)
        reflected.append(other(end) / rate)
        losses.append(mp.log(p(end) / other(end)))
    rest = 1 - mp.fsum(masses) - mp.fsum(reflected)
    return Law((*masses, *reflected, rest), (*losses, *(-loss for loss in losses), mp.mpf(0)))


def _rule(p: Density, other: Density, cuts: Sequence[mp.mpf]) -> tuple[list[mp.mpf], list[mp.mpf]]:
    nodes = GaussLegendre(mp.mp).get_nodes(-1, 1, _DEGREE, mp.mp.prec)
    masses, losses = [], []
    for a, b in itertools.pairwise(cuts):
        middle, half = (a + b) / 2, (b - a) / 2
        for node, weight in nodes:
            x = middle + half * node
            masses.append(half * weight * p(x))
            losses.append(mp.log(p(x) / other(x)))
    return masses, losses
