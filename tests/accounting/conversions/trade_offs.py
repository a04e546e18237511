"""Long-precision references of conversions: the laws themselves, in mpmath, in the most direct way."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

from tests.accounting.references import normal_cdf

Trade = Callable[[mp.mpf], mp.mpf]


def renyi(order: object, p: mp.mpf, q: mp.mpf) -> mp.mpf:
    """Divergence of order ``order`` of (p, 1 - p) from (q, 1 - q)."""
    a = mp.mpf(order)
    return mp.log(p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a)) / (a - 1)


def both(order: object, p: mp.mpf, q: mp.mpf) -> mp.mpf:
    return max(renyi(order, p, q), renyi(order, q, p))


def corner_trade(epsilon: object, delta: object) -> Trade:
    """Largest true positive rate of the mechanism that reveals with probability delta, else randomises one bit."""
    e, d = mp.mpf(epsilon), mp.mpf(delta)

    def tpr(fpr: mp.mpf) -> mp.mpf:
        # Four outcomes: revealed under P alone, the two answers, revealed under Q alone; likeliest ratios first.
        p = mp.exp(e) / (1 + mp.exp(e))
        pieces = [(d, mp.mpf(0)), ((1 - d) * p, (1 - d) * (1 - p)), ((1 - d) * (1 - p), (1 - d) * p)]
        power, left = mp.mpf(0), mp.mpf(fpr)
        for under_p, under_q in pieces:
            if under_q <= left:
                power, left = power + under_p, left - under_q
            else:
                return power + under_p * left / under_q
        return power

    return tpr


def gaussian_trade(mu: object) -> Trade:
    def tpr(fpr: mp.mpf) -> mp.mpf:
        return normal_cdf(mp.sqrt(2) * mp.erfinv(2 * mp.mpf(fpr) - 1) + mp.mpf(mu))

    return tpr


def largest(function: Trade, low: object, high: object, steps: int = 90) -> tuple[mp.mpf, mp.mpf]:
    """Argument and value of the maximum of a unimodal function, by golden section."""
    a, b, golden = mp.mpf(low), mp.mpf(high), (mp.sqrt(5) - 1) / 2
    c, d = b - golden * (b - a), a + golden * (b - a)
    at_c, at_d = function(c), function(d)
    for _ in range(steps):
        if at_c >= at_d:
            b, d, at_d = d, c, at_c
            c = b - golden * (b - a)
            at_c = function(c)
        else:
            a, c, at_c = c, d, at_d
            d = a + golden * (b - a)
            at_d = function(d)
    return max((at_c, c), (at_d, d))[::-1]


def single_order_epsilon(order: object, divergence: object, delta: object) -> mp.mpf:
    """Exact epsilon of one order alone: max over p of log((p - delta) / q(p)), by bisection and golden section."""
    bound, d = mp.mpf(divergence), mp.mpf(delta)

    def smallest_q(p: mp.mpf) -> mp.mpf:
        low, high = mp.mpf(-2000), mp.log(p)
        for _ in range(70):
            middle = (low + high) / 2
            low, high = (low, middle) if renyi(order, p, mp.exp(middle)) <= bound else (middle, high)
        return high

    def cost(log_odds: mp.mpf) -> mp.mpf:
        p = 1 / (1 + mp.exp(-log_odds))
        return mp.log(p - d) - smallest_q(p) if p > d else mp.mpf("-inf")

    return largest(cost, mp.log(d / (1 - d)), 8, 45)[1]
