r"""This module contains the numbers of steps, step sizes and rates of output perturbation by Theorems 9 and 10.

**In a ball** (Theorem 10). $T = \lceil n^{(2-\alpha)/(1+\alpha)} \rceil$ for $\alpha < 1/2$, else $n$, as in Theorem
12, and $\eta = 1/(c\,T A)$ with

$$A = \max\left(\sqrt{\frac{\ln(n/\delta) \ln n \ln(1/\gamma)}{n}},\; \frac{(d \ln(1/\delta))^{1/4}
\sqrt{\ln(n/\delta)}\,(\ln(1/\gamma))^{1/8}}{\sqrt{n\varepsilon}}\right).$$

**On all of $\mathbb{R}^d$** (Theorem 9). $T = \lceil n^{(6-3\alpha-\alpha^2)/((1+\alpha)(3+\alpha))} \rceil$ for
$\alpha < (\sqrt{73}-7)/4$, else $n$; $\eta = (n / \ln(1/\gamma))^{1/(3+\alpha)} / (c\,T)$.

The orders in the theorems hide constants of the problem. Here a single $c$ in units of loss / parameter$^2$ replaces
them. By default $c = 1$. The rates hold for $\gamma > 4 \max(e^{-d/8}, \delta)$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.wang_nonsmooth.holder import PAPER
from calibrators.wang_nonsmooth.optimisation_error import paper_iterations

#: The Hoelder exponent below which Theorem 9 takes more than n steps.
_FEW_STEPS = (math.sqrt(73.0) - 7.0) / 4.0


def theorem_9_iterations(dataset_size: int, exponent: float) -> int:
    """Return the T of Theorem 9, with the constant 1 and rounded up.

    >>> theorem_9_iterations(10_000, 0.25), theorem_9_iterations(10_000, 1.0)
    (128143, 10000)
    """
    if exponent >= _FEW_STEPS:
        return dataset_size
    power = (6.0 - 3.0 * exponent - exponent**2) / ((1.0 + exponent) * (3.0 + exponent))
    return math.ceil(math.pow(dataset_size, power) * (1.0 - 1e-14))


@dataclass(frozen=True, slots=True)
class OutputRate:
    """The rate of Theorem 9 or 10. Its parts depend only on the sizes and the target.

    Attributes:
        exponent: The exponent alpha.
        bounded: Whether W is a ball. If so, Theorem 10 applies, otherwise Theorem 9.

    >>> ball = OutputRate(10_000, 50, 1.0, 1e-8, 0.05, exponent=1.0, bounded=True)
    >>> round(ball.scale, 10), round(ball.step_size(10_000, 1.0), 13)
    (0.3321469449, 0.0003010715635)
    """

    dataset_size: int
    dimension: int
    epsilon: float
    delta: float
    failure_probability: float
    exponent: float
    bounded: bool

    @property
    def source(self) -> str:
        return f"{PAPER}, Theorem {10 if self.bounded else 9}"

    @property
    def iterations(self) -> int:
        """The number T of steps."""
        own = paper_iterations if self.bounded else theorem_9_iterations
        return own(self.dataset_size, self.exponent)

    @property
    def iterations_formula(self) -> str:
        if self.bounded:
            return r"T = \lceil n^{(2-\alpha)/(1+\alpha)} \rceil \text{ for } \alpha < 1/2, \text{ else } n"
        return (
            r"T = \lceil n^{(6-3\alpha-\alpha^2)/((1+\alpha)(3+\alpha))} \rceil \text{ for } \alpha <"
            r" (\sqrt{73}-7)/4, \text{ else } n"
        )

    @property
    def scale(self) -> float:
        """The pure number A of Theorem 10."""
        return max(self._sampling_term, self._privacy_term)

    def step_size(self, iterations: int, order_constant: float) -> float:
        """Return the step size in parameter^2 / loss."""
        if self.bounded:
            return 1.0 / (order_constant * iterations * self.scale)
        power = 1.0 / (3.0 + self.exponent)
        return math.pow(self.dataset_size / self._log_failure, power) / (order_constant * iterations)

    @property
    def step_size_formula(self) -> str:
        if self.bounded:
            return (
                r"\eta = \frac{1}{c\,T A},\; A = \max\left(\sqrt{\ln(n/\delta) \ln n \ln(1/\gamma) / n},\;"
                r" (d \ln(1/\delta))^{1/4} \sqrt{\ln(n/\delta)}\,(\ln(1/\gamma))^{1/8} / \sqrt{n\varepsilon}\right)"
            )
        return r"\eta = \frac{1}{c\,T} (n / \ln(1/\gamma))^{1/(3+\alpha)}"

    @property
    def holds(self) -> bool:
        """Return whether gamma is within the theorems' range."""
        return self.failure_probability > 4.0 * max(math.exp(-self.dimension / 8.0), self.delta)

    def excess_risk(self, distance: float, order_constant: float) -> float:
        """Return the rate of the excess population risk, in loss units."""
        if self.bounded:
            return order_constant * distance**2 * (self._privacy_term + self._sampling_term)
        n, power = self.dataset_size, 3.0 + self.exponent
        private = math.sqrt(self.dimension * self._log_delta) * self._log_ratio
        private /= math.pow(self._log_failure, (1.0 + self.exponent) / (4.0 * power))
        private /= math.pow(n, 2.0 / power) * self.epsilon
        sampled = math.log(n) * math.pow(self._log_failure, 2.0 / power) * self._log_ratio / math.pow(n, 1.0 / power)
        return order_constant * distance**2 * (private + sampled)

    @property
    def excess_risk_formula(self) -> str:
        if self.bounded:
            return (
                r"R(\bar w) - R(w_*) \le c\,\|w_*\|^2 \left[\frac{(d \ln(1/\delta))^{1/4} (\ln(1/\gamma))^{1/8}"
                r" \sqrt{\ln(n/\delta)}}{\sqrt{n\varepsilon}} +"
                r" \sqrt{\frac{\ln n \ln(1/\gamma) \ln(n/\delta)}{n}}\right]"
            )
        return (
            r"R(\bar w) - R(w_*) \le c\,\|w_*\|^2 \left[\frac{\sqrt{d \ln(1/\delta)} \ln(n/\delta)}"
            r"{(\ln(1/\gamma))^{(1+\alpha)/(4(3+\alpha))}\, n^{2/(3+\alpha)} \varepsilon} + \frac{\ln n\,"
            r" (\ln(1/\gamma))^{2/(3+\alpha)} \ln(n/\delta)}{n^{1/(3+\alpha)}}\right]"
        )

    @property
    def _log_failure(self) -> float:
        return -math.log(self.failure_probability)

    @property
    def _log_delta(self) -> float:
        return -math.log(self.delta)

    @property
    def _log_ratio(self) -> float:
        return math.log(self.dataset_size) + self._log_delta

    @property
    def _sampling_term(self) -> float:
        n = self.dataset_size
        return math.sqrt(self._log_ratio * math.log(n) * self._log_failure / n)

    @property
    def _privacy_term(self) -> float:
        fourth = math.pow(self.dimension * self._log_delta, 0.25) * math.pow(self._log_failure, 0.125)
        return fourth * math.sqrt(self._log_ratio / (self.dataset_size * self.epsilon))
