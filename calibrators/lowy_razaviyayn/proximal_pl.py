r"""This module contains Proposition 46 for composite F under the proximal Polyak-Lojasiewicz inequality, with proved
constants, and the preset of Theorem 20.

$F = F^0 + f^1$: $F^0$ is $\beta$-smooth and need not be convex, $f^1$ is proper, closed and convex (a penalty, the
indicator of a domain, both). **Definition 19.** F is $\mu$-proximal-PL if for every w

$$\mu (F(w) - F^*) \le D_\beta(w), \qquad D_m(w) = -m \min_y \Big\{ \langle \nabla F^0(w), y - w\rangle
  + \tfrac m2 \|y - w\|^2 + f^1(y) - f^1(w) \Big\},$$

which implies $\mu \le \beta$, since by smoothness $D_\beta(w) \le \beta (F(w) - F^*)$. Steps
$w_{t+1} = \mathrm{prox}_{\eta f^1}(w_t - \eta g_t)$ with $\eta \le 1/\beta$ and $g_t = \nabla F^0(w_t) + b_t + N_t$,
where given the past $b_t$ is fixed, $\mathbb{E}[N_t] = 0$ and $\mathbb{E}\|N_t\|^2 \le \Sigma^2$, have with
$B_t^2 \ge \mathbb{E}\|b_t\|^2$ and $F(w_0) - F^* \le \Delta$

$$\mathbb{E} F(w_T) - F^* \le (1 - \mu\eta)^T \Delta
  + \tfrac\eta2 \sum_{t=0}^{T-1} (1 - \mu\eta)^{T-1-t} (\Sigma^2 + B_t^2) \tag{1}$$

and so at most $(1 - \mu\eta)^T \Delta + (\Sigma^2 + B^2)/(2\mu)$ (2) where $B_t = B$.

*Proof.* Let $m = 1/\eta \ge \beta$ and let H(y) be the braces above. By smoothness
$F(w_{t+1}) \le F(w_t) + H(w_{t+1})$. The point $w_{t+1}$ minimises $H + \langle b_t + N_t, \cdot \rangle$, which is
m-strongly convex, so with $y^* = \arg\min H$

$$H(w_{t+1}) \le H(y^*) + \langle b_t + N_t, y^* - w_{t+1} \rangle - \tfrac m2 \|y^* - w_{t+1}\|^2
  \le \min H + \tfrac{1}{2m} \|b_t + N_t\|^2 .$$

$D_m$ does not decrease in m (Karimi, Nutini & Schmidt 2016, Lemma 1), so $\min H \le -\frac\mu m (F(w_t) - F^*)$.
Subtract $F^*$, take expectations, and add up. $\square$

The paper prints $(1 - \frac{\mu}{2\beta})^T \Delta + 4 (\Sigma^2 + B^2)/\mu$ at its $\eta = \frac{1}{2\beta}$; an
equation of its proof is not justified, but the result follows from (2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, Vector
from calibrators.lowy_razaviyayn.moments import LARGEST, Moments


@dataclass(frozen=True, slots=True)
class ProximalPlProblem:
    """Constants of the objective.

    Attributes:
        smoothness: The smoothness beta of F^0.
        pl_constant: The constant mu of F = F^0 + f^1, at most beta.
        initial_gap: A bound Delta >= F(w_0) - F^*.
        dimension: The dimension d.
        moments: The moments of the gradients of f^0, which are clipped.
    """

    smoothness: float
    pl_constant: float
    initial_gap: float
    dimension: int
    moments: Moments

    @property
    def condition_number(self) -> float:
        """The condition number kappa = beta / mu."""
        return self.smoothness / self.pl_constant

    @property
    def step_size(self) -> float:
        """The paper's step size 1 / (2 beta), in parameter units^2 / loss units."""
        return 0.5 / self.smoothness

    @property
    def trivial_excess_risk(self) -> float:
        """The bound on the excess risk of the starting point, which holds before any step."""
        return self.initial_gap

    def covers(self, step_size: float) -> bool:
        """Return whether (1) holds for this step size, which must be at most 1 / beta, up to a few ulp."""
        return step_size * self.smoothness <= 1.0 + 1e-12

    def evaluated_bound(self, step_size: float, bias: Vector, variance: float) -> float:
        """Return the bound (1) of the module, in loss units.

        Args:
            step_size: The step size eta, in parameter units^2 / loss units.
            bias: The bounds B_0 .. B_{T-1} on the bias, in gradient units.
            variance: The variance Sigma^2, in squared gradient units.
        """
        remaining = self._remaining(step_size)
        shares = np.power(remaining, np.arange(bias.size - 1, -1, -1, dtype=float))
        errors = math.fsum((shares * (variance + bias**2)).tolist())
        return math.pow(remaining, bias.size) * self.initial_gap + 0.5 * step_size * errors

    def closed_form(self, iterations: int, step_size: float, oracle: MeanOracle) -> float:
        """Return the bound (2) of the module, in loss units.

        >>> problem = ProximalPlProblem(4.0, 1.0, 8.0, 10, Moments(3.0, 2.0))
        >>> oracle = MeanOracle(problem.clip_threshold(94, 50_000, 1.0), 531, 2.0, 10, problem.moments)
        >>> round(problem.closed_form(94, 0.125, oracle), 11), round(problem.closed_form(94, 0.25, oracle), 11)
        (0.01297888721, 0.01295058328)
        """
        start = math.pow(self._remaining(step_size), iterations) * self.initial_gap
        return start + (oracle.bias**2 + oracle.variance) / (2.0 * self.pl_constant)

    def printed_bound(self, iterations: int, oracle: MeanOracle) -> float:
        """Return the printed bound of Proposition 46: (1 - mu / (2 beta))^T Delta + 4 (B^2 + Sigma^2) / mu."""
        start = math.pow(self._remaining(self.step_size), iterations) * self.initial_gap
        return start + 4.0 * (oracle.bias**2 + oracle.variance) / self.pl_constant

    def recommended_iterations(self, records: int, paper_epsilon: float) -> int:
        """Return T = 2 ceil(kappa ln max(e, Delta mu n / r_k^2)). This is the T of Theorem 20, with r_k^2 / n in place
        of the term that depends on T.

        >>> ProximalPlProblem(4.0, 1.0, 8.0, 10, Moments(3.0, 2.0)).recommended_iterations(50_000, 1.0)
        94
        """
        signal = self.initial_gap / self.moments.bound * self.pl_constant / self.moments.bound * records
        return 2 * math.ceil(self.condition_number * math.log(max(math.e, signal)))

    def clip_threshold(self, iterations: int, records: int, paper_epsilon: float) -> float:
        """Return C = r_k (epsilon_p^2 n^2 / (d T^2))^(1/(2k)), at which noise and bias contribute about equally to the
        error, in gradient units.
        """
        signal = paper_epsilon * records / (math.sqrt(self.dimension) * iterations)
        return min(LARGEST, self.moments.bound * math.pow(signal, 1.0 / self.moments.order))

    def rate(self, records: int, paper_epsilon: float) -> float:
        """Return the rate of Theorem 20 without its constant: (r_k^2 / mu) ((sqrt(d) kappa ln n / (epsilon_p
        n))^((2k-2)/k) + kappa ln n / n).

        >>> round(ProximalPlProblem(4.0, 1.0, 8.0, 10, Moments(3.0, 2.0)).rate(50_000, 1.0), 11)
        0.00499390236
        """
        share = self.condition_number * math.log(records) / records
        private = math.pow(share * math.sqrt(self.dimension) / paper_epsilon, 2.0 - 2.0 / self.moments.order)
        return self.moments.bound**2 / self.pl_constant * (private + share)

    def is_well_conditioned(self, records: int) -> bool:
        """Return whether kappa <= n / ln n. The rate needs this condition."""
        return self.condition_number * math.log(records) <= records

    def _remaining(self, step_size: float) -> float:
        """Return 1 - mu eta, the share of the gap that is left after a step without error."""
        return max(0.0, 1.0 - self.pl_constant * step_size)
