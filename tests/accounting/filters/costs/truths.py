"""What some cells cost, in long precision."""

from __future__ import annotations

import mpmath as mp

from tests.accounting.references import normal_cdf


@mp.workdps(60)
def mu_through(error: mp.mpf) -> mp.mpf:
    """-2 Phi^-1(error): bisected, so that far tails work too."""
    low, high = mp.mpf(0), mp.mpf(200)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_cdf(-middle / 2) > error else (low, middle)
    return high


@mp.workdps(40)
def allocated_moment(s: float, bins: int, tilt: float) -> mp.mpf:
    """log E X^(tilt + 1) of one allocation at integers, by the multinomial theorem."""
    order, mu = int(tilt + 1), 1 / mp.mpf(s)
    assert order == tilt + 1
    series = [mp.exp(mu**2 * k * (k - 1) / 2) / mp.factorial(k) for k in range(order + 1)]
    power = [mp.mpf(1)] + [mp.mpf(0)] * order
    for _ in range(bins):
        power = [mp.fsum(power[j] * series[k - j] for j in range(k + 1)) for k in range(order + 1)]
    return mp.log(mp.factorial(order) * power[order] / mp.mpf(bins) ** order)


@mp.workdps(40)
def symmetrized_moment(s: float, q: float, tilt: float) -> mp.mpf:
    """log of 1 + E[(L^(t+1) + L^(-t) - L - 1) 1{x >= 1/2}], L = 1 - q + q e^((2x-1)/(2 nu^2)), x ~ N(0, nu^2)."""
    nu, q_, t = mp.mpf(s) / 2, mp.mpf(q), mp.mpf(tilt)

    def integrand(x: mp.mpf) -> mp.mpf:
        ratio = 1 - q_ + q_ * mp.exp((2 * x - 1) / (2 * nu**2))
        return mp.npdf(x, 0, nu) * (ratio ** (t + 1) + ratio**-t - ratio - 1)

    points = [mp.mpf(1) / 2 + step * (t + 2 + 12 * nu) / 12 for step in range(13)]
    return mp.log1p(mp.quad(integrand, points))


@mp.workdps(40)
def displaced_moment(s: float, q: float, tilt: float) -> mp.mpf:
    """The larger direction's log-moment of a batch of a fixed size against one with a null record.

    For the record against the null record: log of 1 + E_Q[(f^(t+1) - f) 1{f > 1}] + E_0[(g^(-t) - 1) 1{g > 1}], f of
    the laws with 2 and 1, Q the second of them, g of the laws with 1 and 0; the other way round likewise.
    """
    q_, t = mp.mpf(q), mp.mpf(tilt)

    def law(x: mp.mpf, mean: int) -> mp.mpf:
        return (1 - q_) * mp.npdf(x, 0, s) + q_ * mp.npdf(x, mean, s)

    def side(mean: int, power: mp.mpf) -> mp.mpf:
        start = mean + mp.mpf(1) / 2

        def integrand(x: mp.mpf) -> mp.mpf:
            lower = law(x, mean)
            ratio = law(x, mean + 1) / lower
            return lower * (ratio**power - (ratio if power > 0 else 1))

        return mp.quad(integrand, [start + step * (2 * t + 4 + 12 * s) / 12 for step in range(13)])

    return mp.log1p(max(side(1, t + 1) + side(0, -t), side(0, t + 1) + side(1, -t)))


@mp.workdps(30)
def sampled_laplace_moment(b: float, q: float, tilt: float, pair: str) -> mp.mpf:
    """The larger direction's log-moment, piece by piece between the kinks."""
    scale, q_, t = mp.mpf(b), mp.mpf(q), mp.mpf(tilt)

    def law(x: mp.mpf, mean: int) -> mp.mpf:
        return mp.exp(-abs(x - mean) / scale) / (2 * scale)

    def mixed(x: mp.mpf) -> mp.mpf:
        return (1 - q_) * law(x, 0) + q_ * law(x, 1)

    def other(x: mp.mpf) -> mp.mpf:
        return law(x, 0) if pair == "remove" else (1 - q_) * law(x, 0) + q_ * law(x, -1)

    pieces = [-40 * scale - 1, -10 * scale - 1, -1, 0, 1, 10 * scale + 1, 40 * scale + 1]
    there = mp.quad(lambda x: mixed(x) ** (t + 1) * other(x) ** -t, pieces)
    back = mp.quad(lambda x: other(x) ** (t + 1) * mixed(x) ** -t, pieces)
    return mp.log(max(there, back))


@mp.workdps(30)
def largest_bounded_range_moment(epsilon: float, tilt: float) -> mp.mpf:
    """The largest of two losses t and t - epsilon, over t, by search: it has one maximum."""
    e, x, low, high = mp.mpf(epsilon), mp.mpf(tilt), mp.mpf(0), mp.mpf(epsilon)

    def moment(t: mp.mpf) -> mp.mpf:
        likely = (mp.exp(e) - mp.exp(t)) / mp.expm1(e)
        return mp.log(likely * mp.exp(x * t) + (1 - likely) * mp.exp(x * (t - e)))

    for _ in range(80):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if moment(left) < moment(right) else (low, right)
    return moment(low)
