r"""This module contains Proposition 30 for convex and smooth F, with proved constants, and the preset of Theorem 9.

F is convex and $\beta$-smooth on W, whose diameter is D. The records' gradients have bounded moments, but their
Lipschitz constants may be infinite. The accelerated steps are $w_0^{ag} = w_0$, $\alpha_t = \frac{2}{t+1}$,
$\eta_t = \frac{4\eta}{t(t+1)}$ and, for $t = 1..T$,

$$w_t^{md} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_{t-1}, \qquad
  w_t = \Pi_W\big(w_{t-1} - \tfrac{t}{2\eta} g_t\big), \qquad
  w_t^{ag} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_t,$$

with $g_t = \nabla F(w_t^{md}) + b_t + N_t$, where given the past $b_t$ is fixed, $\mathbb{E}[N_t] = 0$ and
$\mathbb{E}\|N_t\|^2 \le \Sigma^2$. With $B_t^2 \ge \mathbb{E}\|b_t\|^2$ and $\eta > \beta T/(T+1)$,

$$\mathbb{E} F(w_T^{ag}) - F^* \le \frac{2}{T(T+1)} \Big( \eta D^2
  + \sum_{t=1}^T \frac{t^2 (t+1) (\Sigma^2 + B_t^2)}{4 (\eta (t+1) - \beta t)} + D \sum_{t=1}^T t B_t \Big). \tag{1}$$

*Proof.* Let $u = \arg\min_W F$. As $w_t^{ag} - w_t^{md} = \alpha_t (w_t - w_{t-1})$, smoothness at $w_t^{md}$ and
convexity between it, $w_{t-1}^{ag}$ and u give

$$F(w_t^{ag}) \le (1 - \alpha_t) F(w_{t-1}^{ag}) + \alpha_t F(u) + \alpha_t \langle \nabla F(w_t^{md}), w_t - u \rangle
  + \tfrac{\beta \alpha_t^2}{2} \|w_t - w_{t-1}\|^2 .$$

The projection satisfies $\alpha_t \langle g_t, w_t - u\rangle \le \frac{\eta_t}{2} (\|w_{t-1} - u\|^2 - \|w_t - u\|^2 -
\|w_t - w_{t-1}\|^2)$. The remaining terms are $-\alpha_t \langle b_t + N_t, w_{t-1} - u \rangle$, whose mean is at most
$\alpha_t B_t D$ since $w_{t-1}$ is known before $N_t$, and $-\alpha_t \langle b_t + N_t, w_t - w_{t-1} \rangle$, which
with $-\frac12 (\eta_t - \beta\alpha_t^2) \|w_t - w_{t-1}\|^2$ is at most $\alpha_t^2 \|b_t + N_t\|^2 / (2 (\eta_t -
\beta \alpha_t^2))$. Divide by $\Gamma_t = \frac{2}{t(t+1)}$, for which $\Gamma_t = (1 - \alpha_t) \Gamma_{t-1}$ and
$\eta_t / \Gamma_t = 2\eta$, and add. $\square$

If $\eta \ge 2\beta$ and $B_t = B$, then $\eta(t+1) - \beta t \ge \eta (t + 1)/2$, and (1) is at most

$$\frac{2\eta D^2}{T(T+1)} + \frac{(2T+1)(\Sigma^2 + B^2)}{6\eta} + B D. \tag{2}$$

The recommended $\eta = \max\{2\beta, \sqrt{(2T+1)T(T+1)/12}\, \sqrt{\Sigma^2 + B^2}/D\}$ minimises (2). The paper
prints $4 \eta D^2/(T(T+1)) + 4 (T+2) (\Sigma^2 + B^2)/(3\eta) + B D$, which is larger, at $\eta = \max\{2\beta, T^{3/2}
\sqrt{\Sigma^2 + B^2}/D\}$.

A penalty $\frac\lambda2 \|w\|^2$ whose gradient is added after clipping does not change this result: F includes the
penalty, and the moments are those of the gradients without the penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, Vector
from calibrators.lowy_razaviyayn.moments import LARGEST, Moments, trivial_excess_risk


@dataclass(frozen=True, slots=True)
class ConvexSmoothProblem:
    """The constants of a convex and smooth objective.

    Attributes:
        smoothness: The smoothness beta of F, including a penalty; it may be 0.
        diameter: The diameter D, of the domain.
        dimension: The dimension d.
        moments: The moments of the gradients, before clipping.
        penalty_strength: The strength lambda of the penalty, whose gradient is added without clipping. It is included
            in beta.
    """

    smoothness: float
    diameter: float
    dimension: int
    moments: Moments
    penalty_strength: float = 0.0

    @property
    def trivial_excess_risk(self) -> float:
        """The bound on the excess risk that holds at every point of the domain."""
        lipschitz = self.moments.second + 0.5 * self.penalty_strength * self.diameter
        return trivial_excess_risk(lipschitz, self.diameter)

    def covers(self, step_size: float) -> bool:
        """Return whether (1) holds for step sizes t times ``step_size``. With eta = 1 / (2 ``step_size``), it needs eta
        >= beta, up to a few ulp.
        """
        return 2.0 * step_size * self.smoothness <= 1.0 + 1e-12

    def covers_closed_form(self, step_size: float) -> bool:
        """Return whether (2) holds for this step size. It needs eta >= 2 beta, up to a few ulp."""
        return 4.0 * step_size * self.smoothness <= 1.0 + 1e-12

    def inverse_step(self, iterations: int, oracle: MeanOracle) -> float:
        """Return the eta that minimises (2), in loss units / parameter units^2.

        >>> problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0))
        >>> oracle = MeanOracle(problem.clip_threshold(5, 10_000, 1.0), 2000, 2.0, 20, problem.moments)
        >>> problem.inverse_step(5, oracle), round(problem.printed_inverse_step(5, oracle), 9)
        (2.0, 2.459039447)
        """
        last = float(iterations)
        return self._inverse_step(math.sqrt((2.0 * last + 1.0) * last * (last + 1.0) / 12.0), oracle)

    def printed_inverse_step(self, iterations: int, oracle: MeanOracle) -> float:
        """Return the eta from the proof of Theorem 9."""
        return self._inverse_step(iterations**1.5, oracle)

    def evaluated_bound(self, inverse_step: float, bias: Vector, variance: float) -> float:
        """Return the bound (1) of the module, in loss units.

        Args:
            inverse_step: The inverse step eta, larger than beta T / (T + 1).
            bias: The bias B_1 .. B_T, in gradient units.
            variance: The variance Sigma^2, in squared gradient units.
        """
        t = np.arange(1.0, bias.size + 1.0)
        spread = t**2 * (t + 1.0) * (variance + bias**2) / (4.0 * (inverse_step * (t + 1.0) - self.smoothness * t))
        total = inverse_step * self.diameter**2 + math.fsum(spread.tolist())
        total += self.diameter * math.fsum((t * bias).tolist())
        return 2.0 * total / (bias.size * (bias.size + 1.0))

    def closed_form(self, iterations: int, inverse_step: float, bias: float, variance: float) -> float:
        """Return the bound (2) of the module, in loss units.

        >>> problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0))
        >>> oracle = MeanOracle(problem.clip_threshold(5, 10_000, 1.0), 2000, 2.0, 20, problem.moments)
        >>> round(problem.closed_form(5, 2.0, oracle.bias, oracle.variance), 10)
        0.9004449929
        """
        last, width = float(iterations), self.diameter
        error = variance + bias**2
        start = 2.0 * inverse_step * width**2 / (last * (last + 1.0))
        return start + (2.0 * last + 1.0) * error / (6.0 * inverse_step) + bias * width

    def printed_bound(self, iterations: int, inverse_step: float, oracle: MeanOracle) -> float:
        """Return the printed bound of Proposition 30: 4 eta D^2 / (T (T+1)) + 4 (T+2) (Sigma^2 + B^2) / (3 eta) + B
        D.
        """
        last, width = float(iterations), self.diameter
        error = oracle.variance + oracle.bias**2
        start = 4.0 * inverse_step * width**2 / (last * (last + 1.0))
        return start + 4.0 * (last + 2.0) * error / (3.0 * inverse_step) + oracle.bias * width

    def recommended_iterations(self, records: int, paper_epsilon: float) -> int:
        """Return T = max(1, ceil(min{x^(2k/(5k-1)) (epsilon_p n / sqrt(d))^((2k-2)/(5k-1)), sqrt(x) n^(1/4)})). Here x
        = beta D / r_k.

        >>> ConvexSmoothProblem(2.0, 1.0, 50, Moments(4.0, 2.0)).recommended_iterations(100_000, 0.2**0.5)
        16
        """
        return max(1, math.ceil(min(self.iterations_by_terms(records, paper_epsilon))))

    def iterations_by_terms(self, records: int, paper_epsilon: float) -> tuple[float, float]:
        """Return the two numbers of which T is the smaller. The first balances beta D^2/T^2 with the errors from
        privacy and bias, the second with the sampling error.
        """
        k, curvature = self.moments.order, self._curvature
        signal = paper_epsilon * records / math.sqrt(self.dimension)
        private = math.pow(curvature, 2.0 * k / (5.0 * k - 1.0)) * math.pow(signal, (2.0 * k - 2.0) / (5.0 * k - 1.0))
        return private, math.sqrt(curvature) * math.pow(records, 0.25)

    def clip_threshold(self, iterations: int, records: int, paper_epsilon: float) -> float:
        """Return C = r_k (epsilon_p n / sqrt(d T))^(1/k), at which noise and bias contribute about equally to the
        error, in gradient units.
        """
        signal = paper_epsilon * records / math.sqrt(self.dimension * iterations)
        return min(LARGEST, self.moments.bound * math.pow(signal, 1.0 / self.moments.order))

    def rate(self, records: int, paper_epsilon: float) -> float:
        """Return the rate of Theorem 9 without its constant: r_k D (n^(-1/2) + max{(x^(1/4) a)^(4(k-1)/(5k-1)),
        a^((k-1)/k)}) with a = sqrt(d) / (epsilon_p n).

        >>> round(ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0)).rate(10_000, 1.0), 10)
        0.2461767968
        """
        k = self.moments.order
        a = math.sqrt(self.dimension) / (paper_epsilon * records)
        curved = math.pow(math.pow(self._curvature, 0.25) * a, 4.0 * (k - 1.0) / (5.0 * k - 1.0))
        private = max(curved, math.pow(a, 1.0 - 1.0 / k))
        return self.moments.bound * self.diameter * (1.0 / math.sqrt(records) + private)

    @property
    def _curvature(self) -> float:
        """The number x = beta D / r_k, which has no unit."""
        return self.smoothness * self.diameter / self.moments.bound

    def _inverse_step(self, factor: float, oracle: MeanOracle) -> float:
        return max(2.0 * self.smoothness, factor * math.hypot(math.sqrt(oracle.variance), oracle.bias) / self.diameter)
