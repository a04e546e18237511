r"""This module bounds the cost of a record whose gradient enters an estimate that later steps update and reuse.

The estimate is $d_t = (1-\eta_t)(d_{t-1} + \Delta_t) + \eta_t g_t$ for $t = 1..T-1$, $d_0 = g_0$, where $\Delta_t$ and
$g_t$ are means over $m_t$ records that no other step reads. $\Delta_t$ averages changes of gradients, clipped to
$\min(2 L_0, L_1 \|x_t - x_{t-1}\|)$. $g_t$ averages gradients, clipped to $L_0$. Every step selects a vertex v by the
scores $\langle v, d_t \rangle$, and $\|x_t - x_{t-1}\| \le \eta_{t-1} M$.

Fix the selections so far. A record of step $\tau$ moves $d_\tau$ by at most $s w_\tau/M$, with

$$w_0 = \frac{M L_0}{m_0},\qquad
w_t = \frac{M}{m_t}\bigl((1-\eta_t) \min(2 L_0, L_1 \eta_{t-1} M) + \eta_t L_0\bigr),$$

where s = 2 if the record is replaced and s = 1 if it becomes the null record. It moves $d_t$ for $t > \tau$ by
$\prod_{\tau < r \le t} (1-\eta_r)$ times as much, because everything else stays the same. So the record changes the
scores of the selections from $\tau$ on within ranges that shrink geometrically. The costs of the selections that a
record influences add up adaptively, and records of other steps change nothing. With $S_t = 1 + (1-\eta_{t+1})^2
S_{t+1}$ and $B_t = 1 + (1-\eta_{t+1}) B_{t+1}$, $S_{T-1} = B_{T-1} = 1$, Gumbel noise of scale $\lambda$ costs $\rho =
\max_t s^2 w_t^2 S_t/(8 \lambda^2)$, and $\epsilon = \max_t s w_t B_t/\lambda$.

**Utility** of Frank-Wolfe steps by these estimates, at one step size $\eta$.

The errors of $d_t$ are martingale sums, and regularity of the dual norm gives $E\|d_t - \nabla F(x_t)\|_*^2 \le r_t$
with $r_0 = 4\kappa L_0^2/n_0$ and $r_t = (1-\eta)^2 r_{t-1} + 4 \kappa c^2/m$, $c = (1-\eta) \min(2 L_0, L_1 \eta M) +
\eta L_0$: the factor 4 is there because centring can double the length of a vector. A step satisfies

$$F(x_{t+1}) \le F(x_t) + \eta \langle \nabla F(x_t), v_t - x_t \rangle + \tfrac12 L_1 M^2 \eta^2,\qquad
\langle \nabla F, v_t - x_t \rangle \le M \|d_t - \nabla F\|_* + \lambda \ln K + \min_v \langle \nabla F, v - x_t
\rangle$$

on average, where $\lambda \ln K$ is the selection's regret. For convex losses, the minimum is at most $-(F(x_t) - \min
F)$, so $\Gamma_{t+1} = (1-\eta)\Gamma_t + \eta(M\sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2\eta^2$. For all smooth
losses, the minimum is minus the gap $\max_y \langle \nabla F, x_t - y\rangle$. By summation over t, the mean gap of a
point drawn uniformly from $x_0..x_{T-1}$ is at most
$\Gamma_0/(\eta T) + \tfrac1T \sum_t (M \sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2 \eta$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.bassily_guzman.selection import expected_regret
from calibrators.bassily_guzman.tree import Problem


@dataclass(frozen=True, slots=True)
class Recursion:
    r"""The sizes of a run: all steps have the same size, and all batches after the first have the same size.

    Attributes:
        selections: The number T of selections.
        first_batch: The size n_0 of the first batch.
        batch: The batch size m of the other steps.
        step_size: The step size $\eta$ in (0, 1].
    """

    selections: int
    first_batch: int
    batch: int
    step_size: float

    @property
    def records(self) -> int:
        """The number of records that are read. Each is read once."""
        return self.first_batch + (self.selections - 1) * self.batch

    @property
    def gradient_evaluations(self) -> int:
        r"""The number of gradients, $n_0 + 2 (T-1) m$; a change takes two gradients.

        >>> Recursion(5001, 5000, 1, 0.001).gradient_evaluations
        15000
        """
        return self.first_batch + 2 * (self.selections - 1) * self.batch

    def change_bound(self, problem: Problem) -> float:
        r"""Return $\min(2 L_0, L_1 \eta M)$, a bound on the change of a record's gradient from one point to the
        next."""
        return min(2.0 * problem.lipschitz, problem.smoothness * self.step_size * problem.diameter)

    def increment_bound(self, problem: Problem) -> float:
        r"""Return $(1-\eta) \min(2 L_0, L_1 \eta M) + \eta L_0$, a record's contribution to the mean of any step after
        the first.
        """
        return (1.0 - self.step_size) * self.change_bound(problem) + self.step_size * problem.lipschitz

    def ranges(self, problem: Problem) -> tuple[float, float]:
        """Return the range w_0 for records of the first step, and the range w_t for all other records. The module's
        docstring defines them.
        """
        first = problem.diameter * problem.lipschitz / self.first_batch
        return first, problem.diameter * self.increment_bound(problem) / self.batch

    def zcdp_width(self, problem: Problem) -> float:
        r"""Return $\max_t w_t \sqrt{S_t}$. Only the first two steps are compared, because their records influence the
        most selections.

        >>> round(Recursion(5001, 5000, 1, 0.000768316074617).zcdp_width(Problem(2.0, 1.0, 2.0)), 9)
        0.156733483
        """
        first, other = self.ranges(problem)
        square = (1.0 - self.step_size) ** 2
        found = first * math.sqrt(geometric_sum(square, self.selections))
        return max(found, other * math.sqrt(geometric_sum(square, self.selections - 1)))

    def pure_width(self, problem: Problem) -> float:
        r"""Return $\max_t w_t B_t$, which is lambda times epsilon if one record becomes null."""
        first, other = self.ranges(problem)
        ratio = 1.0 - self.step_size
        return max(first * geometric_sum(ratio, self.selections), other * geometric_sum(ratio, self.selections - 1))


def geometric_sum(ratio: float, count: int) -> float:
    r"""Return $\sum_{k < n} r^k$ for r in [0, 1). The result is accurate also if r is nearly 1.

    >>> geometric_sum(0.5, 3), geometric_sum(0.0, 4), geometric_sum(0.9, 0)
    (1.75, 1.0, 0.0)
    """
    if ratio == 0.0 or count == 0:
        return float(min(count, 1))
    return math.expm1(count * math.log(ratio)) / (ratio - 1.0)


def participations(step_sizes: Sequence[float]) -> tuple[list[float], list[float]]:
    r"""Return $S_t$ and $B_t$ of a record that is read at t, for steps of any sizes $\eta_0..\eta_{T-1}$.

    >>> [round(number, 12) for number in participations([1.0, 0.5, 0.5])[0]]
    [1.3125, 1.25, 1.0]
    """
    squares, sums = [1.0], [1.0]
    for eta in reversed(step_sizes[1:]):
        squares.append(1.0 + (1.0 - eta) ** 2 * squares[-1])
        sums.append(1.0 + (1.0 - eta) * sums[-1])
    return squares[::-1], sums[::-1]


def squared_errors(problem: Problem, recursion: Recursion, kappa: float) -> npt.NDArray[np.float64]:
    """Return the bounds r_t on the expected squared dual norm of the estimates' errors, shape (T,)."""
    fresh = 4.0 * kappa * recursion.increment_bound(problem) ** 2 / recursion.batch
    square = (1.0 - recursion.step_size) ** 2
    left = square ** np.arange(recursion.selections, dtype=np.float64)
    found: npt.NDArray[np.float64] = 4.0 * kappa * problem.lipschitz**2 / recursion.first_batch * left
    return found + fresh * (1.0 - left) / (1.0 - square)


def excess_risk_bound(
    problem: Problem, recursion: Recursion, noise_scale: float, *, num_vertices: int, kappa: float, initial_gap: float
) -> float:
    r"""Return the excess risk bound $\Gamma_T$ after the last step, in loss units, for convex losses.

    Args:
        problem: The constants L_0, L_1 and M.
        recursion: The sizes of the steps.
        noise_scale: The scale of the Gumbel noise.
        num_vertices: The number K of vertices.
        kappa: The regularity constant of the dual norm (`regularity.kappa_pair`).
        initial_gap: The bound $\Gamma_0 \ge F(x_0) - \min F$.

    Source: derived in the docstring of this module.
    """
    eta, steps = recursion.step_size, recursion.selections
    kept = (1.0 - eta) ** np.arange(steps - 1, -1, -1, dtype=np.float64)
    errors = problem.diameter * float(np.sum(kept * np.sqrt(squared_errors(problem, recursion, kappa))))
    each = expected_regret(noise_scale, num_vertices) + 0.5 * problem.smoothness * problem.diameter**2 * eta
    return (1.0 - eta) ** steps * initial_gap + eta * (errors + each * geometric_sum(1.0 - eta, steps))


def mean_gap_bound(
    problem: Problem, recursion: Recursion, noise_scale: float, *, num_vertices: int, kappa: float, initial_gap: float
) -> float:
    """Return the bound on the mean gap of the starting point of a random step, in loss units. Losses need not be
    convex.

    Args, Source: As `excess_risk_bound`.
    """
    eta, steps = recursion.step_size, recursion.selections
    errors = problem.diameter * float(np.mean(np.sqrt(squared_errors(problem, recursion, kappa))))
    each = expected_regret(noise_scale, num_vertices) + 0.5 * problem.smoothness * problem.diameter**2 * eta
    return initial_gap / (eta * steps) + errors + each
