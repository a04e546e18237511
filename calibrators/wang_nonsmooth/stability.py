r"""This module bounds how far the average of subgradient steps moves if a record is replaced, by Theorem 7 and by the
bound that is used instead.

**Setting.** $w_1 = 0$, $w_{t+1} = \Pi_W(w_t - \eta\,\partial\ell(w_t; z_{i_t}))$, $i_t$ uniform, $\bar w = \frac1T \sum
w_t$; $W = \mathbb{R}^d$ or the ball of radius $R$. Take the same indices for both data sets.

**One step with the same record** (Lemma 21, by co-coercivity, convex and $\alpha$-Hoelder on all of $\mathbb{R}^d$):
$\|w' - v'\|^2 \le \|w - v\|^2 + a^2$ with $a^2 = \frac{1-\alpha}{1+\alpha}(2^{-\alpha} L \eta)^{2/(1-\alpha)}$, 0 for
$\alpha = 1$ and $\eta \le 2/L$. **One step with the differing record** adds $\eta$ times the distance of two gradients
at one point of $W$: at most $s G \eta$, $s = 2$ if a record is replaced, $s = 1$ if it becomes null. By induction,
since $\sqrt{(\sqrt{N} a + h)^2 + a^2} \le \sqrt{N + 1}\,a + h$, after $k$ of $T$ steps have drawn the differing record,

$$\|\bar w - \bar v\| \le \Delta_k = \min\big(\sqrt{T}\,a + s\,G\,\eta\,k,\; 2R\big),\qquad \Delta_0 = 0 .$$

**The norm of the points**, for $W = \mathbb{R}^d$ and nonnegative losses: $\|w_{t+1}\|^2 \le t\,[\frac{1-\alpha}
{1+\alpha}(L\eta)^{2/(1-\alpha)} + 2\eta M_0]$ for $L\eta < 1$; $t\,[G^2\eta^2 + 2\eta M_0]$ for $\alpha = 0$;
$2\eta M_0 t$ for $\alpha = 1$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def expansion(exponent: float, constant: float, step_size: float) -> float:
    """Return a^2, the largest amount that one step adds to the squared distance of two points, in squared parameter
    units.

    >>> round(expansion(0.5, 1.5, 0.1 / 1.5) * 1e6, 9), expansion(1.0, 2.0, 0.1)
    (8.333333333, 0.0)
    """
    return _power(exponent, math.pow(2.0, -exponent) * constant * step_size)


def _power(exponent: float, base: float) -> float:
    """Return (1 - alpha)/(1 + alpha) base^(2/(1 - alpha)). Its limit at alpha = 1 is 0 for a base below 1."""
    if exponent == 1.0 or base == 0.0:
        return 0.0
    return (1.0 - exponent) / (1.0 + exponent) * math.exp(2.0 / (1.0 - exponent) * math.log(base))


def iterate_radius(
    exponent: float, constant: float, gradient_norm: float, loss_at_zero: float, step_size: float, iterations: int
) -> float:
    """Return a bound on the distance from 0 of all points of T steps on all of R^d, in parameter units. It needs L eta
    < 1.

    Args:
        gradient_norm: A bound on every gradient on R^d. It is used only if the exponent is 0.
    """
    first = (gradient_norm * step_size) ** 2 if exponent == 0.0 else _power(exponent, constant * step_size)
    return math.sqrt(iterations * (first + 2.0 * step_size * loss_at_zero))


@dataclass(frozen=True, slots=True)
class Stability:
    """Bounds on the distance between the averages of points under two neighbours.

    Attributes:
        exponent: The exponent alpha.
        constant: The constant L.
        gradient_norm: The bound G on gradients at all points that the steps may reach.
        step_size: The step size eta.
        iterations: The number T of steps.
        radius: The radius R of W; infinite for all of R^d.

    >>> hinge = Stability(0.5, 1.5, 3.0, 0.02, 1000, 1.0)
    >>> round(hinge.drift, 12), round(hinge.displacement(9), 9), round(hinge.printed(1000, 5e-7), 8)
    (0.008215838363, 1.088215838, 13.00789118)
    """

    exponent: float
    constant: float
    gradient_norm: float
    step_size: float
    iterations: int
    radius: float = math.inf

    @property
    def drift(self) -> float:
        """The distance c_0 = sqrt(T) a that all steps without the differing record may add, in parameter units."""
        return math.sqrt(self.iterations * expansion(self.exponent, self.constant, self.step_size))

    @property
    def draw(self) -> float:
        """The distance G eta, in parameter units."""
        return self.gradient_norm * self.step_size

    def displacement(self, draws: int, sensitivity: float = 2.0) -> float:
        """Return the bound Delta_k on the distance of the averages, in parameter units."""
        if draws == 0:
            return 0.0
        return min(self.drift + sensitivity * self.draw * draws, 2.0 * self.radius)

    def printed(self, dataset_size: int, failure_probability: float) -> float:
        """Return the Delta of Theorem 7 without the cap. It holds for all pairs of neighbours with probability 1 -
        gamma.
        """
        mean = self.iterations / dataset_size
        log = math.log(dataset_size) - math.log(failure_probability)
        chernoff = 3.0 * log / mean
        draws = mean * (1.0 + max(math.sqrt(chernoff), chernoff))
        return math.sqrt(math.e * (self.drift**2 + 4.0 * self.draw**2 * (1.0 + draws) * draws))
