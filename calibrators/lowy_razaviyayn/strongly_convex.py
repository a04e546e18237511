r"""This module contains Proposition 32 for strongly convex and smooth F, with proved constants, and the preset of
Theorem 11.

F is $\mu$-strongly convex and $\beta$-smooth on W, whose diameter is D; $\kappa = \beta/\mu$. The records' gradients
have bounded moments, but their Lipschitz constants may be infinite. With B and $\Sigma^2$ of the mean oracle and
$g = \beta + \mu/2$, the schedule of `stich_schedule` at $a = \mu/2$ gives

$$\mathbb{E} F(\hat w_T) - F^* \le \begin{cases}
  \frac\mu2 D^2 e^{-\mu T/(4 g)} + \frac{20 \Sigma^2}{\mu T} + \frac{6 B^2}{\mu} & T > 2\kappa + 1, \\
  \frac12 \big[ g D^2 e^{-\mu (T+1)/(2 g)} + \frac{2 \Sigma^2}{g} + \frac{4 B^2}{\mu} \big] & T \le 2\kappa + 1.
\end{cases}$$

*Proof.* Write $w = w_t$, $w^+ = \Pi_W(w - \eta g_t)$, $g_t = \nabla F(w) + b + N$ with $\|b\| \le B$,
$\mathbb{E}[N] = 0$ and $\mathbb{E}\|N\|^2 \le \Sigma^2$ given the past, and $u = \arg\min_W F$. Smoothness at $w$,
strong convexity between $w$ and $u$, and the projection's inequality
$\langle g_t, w^+ - u\rangle \le \frac{1}{2\eta}(\|w - u\|^2 - \|w^+ - u\|^2 - \|w^+ - w\|^2)$ add up to

$$F(w^+) - F^* \le \tfrac{1}{2\eta}(\|w - u\|^2 - \|w^+ - u\|^2) - \tfrac\mu2 \|w - u\|^2
  - \tfrac12 (\tfrac1\eta - \beta) \|w^+ - w\|^2 - \langle b + N, w^+ - u \rangle .$$

Noise: let $\bar w = \Pi_W(w - \eta(\nabla F(w) + b))$, which does not depend on N; then
$-\mathbb{E}\langle N, w^+ - u\rangle = -\mathbb{E}\langle N, w^+ - \bar w\rangle \le \eta \Sigma^2$, as projections
do not expand. Bias: $-\langle b, w - u\rangle \le \frac\mu4 \|w - u\|^2 + B^2/\mu$ and
$-\langle b, w^+ - w\rangle \le \frac\mu4 \|w^+ - w\|^2 + B^2/\mu$, whose first term vanishes against
$\frac12(\frac1\eta - \beta)$ where $\eta \le 1/(\beta + \mu/2)$. Hence, with $r_t = \mathbb{E}\|w_t - u\|^2$ and
$s_t = \mathbb{E} F(w_{t+1}) - F^* \ge 0$,

$$r_{t+1} \le (1 - \tfrac\mu2 \eta_t) r_t - 2 \eta_t s_t + 2 \eta_t^2 \Sigma^2 + 4 \eta_t B^2 / \mu :$$

the recursion of `stich_schedule` with $a = \mu/2$, $b = 2$, $c = 2\Sigma^2$, $e = 4 B^2/\mu$, $g = \beta + \mu/2$, and
$F(\hat w_T) \le \sum_t \zeta_t F(w_{t+1})$ by convexity. $\square$

A penalty $\frac\lambda2 \|w\|^2$ whose gradient is added after clipping does not change this result: F includes the
penalty, $\beta$ and $\mu$ are the constants of loss plus penalty, and the moments are those of the gradients without
the penalty.

If records draw their batches, `mean_oracle` bounds the root mean square bias of each step and the variance. The proof
holds with these bounds in place of B and $\Sigma^2$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, errors_of_drawn_batches
from calibrators.lowy_razaviyayn.moments import LARGEST, Moments, trivial_excess_risk
from calibrators.lowy_razaviyayn.stich_schedule import Schedule, closed_form, constant_schedule, stich_schedule

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StronglyConvexProblem:
    """Constants of the objective.

    Attributes:
        smoothness: The smoothness beta of F, including a penalty.
        strong_convexity: The strong convexity mu of F, including a penalty; at most beta.
        diameter: The diameter D, of the domain.
        dimension: The dimension d.
        moments: The moments of the gradients, before clipping.
        penalty_strength: The strength lambda of the penalty, whose gradient is added without clipping. It is included
            in mu.
    """

    smoothness: float
    strong_convexity: float
    diameter: float
    dimension: int
    moments: Moments
    penalty_strength: float = 0.0

    @property
    def condition_number(self) -> float:
        """The condition number kappa = beta / mu."""
        return self.smoothness / self.strong_convexity

    @property
    def contraction(self) -> float:
        """The contraction a of the schedule: mu / 2."""
        return 0.5 * self.strong_convexity

    @property
    def inverse_step(self) -> float:
        """The number g = beta + mu/2 of the schedule. No step size may be above 1/g."""
        return self.smoothness + 0.5 * self.strong_convexity

    @property
    def trivial_excess_risk(self) -> float:
        """The bound on the excess risk that holds at every point of the domain."""
        lipschitz = self.moments.second + 0.5 * self.penalty_strength * self.diameter
        return trivial_excess_risk(lipschitz, self.diameter, self.strong_convexity)

    @property
    def least_moment_bound(self) -> float:
        """The smallest possible moment bound, (mu - lambda) D / 2, because gradients at opposite ends of the domain
        differ by at least (mu - lambda) D.
        """
        return 0.5 * (self.strong_convexity - self.penalty_strength) * self.diameter

    def schedule(self, iterations: int, step_size: float | None = None) -> Schedule:
        """Return T + 1 step sizes and weights. If the caller gives a step size, all steps have that size."""
        if step_size is None:
            return stich_schedule(iterations, self.contraction, self.inverse_step)
        return constant_schedule(iterations, self.contraction, step_size)

    def covers(self, step_size: float) -> bool:
        """Return whether the theorem holds at this step size, up to a few ulp."""
        return step_size * self.inverse_step <= 1.0 + 1e-12

    def closed_form(self, iterations: int, oracle: MeanOracle) -> float:
        """Return the bound of the module for T + 1 batches of fixed size, in loss units.

        >>> problem = StronglyConvexProblem(4.0, 1.0, 2.0, 10, Moments(3.0, 2.0))
        >>> oracle = MeanOracle(problem.clip_threshold(238, 20_000, 1.0), 83, 2.0, 10, problem.moments)
        >>> round(problem.closed_form(238, oracle), 10), round(problem.printed_bound(238, oracle), 10)
        (0.1137307122, 0.4031592356)
        """
        noise, drift = 2.0 * oracle.variance, 4.0 * oracle.bias**2 / self.strong_convexity
        return 0.5 * closed_form(iterations, self.contraction, self.inverse_step, self.diameter**2, noise, drift)

    def evaluated_bound(self, schedule: Schedule, oracle: MeanOracle) -> float:
        """Return the bound by (1) of `stich_schedule` and the oracle's sharp constants. It is at most the closed
        form.
        """
        drift = 4.0 * oracle.sharp_bias**2 / self.strong_convexity
        return 0.5 * schedule.worst_case(self.diameter**2, 2.0 * oracle.sharp_variance, drift)

    def evaluated_bound_of_drawn_batches(self, schedule: Schedule, oracle: MeanOracle, records: int) -> float:
        """Return `evaluated_bound` for n records that each draw their batch, with sums divided by the oracle's s."""
        bias, variance = errors_of_drawn_batches(oracle, len(schedule.step_sizes), records)
        return 0.5 * schedule.worst_case(self.diameter**2, 2.0 * variance, 4.0 * bias**2 / self.strong_convexity)

    def printed_bound(self, iterations: int, oracle: MeanOracle) -> float:
        """Return the printed bound of Proposition 32: 32 beta D^2 e^(-T/(4 kappa)) + 72 Sigma^2 / (mu T) + 2 B^2 /
        mu.
        """
        start = 32.0 * self.smoothness * self.diameter**2 * math.exp(-iterations / (4.0 * self.condition_number))
        mu = self.strong_convexity
        return start + 72.0 * oracle.variance / (mu * iterations) + 2.0 * oracle.bias**2 / mu

    def recommended_iterations(self, records: int, paper_epsilon: float) -> int:
        """Return T = max(1, ceil(4 (kappa + 1/2) ln X)), which is the T of Theorem 11 with the proved g.

        >>> problem = StronglyConvexProblem(4.0, 1.0, 2.0, 10, Moments(3.0, 2.0))
        >>> problem.recommended_iterations(20_000, 1.0), problem.printed_iterations(20_000, 1.0)
        (238, 212)
        """
        return self._iterations(self.condition_number + 0.5, records, paper_epsilon)

    def printed_iterations(self, records: int, paper_epsilon: float) -> int:
        """Return the printed T of Theorem 11: max(1, ceil(4 kappa ln X))."""
        return self._iterations(self.condition_number, records, paper_epsilon)

    def clip_threshold(self, iterations: int, records: int, paper_epsilon: float) -> float:
        """Return C = r_k (epsilon_p^2 n^2 / (d T))^(1/(2k)), at which noise and bias contribute about equally to the
        error.
        """
        signal = (paper_epsilon * records) ** 2 / (self.dimension * iterations)
        return min(LARGEST, self.moments.bound * math.pow(signal, 0.5 / self.moments.order))

    def rate(self, records: int, paper_epsilon: float) -> float:
        """Return the rate of Theorem 11 without its constant: (r_k^2 / mu) (1/n + (sqrt(d kappa ln n) / (epsilon_p
        n))^((2k-2)/k)).

        >>> problem = StronglyConvexProblem(4.0, 1.0, 2.0, 10, Moments(3.0, 2.0))
        >>> round(problem.rate(20_000, 1.0), 14)
        0.00059742217703
        """
        spread = math.sqrt(self.dimension * self.condition_number * math.log(records)) / (paper_epsilon * records)
        private = math.pow(spread, 2.0 - 2.0 / self.moments.order)
        return self.moments.bound**2 / self.strong_convexity * (1.0 / records + private)

    def is_well_conditioned(self, records: int) -> bool:
        """Return whether kappa <= n / ln n. The rate needs this condition."""
        return self.condition_number * math.log(records) <= records

    def _iterations(self, condition_number: float, records: int, paper_epsilon: float) -> int:
        k = self.moments.order
        curvature = self.strong_convexity * self.smoothness * (self.diameter / self.moments.bound) ** 2
        private = ((paper_epsilon * records) ** 2 / self.dimension) ** (1.0 - 1.0 / k)
        # X may underflow to 0. Only logarithms of X > 1 matter, because T is at least 1.
        return max(1, math.ceil(4.0 * condition_number * math.log(max(1.0, curvature * (records + private)))))
