"""Long-precision and nested-quadrature truths for the subsampled Gaussian pairs; they share no code with the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath as mp
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]
Share = tuple[float, float, float]
DIGITS = 30


class RealLine:
    """M(c + it) of one step by a trapezoid rule on the real line, in 30 digits.

    On the real line the rule's error grows like e^(ty); the spacing is fine enough for every t up to ``largest_t``.

    Args:
        share: (low, high, width) of a band of the law.
    """

    def __init__(
        self, kind: str, s: float, q: float, tilt: float, largest_t: float = 0.0, share: Share | None = None
    ) -> None:
        with mp.workdps(DIGITS):
            # A strip of half-width y = a s^2: what the integrand's norm gains there, beside e^(ty/s^2).
            a = min(1.0, 2.0 / s)
            gain = 0.5 * (a * s) ** 2 + 0.14 * tilt * a * a + (0.5 * (a * s * s / share[2]) ** 2 if share else 0.0)
            h = mp.mpf(2.0 * np.pi * a * s * s / (56.0 + a * largest_t + gain))
            reach = 11.0 * s + (0.0 if kind == "remove" else tilt)
            left, right = -reach, tilt + 1.0 + reach
            if share:
                left, right = max(left, share[0] - 11.0 * share[2]), min(right, share[1] + 11.0 * share[2] + tilt)
            self.weights: list[mp.mpf] = []
            self.losses: list[mp.mpf] = []
            for k in range(int(left / h), int(right / h) + 1):
                x = k * h
                here = log_f(x, s, q)
                other = log_f(-x, s, q) if kind == "replace" else mp.mpf(0)
                base = mp.mpf(0) if kind == "add" else here
                loss = -here if kind == "add" else here - other
                weight = h * mp.npdf(x, 0, s) * mp.exp(base + tilt * loss)
                self.weights.append(weight * (band_share(x, share) if share else 1))
                self.losses.append(loss)

    def moment(self, t: float = 0.0) -> mp.mpc:
        """M(c + it)."""
        with mp.workdps(DIGITS):
            if t == 0.0:
                return mp.fsum(self.weights)
            at = mp.mpf(t)
            turned = [w * mp.expj(at * loss) for w, loss in zip(self.weights, self.losses, strict=True)]
            return mp.mpc(mp.fsum(z.real for z in turned), mp.fsum(z.imag for z in turned))


def log_f(x: mp.mpf, s: float, q: float) -> mp.mpf:
    return mp.log1p(mp.mpf(q) * mp.expm1((x - mp.mpf(1) / 2) / mp.mpf(s) ** 2))


def band_share(x: mp.mpf, share: Share) -> mp.mpf:
    low, high, width = share
    above = mp.ncdf((high - x) / width) if high < mp.inf else mp.mpf(1)
    return above - (mp.ncdf((low - x) / width) if low > -mp.inf else 0)


def repeated_delta(kind: str, s: float, q: float, count: int, epsilon: float, upper: Share | None = None) -> float:
    """delta of 2 or 3 equal steps: a Gauss-Legendre rule over the first one's output, the last one in closed form.

    Args:
        upper: (low, high, width) of a band of the law, for 2 steps; its profile is then that of the band.
    """
    places = [] if upper is None else [end + upper[2] * k for end in upper[:2] for k in range(-8, 9)]
    ends = _panels(kind, s, q, epsilon, count, places)
    x, mass, loss = _rule(kind, s, q, ends)
    if upper is not None:
        return float((mass * _share(x, upper)) @ _one_step_delta_of_share(kind, s, q, epsilon - loss, upper))
    if count == 2:
        return float(mass @ one_step_delta(kind, s, q, epsilon - loss))
    inner = (repeated_delta(kind, s, q, count - 1, epsilon - at) for at in loss)
    return math.fsum(m * delta for m, delta in zip(mass, inner, strict=True))


def step_loss(kind: str, s: float, q: float, x: Array) -> tuple[Array, Array]:
    """(log density over N(0, s^2), loss)."""

    def log_ratio(at: Array) -> Array:
        return np.logaddexp(np.log1p(-q), np.log(q) + (at - 0.5) / s**2)

    here = log_ratio(x)
    if kind == "remove":
        return here, here
    return (np.zeros_like(x), -here) if kind == "add" else (here, here - log_ratio(-x))


def one_step_delta(kind: str, s: float, q: float, epsilons: Array) -> Array:
    """The hockey stick of one step at any real epsilons."""
    x = place_of(kind, s, q, epsilons)
    if kind == "add":
        loss = ndtr(x / s) - np.exp(epsilons) * ((1.0 - q) * ndtr(x / s) + q * ndtr((x - 1.0) / s))
        return np.asarray(loss)
    other = ndtr(-x / s) if kind == "remove" else (1.0 - q) * ndtr(-x / s) + q * ndtr((-1.0 - x) / s)
    delta: Array = (1.0 - q) * ndtr(-x / s) + q * ndtr((1.0 - x) / s) - np.exp(epsilons) * other
    return delta


def place_of(kind: str, s: float, q: float, losses: Array) -> Array:
    """x with loss(x) = ``losses``, an end of the line where there is none."""
    if kind != "replace":
        sign = -1.0 if kind == "add" else 1.0
        ratio = np.maximum(np.expm1(sign * losses) / q + 1.0, 1e-300)
        return np.asarray(s * s * np.log(ratio) + 0.5)
    # In y = e^(x / s^2): q k y^2 + (1 - q)(1 - a) y - a q k = 0, a = e^loss, k = e^(-1 / 2 s^2).
    a, k = np.exp(np.abs(losses)), q * np.exp(-0.5 / s**2)
    half = 0.5 * (1.0 - q) * np.expm1(np.abs(losses))
    place: Array = np.sign(losses) * s * s * np.log((half + np.sqrt(half * half + a * k * k)) / k)
    return place


def _one_step_delta_of_share(kind: str, s: float, q: float, epsilons: Array, share: Share) -> Array:
    """By a very fine rule; losses are sorted, so that the part above an epsilon is a tail of the sums."""
    x, mass, loss = _rule(kind, s, q, np.linspace(-11.0 * s, 11.0 * s + 1.0, 60_001))
    order = np.argsort(loss)
    loss, mass = loss[order], (mass * _share(x, share))[order]
    above = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
    discounted = np.concatenate([np.cumsum((mass * np.exp(-loss))[::-1])[::-1], [0.0]])
    place = np.searchsorted(loss, epsilons)
    delta: Array = above[place] - np.exp(epsilons) * discounted[place]
    return delta


def _share(x: Array, share: Share) -> Array:
    low, high, width = share
    return np.asarray(ndtr((high - x) / width) - ndtr((low - x) / width))


def log_integral(kind: str, s: float, q: float, tilt: float, window: tuple[float, float], share: Share | None) -> float:
    """log of the integral of density e^(tilt L) N(0, s^2), or of a share of it, over a window; good to 1e-9."""
    ends = np.linspace(*window, max(2, math.ceil((window[1] - window[0]) / (0.25 * s))))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends)[:, None]
    x = ((0.5 * (ends[:-1] + ends[1:]))[:, None] + half * nodes).ravel()
    base, loss = step_loss(kind, s, q, x)
    logs = base + tilt * loss - 0.5 * (x / s) ** 2 - math.log(s * math.sqrt(2.0 * math.pi))
    if share is not None:
        low, high, width = share
        logs = logs + log_ndtr((high - x) / width) + log_ndtr((x - low) / width)
    return float(np.logaddexp.reduce(logs + np.log((half * weights).ravel())))


def _panels(kind: str, s: float, q: float, epsilon: float, count: int, places: Sequence[float]) -> Array:
    """Ends of panels: finer where the rest's profile has its edge, and where a share moves."""
    ends = list(np.linspace(-11.0 * s, 11.0 * s + 1.0, 41)) + list(places)
    edge = {"remove": 1.0, "add": -1.0, "replace": 0.0}[kind] * (count - 1) * np.log1p(-q)
    kink = float(place_of(kind, s, q, np.array([epsilon - edge]))[0])
    ends += [kink + s * side * 2.0**-k for k in range(10) for side in (-1.0, 0.0, 1.0)]
    inside = np.array(ends)
    return np.unique(inside[(inside >= -11.0 * s) & (inside <= 11.0 * s + 1.0)])


def _rule(kind: str, s: float, q: float, ends: Array) -> tuple[Array, Array, Array]:
    """Nodes, their P-masses and their losses."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 0.5 * np.diff(ends)[:, None]
    x = (0.5 * (ends[:-1] + ends[1:])[:, None] + half * nodes).ravel()
    base, loss = step_loss(kind, s, q, x)
    mass = (half * weights).ravel() * np.exp(base - 0.5 * (x / s) ** 2) / (s * np.sqrt(2.0 * np.pi))
    return x, mass, loss
