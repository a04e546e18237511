r"""Proximal point steps with explicit constants. The bounds say how far a private approximate proximal point is from
stationary.

**Setting.** $f(\cdot, z)$ is $L_0$-Lipschitz and $\omega$-weakly convex over a convex X of diameter M (or $R^d$):
$f(y) \ge f(x) + \langle g, y - x\rangle - \tfrac\omega2 \|y - x\|^2$ for its subgradients g at x. $F = E f$ over n
independent records, $\beta = 2\omega$. Round t has $F_t(x) = F(x) + \tfrac\beta2 \|x - x_t\|^2$, which is
$\omega$-strongly convex, with $\hat x_t = \arg\min_X F_t$.

**Localisation.** $\tfrac\omega2 r^2 \le F_t(x_t) - F_t(\hat x_t) \le L_0 r - \tfrac\beta2 r^2$ for $r = \|x_t - \hat
x_t\|$, so $r \le 2 L_0/(\omega + \beta)$. The same holds if the mean over any set of records replaces F. In the ball of
this radius, every record's part of $F_t$ is $L_t$-Lipschitz with $L_t = L_0 + 2\beta L_0/(\omega + \beta) = \tfrac73
L_0$.

**Stationarity.** Let $E[F_t(x_{t+1}) - F_t(\hat x_t)] \le a$ for all t < R. Since
$F_t(\hat x_t) \le F(x_t) - \tfrac\omega2 \|x_t - \hat x_t\|^2$ and $F \le F_t$, the sum over t telescopes, and for J
uniform on 0..R-1

$$E\|x_J - \hat x_J\| \le \theta = \sqrt{\tfrac2\omega \Big(\tfrac{F(x_0) - \min F}{R} + a\Big)}.$$

The minimum $\hat x_J$ has a subgradient g of F with $\langle g, \hat x_J - y\rangle \le \beta \|x_J - \hat x_J\| \|y -
\hat x_J\|$ for all y in X. So the gap at $\hat x_J$ is at most $\beta M \theta$ on average. If X is $R^d$, the shortest
subgradient at $\hat x_J$ has length at most $\beta\theta$ on average.

**Empirical gap.** A round takes T steps of size $2/(\omega(k+1))$ along $g_k$, the gradient of the mean over m records
with noise $\sigma$ per coordinate. It ends at the average of the steps' starting points, weighted by k. Then $E[\bar
F_t(x_{t+1}) - \min \bar F_t] \le 2 E\|g\|^2/(\omega(T+1))$, and $\sqrt{E\|g\|^2} \le L_t + \sigma\sqrt d$.

**Generalisation.** Let $\bar x$ be the minimiser of the mean over m records. It moves by at most $2 L_0/(\omega m)$ if
one of them is replaced (the regulariser cancels in the comparison), so $E[F_t(\bar x) - F_t(\hat x_t)] \le 2
L_0^2/(\omega m)$. The private point is within $\sqrt{2\,\mathrm{gap}/\omega}$ of $\bar x$, where $F_t$ is
$L_t$-Lipschitz: $a \le 2 L_0^2/(\omega m) + L_t \sqrt{2\,\mathrm{gap}/\omega}$. This bound is valid but crude. One
expects that a is about as small as the gap, but that is not proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProximalProblem:
    """The constants of Lipschitz and weakly convex losses.

    Attributes:
        lipschitz: The constant L_0, in gradient units.
        weak_convexity: The constant omega, above 0, in units of a loss over a squared parameter.
    """

    lipschitz: float
    weak_convexity: float

    @property
    def regularizer(self) -> float:
        """The regulariser beta = 2 omega."""
        return 2.0 * self.weak_convexity

    @property
    def radius(self) -> float:
        """The largest distance from a round's start to its proximal point, 2 L_0 / (omega + beta).

        >>> ProximalProblem(1.5, 0.5).radius
        2.0
        """
        return 2.0 * self.lipschitz / (self.weak_convexity + self.regularizer)

    @property
    def local_lipschitz(self) -> float:
        """The Lipschitz constant L_t = 7/3 L_0 of a round's objective within `radius`."""
        return self.lipschitz + self.regularizer * self.radius

    def empirical_gap(self, inner_iterations: int, stddev: float, dimension: int) -> float:
        """Return the bound 2 (L_t + sigma sqrt(d))^2 / (omega (T + 1)) on a round's empirical gap, in loss units."""
        longest = self.local_lipschitz + stddev * math.sqrt(dimension)
        return 2.0 * longest**2 / (self.weak_convexity * (inner_iterations + 1))

    def population_gap(self, empirical_gap: float, records: int) -> float:
        """Return the bound 2 L_0^2 / (omega m) + L_t sqrt(2 gap / omega) on a round's population gap, in loss units."""
        statistical = 2.0 * self.lipschitz**2 / (self.weak_convexity * records)
        return statistical + self.local_lipschitz * math.sqrt(2.0 * empirical_gap / self.weak_convexity)

    def closeness(self, initial_gap: float, rounds: int, gap: float) -> float:
        """Return theta, the bound on the mean distance from the released point to its proximal point, in parameter
        units.
        """
        return math.sqrt(2.0 / self.weak_convexity * (initial_gap / rounds + gap))


def balanced_rounds(dataset_size: int, dimension: int, epsilon: float) -> int:
    r"""Return the balanced number of rounds, $\lfloor\min\{\sqrt n, (n\varepsilon/\sqrt d)^{2/3}\}\rfloor$, but at
    least 2 and at most n.

    With this number R of rounds, 1/R is as large as the gap of a round, up to a constant.

    >>> balanced_rounds(100_000, 50, 1.0)
    316
    """
    noise = math.pow(dataset_size * epsilon / math.sqrt(dimension), 2.0 / 3.0)
    return max(2, min(math.isqrt(dataset_size), math.floor(noise)))


def closeness_rate(dataset_size: int, dimension: int, epsilon: float) -> float:
    r"""Return the rate $n^{-1/4} + (\sqrt d/(n\varepsilon))^{1/3}$, without logarithms, for problems whose constants
    are of order 1.

    >>> closeness_rate(10_000, 100, 1.0)
    0.2
    """
    return math.pow(dataset_size, -0.25) + math.pow(math.sqrt(dimension) / (dataset_size * epsilon), 1.0 / 3.0)
