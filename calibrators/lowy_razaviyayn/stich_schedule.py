r"""This module contains step sizes and weights for strongly convex problems. The paper takes their existence from Stich
(2019, Lemma 3).

Nonnegative $r_t$, $s_t$ with

$$r_{t+1} \le (1 - a \eta_t) r_t - b \eta_t s_t + c \eta_t^2 + e \eta_t, \qquad \eta_t \le 1/g, \qquad t = 0..T, $$

arise from strongly convex descent. The schedule, with $t_0 = \lceil T/2 \rceil$ and $K = 2 g / a$:

$$T \le g/a: \quad \eta_t = 1/g,\; \zeta_t = (1 - a/g)^{-(t+1)}; \qquad
  T > g/a: \quad \eta_t = 1/g,\; \zeta_t = 0 \;(t < t_0), \quad
  \eta_t = \frac{2}{a (K + t - t_0)},\; \zeta_t = K + t - t_0 \;(t \ge t_0).$$

With $Z = \sum_t \zeta_t$,

$$\frac{b}{Z} \sum_t \zeta_t s_t \le 2 a r_0 e^{-aT/(2g)} + \frac{10 c}{a T} + 3 e \;\;(T > g/a), \qquad
  \le g r_0 e^{-a(T+1)/g} + \frac{c}{g} + e \;\;(T \le g/a).$$

*Proof.* Multiply the recursion by $\zeta_t / \eta_t$ and add. Where
$\zeta_t \eta_t^{-1} (1 - a \eta_t) \le \zeta_{t-1} \eta_{t-1}^{-1}$ the terms in $r_t$ telescope, and with
$t_1$ the first index of positive weight

$$\frac{b}{Z} \sum_t \zeta_t s_t \le \frac1Z \Big( \frac{\zeta_{t_1}}{\eta_{t_1}} (1 - a \eta_{t_1}) r_{t_1}
  + \sum_{t \ge t_1} \zeta_t (c \eta_t + e) \Big), \tag{1}$$

where $r_{t_1} \le (1 - a/g)^{t_1} r_0 + c/(a g) + e/a$, since the $s_t$ are not negative. Constant steps: equality
holds in the condition, $Z \ge 1$ when the weights are scaled to $\zeta_T = 1$, and (1) is
$\frac{a q^{T+1}}{1 - q^{T+1}} r_0 + c/g + e$ with $q = 1 - a/g$, while $1 - q^{T+1} \ge a/g$. Decreasing steps, with
$y = K + t - t_0$: $\zeta_t \eta_t^{-1} (1 - a \eta_t) = \frac a2 y (y - 2) \le \frac a2 (y - 1)^2$, and there are
$N = \lfloor T/2 \rfloor + 1 \ge (T+1)/2$ of them with $Z \ge N (K + (N-1)/2)$. So
$K^2 / Z \le K / N \le 4 g / (a T)$, which is below 4, and (1) is at most
$\frac a2 \frac{K^2}{Z} r_{t_0} + \frac{2 c N}{a Z} + e$, in which $r_0$ has the factor $2 a e^{-aT/(2g)}$ (as
$\frac{K^2}{Z} < 4$), $c$ the factor $\frac{K}{a Z} + \frac{2 N}{a Z} \le \frac{2}{aT} + \frac{8}{aT}$, and $e$ the
factor $1 + \frac{K^2}{2 Z} < 3$. $\square$

(1) itself is what `Schedule.worst_case` evaluates. The bound (1) is attained: in linear programmes over all $r$ and
$s$, the largest value of the left side equals (1) to the solver's precision. Stich's lemma has the bound $32 g r_0
e^{-aT/(2g)} + 36 c/(aT)$, with $a r_{T+1}$ added to the left side. In all cases tried, up to 90000 steps, the part of
(1) with $r_0$ is at most 1.6 % of the first term, and the part with $c$ at most 2/9 of the second; long runs tend to
2/9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Step sizes and normalised weights of T + 1 steps.

    Attributes:
        contraction: The number a of the recursion.
        step_sizes: The step sizes eta_0 .. eta_T.
        weights: The weights zeta_0 .. zeta_T over their sum.
    """

    contraction: float
    step_sizes: tuple[float, ...]
    weights: tuple[float, ...]

    def worst_case(self, start: float, noise: float | Vector, drift: float | Vector = 0.0) -> float:
        """Return the right side of (1). No sequence that obeys the recursion has a larger weighted mean of b s_t.

        Args:
            start: The start r_0.
            noise: The noise c, or one number for each step.
            drift: The drift e, or one number for each step.

        >>> stich_schedule(8, 0.5, 1.5).worst_case(1.0, 0.0) < 2 * 0.5 * math.exp(-0.5 * 8 / 3)
        True
        """
        eta, zeta = np.array(self.step_sizes), np.array(self.weights)
        per_step = noise * eta + drift
        first = int(np.flatnonzero(zeta)[0])
        distance = start
        for step_size, added in zip(self.step_sizes[:first], per_step[:first].tolist(), strict=True):
            distance = (1.0 - self.contraction * step_size) * distance + step_size * added
        left = self.weights[first] / self.step_sizes[first] * (1.0 - self.contraction * self.step_sizes[first])
        return float(left * distance + math.fsum((zeta * per_step).tolist()))


def stich_schedule(iterations: int, contraction: float, inverse_step: float) -> Schedule:
    """Return the schedule of T + 1 steps for the paper's T.

    Args:
        iterations: The number T of steps, at least 1.
        contraction: The contraction a.
        inverse_step: The number g, at least a; no step size is above 1/g.

    >>> schedule = stich_schedule(8, 0.5, 1.5)
    >>> [round(eta, 10) for eta in schedule.step_sizes[3:]]
    [0.6666666667, 0.6666666667, 0.5714285714, 0.5, 0.4444444444, 0.4]
    >>> [round(weight, 10) for weight in schedule.weights[3:]]
    [0.0, 0.15, 0.175, 0.2, 0.225, 0.25]
    """
    if is_constant(iterations, contraction, inverse_step):
        return constant_schedule(iterations, contraction, 1.0 / inverse_step)
    first = -(-iterations // 2)
    offsets = 2.0 * inverse_step / contraction + np.arange(iterations - first + 1)
    long_steps, later_steps = np.full(first, 1.0 / inverse_step), 2.0 / (contraction * offsets)
    step_sizes = np.concatenate([long_steps, np.minimum(later_steps, 1.0 / inverse_step)])
    return _schedule(contraction, step_sizes, np.concatenate([np.zeros(first), offsets]))


def constant_schedule(iterations: int, contraction: float, step_size: float) -> Schedule:
    """Return a schedule of T + 1 steps of the same size, with the weights (1 - a eta)^(T - t). If a eta >= 1, only the
    last point has a weight.

    >>> [round(weight, 10) for weight in constant_schedule(3, 0.5, 1 / 4.5).weights]
    [0.2077079108, 0.2336713996, 0.2628803245, 0.2957403651]
    """
    remaining = max(0.0, 1.0 - contraction * step_size)
    weights = np.power(remaining, np.arange(iterations, -1, -1, dtype=float))
    return _schedule(contraction, np.full(iterations + 1, step_size), weights)


def is_constant(iterations: int, contraction: float, inverse_step: float) -> bool:
    """Return whether the run is too short for decreasing steps, that is, T <= g/a."""
    return iterations <= inverse_step / contraction


def closed_form(
    iterations: int, contraction: float, inverse_step: float, start: float, noise: float, drift: float
) -> float:
    """Return the bound on (b/Z) sum zeta_t s_t with the proved constants. It is at least `Schedule.worst_case` of the
    schedule.
    """
    a, g, last = contraction, inverse_step, iterations
    if is_constant(last, a, g):
        return g * start * math.exp(-a * (last + 1) / g) + noise / g + drift
    return 2.0 * a * start * math.exp(-a * last / (2.0 * g)) + 10.0 * noise / (a * last) + 3.0 * drift


def _schedule(contraction: float, step_sizes: Vector, weights: Vector) -> Schedule:
    normalised = weights / math.fsum(weights.tolist())
    return Schedule(contraction, tuple(step_sizes.tolist()), tuple(normalised.tolist()))
