r"""What a record costs whose gradient goes into an estimate that is carried on from step to step.

The estimate is $d_t = (1-\eta_t)(d_{t-1} + \Delta_t) + \eta_t g_t$ for $t = 1..T-1$, $d_0 = g_0$, where $\Delta_t$ and
$g_t$ are means over $m_t$ records that no other step reads: of gradients' changes, clipped to
$\min(2 L_0, L_1 \|x_t - x_{t-1}\|)$, and of gradients, clipped to $L_0$. A vertex is selected by $\langle v, d_t
\rangle$ at every t, and $\|x_t - x_{t-1}\| \le \eta_{t-1} M$.

Fix the selections so far. A record of step $\tau$ moves $d_\tau$ by at most $s w_\tau/M$, with

$$w_0 = \frac{M L_0}{m_0},\qquad
w_t = \frac{M}{m_t}\bigl((1-\eta_t) \min(2 L_0, L_1 \eta_{t-1} M) + \eta_t L_0\bigr),$$

s = 2 where it is replaced and s = 1 where it becomes the null record, and $d_t$ for $t > \tau$ by
$\prod_{\tau < r \le t} (1-\eta_r)$ times that, since everything else is as it was. So it moves the scores of the
selections from $\tau$ on by ranges that shrink geometrically. Costs along one record's selections add up adaptively,
and other steps' records change nothing: with $S_t = 1 + (1-\eta_{t+1})^2 S_{t+1}$ and $B_t = 1 + (1-\eta_{t+1})
B_{t+1}$, $S_{T-1} = B_{T-1} = 1$, Gumbel noise of scale $\lambda$ costs
$\rho = \max_t s^2 w_t^2 S_t/(8 \lambda^2)$, and $\epsilon = \max_t s w_t B_t/\lambda$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibrators.bassily_guzman.tree import Problem


@dataclass(frozen=True, slots=True)
class Recursion:
    r"""Steps of one size, batches of one size after the first.

    Attributes:
        selections: T.
        first_batch: n_0.
        batch: m of the other steps.
        step_size: $\eta$ in (0, 1].
    """

    selections: int
    first_batch: int
    batch: int
    step_size: float

    @property
    def records(self) -> int:
        """Records that are read, each once."""
        return self.first_batch + (self.selections - 1) * self.batch

    @property
    def gradient_evaluations(self) -> int:
        r"""$n_0 + 2 (T-1) m$: a change takes two gradients.

        >>> Recursion(5001, 5000, 1, 0.001).gradient_evaluations
        15000
        """
        return self.first_batch + 2 * (self.selections - 1) * self.batch

    def change_bound(self, problem: Problem) -> float:
        r"""$\min(2 L_0, L_1 \eta M)$: how much a record's gradient changes from one point to the next."""
        return min(2.0 * problem.lipschitz, problem.smoothness * self.step_size * problem.diameter)

    def increment_bound(self, problem: Problem) -> float:
        r"""$(1-\eta) \min(2 L_0, L_1 \eta M) + \eta L_0$: what a record brings to the mean of a step but the first."""
        return (1.0 - self.step_size) * self.change_bound(problem) + self.step_size * problem.lipschitz

    def ranges(self, problem: Problem) -> tuple[float, float]:
        """w of the first step's records and of those of every other one."""
        first = problem.diameter * problem.lipschitz / self.first_batch
        return first, problem.diameter * self.increment_bound(problem) / self.batch

    def zcdp_width(self, problem: Problem) -> float:
        r"""$\max_t w_t \sqrt{S_t}$; records of the first two steps take part in most selections.

        >>> round(Recursion(5001, 5000, 1, 0.000768316074617).zcdp_width(Problem(2.0, 1.0, 2.0)), 9)
        0.156733483
        """
        first, other = self.ranges(problem)
        square = (1.0 - self.step_size) ** 2
        found = first * math.sqrt(geometric_sum(square, self.selections))
        return max(found, other * math.sqrt(geometric_sum(square, self.selections - 1)))

    def pure_width(self, problem: Problem) -> float:
        r"""$\max_t w_t B_t$."""
        first, other = self.ranges(problem)
        ratio = 1.0 - self.step_size
        return max(first * geometric_sum(ratio, self.selections), other * geometric_sum(ratio, self.selections - 1))


def geometric_sum(ratio: float, count: int) -> float:
    r"""$\sum_{k < n} r^k$ for r in [0, 1), also where r is nearly 1.

    >>> geometric_sum(0.5, 3), geometric_sum(0.0, 4), geometric_sum(0.9, 0)
    (1.75, 1.0, 0.0)
    """
    if ratio == 0.0 or count == 0:
        return float(min(count, 1))
    return math.expm1(count * math.log(ratio)) / (ratio - 1.0)


def participations(step_sizes: Sequence[float]) -> tuple[list[float], list[float]]:
    r"""$S_t$ and $B_t$ of a record that is read at t, for steps of any sizes $\eta_0..\eta_{T-1}$.

    >>> [round(number, 12) for number in participations([1.0, 0.5, 0.5])[0]]
    [1.3125, 1.25, 1.0]
    """
    squares, sums = [1.0], [1.0]
    for eta in reversed(step_sizes[1:]):
        squares.append(1.0 + (1.0 - eta) ** 2 * squares[-1])
        sums.append(1.0 + (1.0 - eta) * sums[-1])
    return squares[::-1], sums[::-1]
