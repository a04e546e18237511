r"""This module contains the number of steps, the step size and the rate of Theorem 12, and the optimisation error with
the constants of the proof.

**Steps.** $T = \lceil n^{(2-\alpha)/(1+\alpha)} \rceil$ for $\alpha < 1/2$, else $n$. **Step size.** With

$$A = \max\left(\sqrt{\frac{\ln n\,\ln(n/\gamma)\,\ln(1/\gamma)}{n}},\;
\frac{\sqrt{d \ln(1/\delta)}\,(\ln(1/\gamma))^{1/4}}{n\varepsilon}\right)$$

the proof balances $\frac{1}{T\eta}$ against $T \eta A^2$, hence $\eta = 1/(T A)$; the printed $\eta = A/T$ makes the
first term $1/A > 1$. The orders in the theorem hide constants of the problem. Here $\eta = 1/(c\,T A)$, and the rate is
$c\,\|w_*\|^2 [\ldots]$ with the same $c$ in units of loss / parameter$^2$. By default $c = 1$.

**Optimisation error** (any $\eta > 0$, noise of standard deviation $\sigma$ per coordinate on the mean gradient $g_t$
of a batch). Projection onto $W \ni w_*$ does not lengthen distances to $w_*$, so with noise $b_t$

$$\|w_{t+1} - w_*\|^2 \le \|w_t - w_*\|^2 - 2\eta\langle g_t + b_t, w_t - w_*\rangle + \eta^2 \|g_t + b_t\|^2 .$$

Convexity, the sum over $t$ and Jensen's inequality for the average $\bar w$ give, *in expectation*, for every fixed
data set and every $w_* \in W$,
$$\mathbb{E}\,[R_S(\bar w) - R_S(w_*)] \le \frac{\|w_*\|^2}{2 T \eta} + \frac{\eta}{2}\,(V + d \sigma^2),\qquad
V = \sup \mathbb{E}\,\|g_t\|^2 ,$$
since $\mathbb{E}\,[g_t \mid w_t] \in \partial R_S(w_t)$ and $b_t$ has mean zero given the past. $V = G^2$ for a batch
of fixed size; a Poisson batch whose sum is divided by $b$ has $V = G^2 (1 + (1 - p)/b)$, $p = b/n$. The right-hand side
is least at $\eta = \|w_*\| / \sqrt{T (V + d\sigma^2)}$, where it is $\|w_*\| \sqrt{(V + d \sigma^2)/T}$.

*With probability* $1 - \gamma/3$, $\gamma > 18 e^{-Td/8}$, with $A_R = M_0 + G R$ above every loss on $W$ and
$A_* = M_0 + \min(M \|w_*\| + L \|w_*\|^{1+\alpha}, G \|w_*\|)$ above every loss at $w_*$:
$$R_S(\bar w) - R_S(w_*) \le A_R \sqrt{\tfrac{2 \ln(9/\gamma)}{T}} + A_* \sqrt{\tfrac{\ln(9/\gamma)}{2T}}
 + \tfrac{\|w_*\|^2}{2 T \eta} + \tfrac{\eta G^2}{2}
 + \sigma (\|w_*\| + R + \eta G) \sqrt{\tfrac{2 \ln(18/\gamma)}{T}}
 + \tfrac{\eta d \sigma^2}{2} \Big(1 + \sqrt{\tfrac{8 \ln(18/\gamma)}{T d}}\Big).$$
The first term is Azuma's inequality for $\ell(w_t; z_{i_t}) - R_S(w_t)$ (probability $\gamma/9$), and the second is
Hoeffding's inequality for $\ell(w_*; z_{i_t})$ ($\gamma/9$). The number $\langle b_t, \eta g_t - (w_t - w_*)\rangle$ is
Gaussian given the past, with a standard deviation of at most $\sigma(\eta G + R + \|w_*\|)$ ($\gamma/18$). The sum
$\sum_t \|b_t\|^2/\sigma^2$ is chi-squared with $Td$ degrees of freedom ($\gamma/18$). A mean over a batch of fixed size
lies in the same ranges. For full batches the first two terms vanish, because $g_t$ is then a subgradient of $R_S$
itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.wang_nonsmooth.holder import PAPER

STEPS_SOURCE = f"{PAPER}, Theorem 12"
STEPS_FORMULA = r"T = \lceil n^{(2-\alpha)/(1+\alpha)} \rceil \text{ for } \alpha < 1/2, \text{ else } n"
STEP_SIZE_SOURCE = f"{PAPER}, Theorem 12 (corrected: the paper prints A/T)"
STEP_SIZE_FORMULA = (
    r"\eta = \frac{1}{c\,T A},\; A = \max\left(\sqrt{\ln n \ln(n/\gamma) \ln(1/\gamma) / n},\;"
    r" \sqrt{d \ln(1/\delta)}\,(\ln(1/\gamma))^{1/4} / (n\varepsilon)\right)"
)
RATE_SOURCE = f"{PAPER}, Theorem 12"
RATE_FORMULA = (
    r"R(\bar w) - R(w_*) \le c\,\|w_*\|^2 \left[\frac{\sqrt{d \ln(1/\delta) \ln(1/\gamma)}}{n\varepsilon} +"
    r" \sqrt{\frac{\ln n \ln(n/\gamma) \ln(1/\gamma)}{n}}\right]"
)
ERROR_SOURCE = f"{PAPER}, proof of Theorem 12, with its constants and the plan's noise"
ERROR_FORMULA = (
    r"R_S(\bar w) - R_S(w_*) \le A_R \sqrt{\tfrac{2 \ln(9/\gamma)}{T}} + A_* \sqrt{\tfrac{\ln(9/\gamma)}{2T}}"
    r" + \tfrac{\|w_*\|^2}{2 T \eta} + \tfrac{\eta G^2}{2}"
    r" + \sigma (\|w_*\| + R + \eta G) \sqrt{\tfrac{2 \ln(18/\gamma)}{T}}"
    r" + \tfrac{\eta d \sigma^2}{2} \left(1 + \sqrt{\tfrac{8 \ln(18/\gamma)}{T d}}\right)"
)
EXPECTED_SOURCE = f"{PAPER}, proof of Theorem 12, in expectation (derived)"
EXPECTED_FORMULA = (
    r"\mathbb{E}[R_S(\bar w) - R_S(w_*)] \le \tfrac{\|w_*\|^2}{2 T \eta} + \tfrac{\eta}{2} (V + d \sigma^2)"
)
BALANCED_FORMULA = r"\eta = \|w_*\| / \sqrt{T (V + d \sigma^2)}, \text{ below } \min(1/c, 1/L)"


def paper_iterations(dataset_size: int, exponent: float) -> int:
    """Return the T of Theorem 12, with the constant 1 and rounded up.

    >>> paper_iterations(10_000, 0.25), paper_iterations(10_000, 0.5), paper_iterations(10_000, 0.0)
    (398108, 10000, 100000000)
    """
    if exponent >= 0.5:
        return dataset_size
    # The factor keeps a power that is an integer up to rounding from being rounded up to the next integer.
    power = math.pow(dataset_size, (2.0 - exponent) / (1.0 + exponent))
    return math.ceil(power * (1.0 - 1e-14))


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of Theorem 12. Its parts depend only on the sizes and the target.

    >>> rate = Rate(dataset_size=10_000, dimension=50, epsilon=1.0, delta=1e-8, failure_probability=0.05)
    >>> round(rate.scale, 10), round(rate.step_size(398108, 1.0) * 1e5, 9)
    (0.1835174281, 1.368742589)
    """

    dataset_size: int
    dimension: int
    epsilon: float
    delta: float
    failure_probability: float

    @property
    def scale(self) -> float:
        """The scale A, a pure number."""
        return max(self._sampling_term, self._privacy_term / math.pow(self._log_failure, 0.25))

    def step_size(self, iterations: int, order_constant: float) -> float:
        """Return the step size 1/(c T A), in parameter^2 / loss."""
        return 1.0 / (order_constant * iterations * self.scale)

    def excess_risk(self, distance: float, order_constant: float) -> float:
        """Return the rate of the excess population risk, in loss units."""
        return order_constant * distance**2 * (self._privacy_term + self._sampling_term)

    @property
    def _log_failure(self) -> float:
        return -math.log(self.failure_probability)

    @property
    def _privacy_term(self) -> float:
        log_delta = -math.log(self.delta)
        return math.sqrt(self.dimension * log_delta * self._log_failure) / (self.dataset_size * self.epsilon)

    @property
    def _sampling_term(self) -> float:
        n = self.dataset_size
        return math.sqrt(math.log(n) * (math.log(n) + self._log_failure) * self._log_failure / n)


@dataclass(frozen=True, slots=True)
class OptimisationError:
    """Bounds on the empirical optimisation error of the average of noisy projected subgradient steps.

    Attributes:
        gradient_norm: The bound G on gradients.
        distance: An upper bound on the norm of w*.
        dimension: The dimension d.
        iterations: The number T of steps.
        noise_stddev: The standard deviation sigma of the noise, per coordinate on the mean gradient.
        batch_variance: The number (1 - p)/b if the batch size is random, otherwise 0.
    """

    gradient_norm: float
    distance: float
    dimension: int
    iterations: int
    noise_stddev: float
    batch_variance: float = 0.0

    @property
    def second_moment(self) -> float:
        """The second moment V + d sigma^2 of one noisy mean gradient, in squared gradient units."""
        return self.gradient_norm**2 * (1.0 + self.batch_variance) + self.dimension * self.noise_stddev**2

    def expected(self, step_size: float) -> float:
        """Return the bound in expectation, in loss units.

        >>> error = OptimisationError(3.0, 1.0, 50, 10_000, 2.0)
        >>> round(error.expected(0.01), 6), round(error.expected(error.balanced_step_size), 9)
        (1.05, 0.144568323)
        """
        return self.distance**2 / (2.0 * self.iterations * step_size) + step_size * self.second_moment / 2.0

    @property
    def balanced_step_size(self) -> float:
        """The step size that minimises `expected`."""
        return self.distance / math.sqrt(self.iterations * self.second_moment)

    def with_probability(
        self,
        step_size: float,
        failure_probability: float,
        *,
        radius: float,
        largest_loss: float,
        largest_loss_at_minimiser: float,
        sampled: bool,
    ) -> float | None:
        """Return the bound that holds with probability 1 - gamma/3, in loss units; None if gamma is too small for it.

        Args:
            step_size: The step size eta.
            failure_probability: The failure probability gamma.
            radius: The radius R.
            largest_loss: The bound A_R on every loss in W.
            largest_loss_at_minimiser: The bound A_* on every loss at w*.
            sampled: Whether steps use random batches of a fixed size, rather than all records.

        >>> error = OptimisationError(3.0, 1.0, 50, 10_000, 2.0)
        >>> found = error.with_probability(
        ...     0.01, 0.05, radius=1.0, largest_loss=4.0, largest_loss_at_minimiser=4.0, sampled=True
        ... )
        >>> round(found, 9)
        1.392368865
        """
        steps, d, sigma, g = self.iterations, self.dimension, self.noise_stddev, self.gradient_norm
        log_18 = math.log(18.0) - math.log(failure_probability)
        if log_18 >= steps * d / 8.0:
            return None
        log_9 = math.log(9.0) - math.log(failure_probability)
        drawn = largest_loss * math.sqrt(2.0 * log_9 / steps) + largest_loss_at_minimiser * math.sqrt(
            log_9 / (2.0 * steps)
        )
        return (
            (drawn if sampled else 0.0)
            + self.distance**2 / (2.0 * steps * step_size)
            + step_size * g**2 / 2.0
            + sigma * (self.distance + radius + step_size * g) * math.sqrt(2.0 * log_18 / steps)
            + step_size * d * sigma**2 / 2.0 * (1.0 + math.sqrt(8.0 * log_18 / (steps * d)))
        )
