r"""This module contains lower bounds for zCDP algorithms (Theorems 7 and 8), up to constants and with explicit
constants.

*Certified bounds*, for every $d \ge 1$, $n \ge 1$, $k \ge 2$, with $q = \min\{1, 1/(n \sqrt{2\rho})\}$:

$$\text{convex, radius } R: \; \max\Big\{\frac{r R}{2\sqrt{6 n}},\, \frac{r R}{2} q^{(k-1)/k}\Big\}, \qquad
  \mu\text{-strongly convex: } \max\Big\{\frac{r^2}{96 \mu n},\, \frac{r^2}{16 \mu} q^{(2k-2)/k}\Big\}.$$

*Proof.* An algorithm must distinguish two distributions of one coordinate with means $\pm m$. In both of the following
cases, the total variation distance between its outcomes is at most 1/2. Non-private: $x = \pm h$ with $m = \delta h$,
$\delta = 1/\sqrt{6 n}$: the Kullback-Leibler divergence of n records is at most $3 n \delta^2 = 1/2$. Private: $x = \pm
h q^{-1/k}$ with probability q and 0 otherwise, $m = h q^{(k-1)/k}$: the two samples can be drawn to differ in
$\mathrm{Bin}(n, q)$ records, and $\rho$-zCDP for groups with Pinsker's inequality gives $\sqrt{\rho/2}\, n q \le 1/2$.
For $f = -\langle w, x\rangle$ on a ball of radius R and $h = r$ the two excess risks add up to at least $2 m R$ at
every point, so one of them is at least $m R / 2$ on average. For $f = \frac\mu2 \|w - x\|^2$ on a ball of radius $h =
r/(2\mu)$, which holds both means, the gradient's k-th moment is at most $(\mu h + \mu h)^k = r^k$ by Minkowski; the two
excess risks add up to at least $\frac\mu2 \cdot 2 m^2$, so one is at least $\mu m^2 / 4$ on average. $\square$

If the domain's diameter D is below $r/\mu$, take $h = D/2$. Then $\min(r, \mu D)$ replaces r.
"""

from __future__ import annotations

import math


def convex_lower_bound(moment_order: float, moment_bound: float, radius: float, records: int, rho: float) -> float:
    """Return a certified lower bound on the excess risk of every rho-zCDP algorithm on some convex problem on a ball,
    in loss units.

    >>> round(convex_lower_bound(2.0, 3.0, 1.0, 10_000, 0.5), 12)
    0.015
    """
    public = moment_bound * radius / (2.0 * math.sqrt(6.0 * records))
    return max(public, 0.5 * moment_bound * radius * _private_mean(moment_order, records, rho))


def strongly_convex_lower_bound(
    moment_order: float, moment_bound: float, strong_convexity: float, diameter: float, records: int, rho: float
) -> float:
    """Return a certified lower bound on the excess risk of every rho-zCDP algorithm on some strongly convex problem on
    a ball of at most this diameter, in loss units.

    >>> round(strongly_convex_lower_bound(2.0, 3.0, 1.0, 3.0, 10_000, 0.5), 12)
    5.625e-05
    """
    reach = min(moment_bound, strong_convexity * diameter)
    public = 1.0 / (96.0 * records)
    return reach**2 / strong_convexity * max(public, _private_mean(moment_order, records, rho) ** 2 / 16.0)


def mean_lower_bound(moment_order: float, moment_bound: float, records: int, rho: float) -> float:
    """Return a certified lower bound on E|nu~ - nu|^2 for every rho-zCDP algorithm and some distribution of records.

    The proof uses the two distributions of the module with h = r_k, because here the moment bound is on the records.
    The two squared errors add up to at least 2 m^2, so one of them is at least m^2 / 2 on average.

    >>> round(mean_lower_bound(2.0, 3.0, 10_000, 0.5), 12)
    0.00045
    """
    public = 1.0 / (12.0 * records)
    return moment_bound**2 * max(public, 0.5 * _private_mean(moment_order, records, rho) ** 2)


def convex_lower_rate(
    moment_order: float, moment_bound: float, diameter: float, dimension: int, records: int, rho: float
) -> float:
    """Return the lower bound of Theorem 7 without its constant: r_k D (n^(-1/2) + min{1, sqrt(d) / (sqrt(rho)
    n)}^((k-1)/k)).

    >>> round(convex_lower_rate(2.0, 3.0, 2.0, 50, 10_000, 0.5), 10)
    0.2497366596
    """
    private = math.pow(_private_rate(dimension, records, rho), 1.0 - 1.0 / moment_order)
    return moment_bound * diameter * (1.0 / math.sqrt(records) + private)


def strongly_convex_lower_rate(
    moment_order: float, moment_bound: float, strong_convexity: float, dimension: int, records: int, rho: float
) -> float:
    """Return the lower bound of Theorem 8 without its constant: (r_k^2 / mu) (1/n + min{1, sqrt(d) / (sqrt(rho)
    n)}^((2k-2)/k)).

    >>> round(strongly_convex_lower_rate(2.0, 3.0, 1.0, 50, 10_000, 0.5), 10)
    0.0099
    """
    private = math.pow(_private_rate(dimension, records, rho), 2.0 - 2.0 / moment_order)
    return moment_bound**2 / strong_convexity * (1.0 / records + private)


def failed_conditions(dimension: int, rho: float) -> tuple[str, ...]:
    """Return the conditions of Theorems 7 and 8 that do not hold, in words.

    The printed condition n > 7202 is not checked, because the step of the proof that uses it holds without it.

    >>> failed_conditions(39, 0.5)
    ('d >= 40 (d is 39)',)
    """
    conditions = ((dimension >= 40, f"d >= 40 (d is {dimension})"), (rho <= dimension, f"rho <= d (rho is {rho:.4g})"))
    return tuple(words for holds, words in conditions if not holds)


def _private_mean(moment_order: float, records: int, rho: float) -> float:
    """Return q^((k-1)/k). From n records, a rho-zCDP algorithm cannot distinguish a mean of this size (relative to h)
    from its negative.
    """
    return math.pow(min(1.0, 1.0 / (records * math.sqrt(2.0 * rho))), 1.0 - 1.0 / moment_order)


def _private_rate(dimension: int, records: int, rho: float) -> float:
    return min(1.0, math.sqrt(dimension / rho) / records)
