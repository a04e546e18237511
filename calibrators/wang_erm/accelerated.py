r"""This module bounds the utility of accelerated mirror descent in a ball with one noisy gradient per step, which is
the private form of DP-AccMD.

**Steps.** For $k = 0..T-1$, with $r = 2/(k+2)$, $\alpha = (k+2)/(4 L_C)$ and $y_0 = z_0 = x_0$,

$$x = r z_k + (1-r) y_k,\quad g = \nabla F(x) + b,\quad z_{k+1} = \arg\min_{z \in C} B_w(z, z_k) + \alpha\langle g, z
\rangle,\quad y_{k+1} = r z_{k+1} + (1-r) y_k .$$

**Bound.** Let $F$ be convex and $L_C$-smooth in $\|\cdot\|_C$, let $w$ be 1-strongly convex in that norm, and let $W =
E\|b/\sigma\|_{C*}^2$. Smoothness at $y_{k+1} - x = r(z_{k+1} - z_k)$, times $\alpha/r$, and the mirror step's
inequality leave $-\frac14\|z_{k+1}-z_k\|_C^2$, since $\alpha r L_C = \frac12$; this term absorbs the noise:
$-\alpha\langle b, z_{k+1}-z_k\rangle - \frac14\|z_{k+1}-z_k\|_C^2 \le \alpha^2\|b\|_{C*}^2$, and $b$ is independent of
$z_k$. Convexity gives $\frac{(k+2)^2}{8 L_C} D_{k+1} \le \frac{k(k+2)}{8 L_C} D_k + B_w(x^*, z_k) - B_w(x^*, z_{k+1}) +
\alpha^2 \sigma^2 W$ in expectation, $D_k = F(y_k) - F(x^*)$, and $k(k+2) \le (k+1)^2$. Summed,

$$E D_T \le \frac{8 L_C B}{(T+1)^2} + \frac{\sigma^2 W}{2 L_C} \cdot \frac{(T+2)(2T+3)}{6(T+1)},\qquad
B = B_w(x^*, x_0).$$
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import scipy

from accounting.numbers import MAX_COUNT
from calibrators.geometry import Domain, L1Ball, L2Ball

#: From this number of parameters on, a square root replaces the quotient of gamma functions. The two agree to within
#: the accuracy of the logarithms.
_MANY = 10**6


class Geometry(Protocol):
    """A ball C of radius R around 0, its norm, and a function w that is 1-strongly convex in this norm."""

    @property
    def radius(self) -> float:
        """The radius R, in parameter units."""
        ...

    @property
    def domain(self) -> Domain: ...
    @property
    def divergence(self) -> float:
        """The pure number B, the largest Bregman divergence of w between a point of C and the centre."""
        ...

    @property
    def width(self) -> float:
        """The Gaussian width G_C = E max_{x in C} <x, N>, in parameter units."""
        ...

    @property
    def dual_moment(self) -> float:
        """The number W = E (max_{x in C} <x, N>)^2, in squared parameter units."""
        ...


@dataclass(frozen=True, slots=True)
class Euclidean:
    """The l2 ball with w = |x|^2 / (2 R^2).

    >>> ball = Euclidean(radius=2.0, dimension=5)
    >>> round(ball.width, 9), ball.dual_moment, ball.divergence
    (4.255384324, 20.0, 0.5)
    """

    radius: float
    dimension: int

    @property
    def domain(self) -> Domain:
        return L2Ball(self.radius)

    @property
    def divergence(self) -> float:
        return 0.5

    @property
    def width(self) -> float:
        p = self.dimension
        if p >= _MANY:
            return self.radius * math.sqrt(p)
        return self.radius * math.sqrt(2.0) * math.exp(math.lgamma(0.5 * (p + 1)) - math.lgamma(0.5 * p))

    @property
    def dual_moment(self) -> float:
        return self.radius**2 * self.dimension


@dataclass(frozen=True, slots=True)
class Entropic:
    """The l1 ball as x = R (u+ - u-), where the 2 p weights u are nonnegative and sum to 1, and w is their negative
    entropy.

    >>> ball = Entropic(radius=1.0, dimension=10)
    >>> round(ball.width, 9), round(ball.dual_moment, 9)
    (1.880715694, 3.799620856)
    """

    radius: float
    dimension: int

    @property
    def domain(self) -> Domain:
        return L1Ball(self.radius)

    @property
    def divergence(self) -> float:
        return math.log(2.0 * self.dimension)

    @property
    def width(self) -> float:
        return self.radius * _largest_of_normals(self.dimension, 1)

    @property
    def dual_moment(self) -> float:
        return self.radius**2 * _largest_of_normals(self.dimension, 2)


@lru_cache(maxsize=64)
def _largest_of_normals(count: int, power: int) -> float:
    """Return E max_j |N_j|^power for this many independent standard normals, as the integral of power t^(power-1) P(max
    > t).
    """

    def integrand(t: float) -> float:
        return float(
            -power * t ** (power - 1) * math.expm1(count * math.log1p(-scipy.special.erfc(t / math.sqrt(2.0))))
        )

    # P(max > t) falls from 1 to 0 around ``middle``. At ``middle`` + 10, count * erfc is below e^-50.
    middle = math.sqrt(2.0 * math.log(2.0 * count))
    below = scipy.integrate.quad(integrand, 1e-12, middle, epsabs=0.0, epsrel=1e-12, limit=200)[0]
    above = scipy.integrate.quad(integrand, middle, middle + 10.0, epsabs=0.0, epsrel=1e-12, limit=200)[0]
    return float(below + above)


@dataclass(frozen=True, slots=True)
class Accelerated:
    """The bound of this module for an L-smooth convex F in a ball, with steps that start at the ball's centre.

    Attributes:
        geometry: The ball.
        smoothness: The constant L in |grad F(x) - grad F(y)| <= L |x - y|. For the l2 ball, both norms are l2. For the
            l1 ball, the left norm is l_inf and the right norm l1; smoothness in l2 implies this. L_C = L R^2. A larger
            L than necessary makes the steps shorter.

    >>> theorem = Accelerated(Euclidean(radius=2.0, dimension=5), smoothness=1.0)
    >>> round(theorem.bound(0.1, 20), 10)
    0.2239795918
    """

    geometry: Geometry
    smoothness: float

    @property
    def scaled_smoothness(self) -> float:
        """The scaled smoothness L_C, in loss units."""
        return self.smoothness * self.geometry.radius**2

    def bound(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """Return the bound on the expected excess risk of y_T, in loss units."""
        after = iterations + 1.0
        start = 8.0 * self.scaled_smoothness * self.geometry.divergence / after**2
        noise = noise_stddev_on_mean**2 * self.geometry.dual_moment / (2.0 * self.scaled_smoothness)
        return start + noise * (after + 1.0) * (2.0 * after + 1.0) / (6.0 * after)

    def best_iterations(self, noise_stddev_of_one_step: float) -> int:
        """Return the T >= 1 with the smallest bound, if T steps need sqrt(T) times the noise of one step.

        The bound is then convex in T, because with S = T + 1 its second term is a multiple of 2 S^2 + S - 2 - 1/S.
        """

        def rises_at(count: int) -> bool:
            at, after = (self.bound(noise_stddev_of_one_step * math.sqrt(steps), steps) for steps in (count, count + 1))
            return after >= at

        lower, upper = 0, 1  # the bound falls at lower and rises at upper
        while upper < MAX_COUNT and not rises_at(upper):
            lower, upper = upper, min(2 * upper, MAX_COUNT)
        while upper - lower > 1:
            middle = (lower + upper) // 2
            lower, upper = (lower, middle) if rises_at(middle) else (middle, upper)
        return upper
