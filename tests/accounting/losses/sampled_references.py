"""Long-precision references for sampled pairs: densities integrated in the most direct way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import mpmath as mp

Density = Callable[[mp.mpf], mp.mpf]


def laplace(mean: float, loss: float) -> Density:
    """Scale 1 / loss."""
    lam, centre = mp.mpf(loss), mp.mpf(mean)
    return lambda x: lam / 2 * mp.exp(-lam * abs(x - centre))


def gaussian(mean: float, deviation: float) -> Density:
    return lambda x: mp.npdf(x, mean, deviation)


def mixture(q: float, rare: Density, common: Density) -> Density:
    share = mp.mpf(q)
    return lambda x: (1 - share) * common(x) + share * rare(x)


def hockey_stick(p: Density, q: Density, epsilon: float, places: Sequence[float], half_width: float) -> mp.mpf:
    """Integral of (p - e^eps q)_+, split at ``places`` and where the sign changes."""
    alpha = mp.exp(mp.mpf(epsilon))

    def difference(x: mp.mpf) -> mp.mpf:
        return p(x) - alpha * q(x)

    edges = sorted({mp.mpf(place) for place in places} | {mp.mpf(-half_width), mp.mpf(half_width)})
    grid = sorted({a + (b - a) * k / 4 for a, b in itertools.pairwise(edges) for k in range(5)})
    total = mp.mpf(0)
    for a, b in itertools.pairwise(grid):
        cuts = [a, b]
        if (difference(a) > 0) != (difference(b) > 0):
            low, high = a, b
            for _ in range(70):
                middle = (low + high) / 2
                low, high = (middle, high) if (difference(middle) > 0) == (difference(a) > 0) else (low, middle)
            cuts = [a, low, b]
        for left, right in itertools.pairwise(cuts):
            if difference((left + right) / 2) > 0:
                total += mp.quad(difference, [left, right], maxdegree=6, method="gauss-legendre")
    return total


def expected_ratio_kernel(kernel: Callable[[mp.mpf], mp.mpf], q: float, y: Density, edges: Sequence[mp.mpf]) -> mp.mpf:
    """Integral of kernel(1 - q + q e^y) over a density of y."""
    share = mp.mpf(q)
    return mp.quad(
        lambda at: y(at) * kernel(1 - share + share * mp.exp(at)), edges, maxdegree=5, method="gauss-legendre"
    )


def symmetrized_gaussian_moment(s: float, q: float, tilt: float) -> mp.mpf:
    """log [1 + E (f^(x+1) + f^-x - f - 1) 1{z >= 1/2}], z ~ N(0, s^2), as an integral over y = (2z - 1)/(2 s^2)."""
    scale, x = mp.mpf(s), mp.mpf(tilt)
    end = (x + 1 + 15 * scale) / scale**2
    pieces = int(end / min(1 / scale, mp.mpf(1), 8 / (1 + x))) + 1
    total = expected_ratio_kernel(
        lambda f: f ** (x + 1) + f ** (-x) - f - 1,
        q,
        lambda y: mp.npdf(mp.mpf(1) / 2 + scale**2 * y, 0, scale) * scale**2,
        [end * k / pieces for k in range(pieces + 1)],
    )
    return mp.log(1 + total)


def laplace_moment(loss: float, q: float, tilt: float, kind: str) -> mp.mpf:
    """Moments of the sampled Laplace pairs straight from their two densities, as sums of differences from 1."""
    lam, x, share = mp.mpf(loss), mp.mpf(tilt), mp.mpf(q)
    pieces = max(4, int(lam * min(1 + x, 30)))
    inner = [mp.mpf(k) / pieces for k in range(pieces + 1)]

    def ratio(z: mp.mpf, centre: int) -> mp.mpf:
        return 1 - share + share * mp.exp(lam * (abs(z) - abs(z - centre)))

    if kind == "replace":

        def value(z: mp.mpf) -> mp.mpf:
            right, left = ratio(z, 1), ratio(z, -1)
            return right * (right / left) ** x - right

        edges = [-z for z in inner[:0:-1]] + inner
        outer = [(mp.mpf(-1), mp.exp(-lam) / 2), (mp.mpf(1), mp.exp(-lam) / 2)]
    else:

        def value(z: mp.mpf) -> mp.mpf:
            f = ratio(z, 1)
            if kind == "remove":
                return f ** (x + 1) - 1 - (x + 1) * (f - 1)
            if kind == "add":
                return f ** (-x) - 1 + x * (f - 1)
            return f ** (x + 1) + f ** (-x) - f - 1 if f > 1 else mp.mpf(0)

        edges = inner if kind != "symmetrized" else [mp.mpf(1) / 2 + z / 2 for z in inner]
        outer = [(mp.mpf(0), mp.mpf(1) / 2), (mp.mpf(1), mp.exp(-lam) / 2)]
    density = laplace(0.0, loss)
    total = mp.quad(lambda z: density(z) * value(z), edges, maxdegree=6, method="gauss-legendre")
    return mp.log(1 + total + mp.fsum(mass * value(z) for z, mass in outer))
