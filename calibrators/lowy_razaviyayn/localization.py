r"""This module bounds the excess risk of Algorithm 4, localised noisy subgradient steps, with explicit constants
(Theorem 12).

**Assumption 1.** $\mathbb{E}[\sup_{w \in W} \|\nabla f(w, x)\|^{2k}] \le \tilde r_{2k}^{2k}$, for all subgradients.
Then $\tilde r_1 \le \tilde r_2 \le \tilde r_{2k}$, and F is $\tilde r_1$-Lipschitz. Losses are convex and need not be
smooth; $L_f = \sup \|\nabla f\|$ may be infinite.

**Steps.** Block $i = 1..l$ takes $n_i = 2^{-i} n$ of the n records, starts at $w_{i-1}$ and makes $T_i$ steps over all
its records with $\eta_i = 4^{-i} \eta$, $\lambda_i = 1/(\eta_i n_i^p)$, in $W_i = \{w \in W : \|w - w_{i-1}\| \le
D_i\}$, $D_i = 2L/\lambda_i$. With

$$T_i = \lceil 2 n_i^p \ln(e + n_i^p) \rceil,\quad
  C_i = \Big[\tfrac{5}{4} \tfrac{\rho\, n_i^{2+p}\, \tilde r_{2k}^{2k}}{(k-1)^2 d T_i}\Big]^{1/(2k)},\quad
  \sigma_i^2 = \tfrac{2 C_i^2 T_i}{\rho n_i^2},$$
$$V_i = 36 L^2 + 8 \tilde r_2^2 + 8 d \sigma_i^2 + \tfrac{20 n_i^p \tilde r_{2k}^{2k}}{(k-1)^2 C_i^{2k-2}},\quad
  a = \tfrac{2^{p+1} D^2}{n^p},\quad
  b = \sum_{i \le l} \tfrac{2 \tilde r_2^2 n_i^{p-1}}{4^i} + 2^{p+1} \sum_{i<l} \tfrac{V_i}{4^i}
      + \tfrac{\tilde r_1 n_l^{p/2} \sqrt{V_l}}{4^l},$$

$$\mathbb{E} F(w_l) - F^* \le \frac{a}{\eta} + b \eta + \tilde r_1 D \zeta, \qquad \eta^* = \sqrt{a/b}.$$

If $L_f$ is known, $L = L_f$, $\zeta = 0$ and $p = \max(1, 1 + 2 \ln(L_f/\tilde r_{2k})/\ln n)$ suffices. Otherwise $L =
\tilde r_{2k} (l/\zeta)^{1/(2k)}$ bounds every block's mean of $\sup_w \|\nabla f\|$ except with probability $\zeta$
(Markov's inequality for the 2k-th power, and a union bound), and $p = 1 + 1/(2k)$ with $\zeta = n^{-1/2}$ keeps the
rate. Any $p \ge 1$ is valid, and $p = 1$ needs the fewest gradients.

*Proof.* Let $\hat w_i$ minimise the block's mean loss plus $\frac{\lambda_i}{2}\|w - w_{i-1}\|^2$ over W. If the
block's mean of $\sup_w \|\nabla f\|$ is at most L, $\|\hat w_i - w_{i-1}\| \le L/\lambda_i$, so that it lies in $W_i$.
A clipped mean is the gradient plus a bias of at most $\frac{1}{n_i} \sum_j \sup \|\nabla f_j\|^k / ((k-1) C_i^{k-1})$,
and strong convexity with $\eta_i \lambda_i \le 1$ gives (the paper's Lemma 14)

$$\mathbb{E}\|w_i - \hat w_i\|^2 \le e^{-\lambda_i \eta_i T_i / 2} D_i^2 + \tfrac{8 \eta_i}{\lambda_i}
  (\tilde r_2^2 + \lambda_i^2 D_i^2 + d \sigma_i^2) + \tfrac{20}{\lambda_i^2}
  \tfrac{\tilde r_{2k}^{2k}}{(k-1)^2 C_i^{2k-2}} \le \eta_i^2 n_i^p V_i .$$

Regularised minima generalise: $\mathbb{E} F(\hat w_i) - F(y) \le \frac{2 \tilde r_2^2}{\lambda_i n_i} +
\frac{\lambda_i}{2} \|y - w_{i-1}\|^2$ for any $y \in W$ (Proposition 17). Add it up over the blocks with $y = \hat
w_{i-1}$ and $\hat w_0 = w^*$, use $\lambda_i = 4 \cdot 2^p \lambda_{i-1}$ and that F is $\tilde r_1$-Lipschitz at the
end. If block j is the first at which the bound L fails, the sum up to this block is $F(\hat w_j) - F^* \ge 0$, and the
failure costs at most $\tilde r_1 D$. $\square$

If $C_i \ge L_f$ nothing is clipped, and the last term of $V_i$ is 0. A penalty $\frac s2 \|w\|^2$ whose gradient is
added after clipping needs no noise. Its longest gradient on the ball is $s D / 2$. Wherever L, $\tilde r_1$ and $\tilde
r_2$ stand for the whole loss and not only for the clipped gradients, they grow by this amount.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue
from calibrators.lowy_razaviyayn.moments import LARGEST
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon, paper_rho
from calibrators.phases.localized_phases import MAX_BLOCK_STEPS

_LARGEST_EXPONENT = 500.0


@dataclass(frozen=True, slots=True)
class UniformMoments:
    """The constants of Assumption 1 for the clipped gradients, in gradient units except for the order.

    Attributes:
        order: The order k, at least 2.
        bound_2k: The bound r_2k.
        bound_2, bound_1: The bounds r_2 and r_1. None takes the bound on the next higher moment.
        lipschitz: The Lipschitz constant L_f; None if it is not known, or infinite.
    """

    order: float
    bound_2k: float
    bound_2: float | None = None
    bound_1: float | None = None
    lipschitz: float | None = None

    @property
    def high(self) -> float:
        """The bound r_2k on the moment of order 2k; at most L_f."""
        return self.bound_2k if self.lipschitz is None else min(self.bound_2k, self.lipschitz)

    @property
    def second(self) -> float:
        """The bound r_2 on the second moment; at most r_2k."""
        return self.high if self.bound_2 is None else min(self.bound_2, self.high)

    @property
    def first(self) -> float:
        """The bound r_1 on the first moment; at most r_2."""
        return self.second if self.bound_1 is None else min(self.bound_1, self.second)

    def never_clipped(self, max_grad_norm: float) -> bool:
        """Return whether no gradient is longer than this threshold."""
        return self.lipschitz is not None and max_grad_norm >= self.lipschitz

    def power(self, records: int) -> float:
        """Return the p of the paper's rate. With L_f, it is the p at which n^p is n (L_f / r_2k)^2. Without L_f, it is
        the p that 2k moments need.

        >>> UniformMoments(2.0, 1.5, lipschitz=3.0).power(1024), UniformMoments(4.0, 1.5).power(1024)
        (1.2, 1.125)
        """
        if self.lipschitz is None:
            return 1.0 + 0.5 / self.order
        return max(1.0, 1.0 + 2.0 * math.log(self.lipschitz / self.high) / math.log(records))


@dataclass(frozen=True, slots=True)
class LocalizedProblem:
    """The constants of a convex objective.

    Attributes:
        diameter: The diameter D, of the domain, a ball centred at 0.
        dimension: The dimension d.
        moments: The moments of the gradients, before clipping.
        penalty_strength: The strength s of the l2 penalty, whose gradient is added without clipping.
        strong_convexity: The strong convexity mu of F, including the penalty; 0 if it is not used.
    """

    diameter: float
    dimension: int
    moments: UniformMoments
    penalty_strength: float = 0.0
    strong_convexity: float = 0.0

    @property
    def penalty_slope(self) -> float:
        """The length of the penalty's longest gradient on the ball."""
        return 0.5 * self.penalty_strength * self.diameter

    @property
    def lipschitz_of_mean(self) -> float:
        """The Lipschitz constant of F: r_1, including the penalty."""
        return self.moments.first + self.penalty_slope

    @property
    def second(self) -> float:
        """The bound r_2 on the second moment, including the penalty."""
        return self.moments.second + self.penalty_slope

    def reach(self, blocks: int, failure_probability: float) -> float:
        """Return L. The mean of the longest gradients in a block exceeds L for some block with at most the failure
        probability.

        >>> problem = LocalizedProblem(2.0, 5, UniformMoments(2.0, 1.5))
        >>> round(problem.reach(10, 1024**-0.5), 9)
        6.344227581
        """
        moments = self.moments
        if moments.lipschitz is not None:
            return moments.lipschitz + self.penalty_slope
        spread = math.pow(blocks / failure_probability, 0.5 / moments.order)
        return moments.high * spread + self.penalty_slope

    def balanced_threshold(self, records: int, steps: int, power: float, noise_multiplier: float) -> float:
        """Return the C_i at which noise and squared bias contribute equally to the bound. It is at most L_f, because no
        gradient is longer.
        """
        moments, k = self.moments, self.moments.order
        log_signal = math.log(1.25 * paper_rho(noise_multiplier) / (self.dimension * steps))
        log_signal += (2.0 + power) * math.log(records) - 2.0 * math.log(k - 1.0)
        threshold = moments.high * math.exp(0.5 * log_signal / k)
        return min(threshold, LARGEST if moments.lipschitz is None else moments.lipschitz)

    def printed_threshold(self, records: int, total: int, noise_multiplier: float) -> float:
        """Return the printed C_i with constant 1, r_2k (epsilon_p n_i / sqrt(d ln n))^(1/k). If n_i = 1, the factor ln
        n is left out.

        >>> problem = LocalizedProblem(2.0, 5, UniformMoments(2.0, 1.5))
        >>> round(problem.printed_threshold(512, 1024, 2.0**0.5), 8)
        16.63546221
        """
        log = math.log(total) if records > 1 else 1.0
        signal = paper_epsilon(noise_multiplier) * records / math.sqrt(self.dimension * log)
        return min(LARGEST, self.moments.high * math.pow(signal, 1.0 / self.moments.order))

    def rate_factor(self, total: int, noise_multiplier: float) -> float:
        """Return the factor Q = n^(-1/2) + (sqrt(d ln n) / (epsilon_p n))^((k-1)/k) of the rate."""
        spread = math.sqrt(self.dimension * math.log(total)) / (paper_epsilon(noise_multiplier) * total)
        return 1.0 / math.sqrt(total) + math.pow(spread, 1.0 - 1.0 / self.moments.order)

    def rate(self, total: int, noise_multiplier: float) -> float:
        """Return r_2k D Q, the rate of Theorem 12 without its constant."""
        return self.moments.high * self.diameter * self.rate_factor(total, noise_multiplier)

    def printed_step_size(self, total: int, power: float, noise_multiplier: float) -> float | None:
        """Return the printed eta with constant 1. None without L_f, because the formula needs it.

        >>> moments = UniformMoments(2.0, 1.5, 1.2, 1.0, 3.0)
        >>> round(LocalizedProblem(2.0, 5, moments).printed_step_size(1024, 1.2, 2.0**0.5), 12)
        0.005105489643
        """
        m = self.moments
        if m.lipschitz is None:
            return None
        n, d, share, epsilon = total, self.dimension, 1.0 - 1.0 / m.order, paper_epsilon(noise_multiplier)
        private = math.pow(epsilon / math.sqrt(d), share) / m.high
        first = m.high * self.diameter * n**2 / m.first * min(1.0 / m.lipschitz, private)
        signal = math.pow(epsilon * n / math.sqrt(d * math.log(n)), share)
        root = math.pow(n, 0.5 * power)
        others = (math.sqrt(n) / (m.second * root), 1.0 / m.lipschitz, signal / (m.high * root))
        return min(first * self.rate_factor(total, noise_multiplier), self.diameter / root * min(others))


def block_sizes(records: int, blocks: int) -> tuple[int, ...]:
    """Return the block sizes n_i = n / 2^i. Here n is the largest number up to ``records`` that can be halved
    ``blocks`` times.

    >>> block_sizes(1000, 3), block_sizes(1000, 9)
    ((500, 250, 125), (256, 128, 64, 32, 16, 8, 4, 2, 1))
    """
    whole = records >> blocks << blocks
    return tuple(whole >> index for index in range(1, blocks + 1))


def block_steps(records: int, power: float) -> int:
    """Return the number of steps T_i = ceil(2 n_i^p ln(e + n_i^p)) of a block. With this number, the start of the block
    hardly matters for its end.

    Raises:
        InvalidValue: If there are more steps than a plan can hold.

    >>> block_steps(512, 1.0), block_steps(1, 1.0)
    (6394, 3)
    """
    size = math.pow(records, power)
    steps = 2.0 * size * math.log(math.e + size)
    if steps > MAX_BLOCK_STEPS:
        raise InvalidValue(
            f"with localization_power {power:g}, a block of {records} records needs {steps:.3g} steps, but at "
            f"most {MAX_BLOCK_STEPS} are allowed; give a smaller localization_power (at least 1)",
            pointer=("assumptions", "localization_power"),
        )
    return math.ceil(steps)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one run of Algorithm 4. Together with a noise multiplier, they determine the noise of the run.

    Attributes:
        sizes: The sizes n_i.
        power: The power p.
        thresholds: The thresholds C_i.
    """

    sizes: tuple[int, ...]
    power: float
    thresholds: tuple[float, ...]

    @property
    def inner_iterations(self) -> tuple[int, ...]:
        """The number T_i of inner steps."""
        return tuple(block_steps(size, self.power) for size in self.sizes)

    def noise_stddevs(self, noise_multiplier: float) -> tuple[float, ...]:
        """Return the noise sigma_i = z C_i sqrt(T_i) / n_i per coordinate of the mean. With it, T_i steps cost as much
        as one step with noise multiplier z.

        >>> Blocks((2,), 1.0, (4.0,)).noise_stddevs(0.5) == (7.0**0.5,)
        True
        """
        each = zip(self.sizes, self.inner_iterations, self.thresholds, strict=True)
        return tuple(noise_multiplier * bound * math.sqrt(steps) / size for size, steps, bound in each)

    def step_sizes(self, step_size: float) -> tuple[float, ...]:
        """Return the step sizes eta_i = eta / 4^i of the blocks."""
        return tuple(step_size / 4.0**index for index in range(1, len(self.sizes) + 1))

    def regularizers(self, step_size: float) -> tuple[float, ...]:
        """Return the regularisers lambda_i = 1 / (eta_i n_i^p) of the blocks.

        >>> Blocks((2, 1), 1.0, (1.0, 1.0)).regularizers(0.5)
        (4.0, 32.0)
        """
        each = zip(self.step_sizes(step_size), self.sizes, strict=True)
        return tuple(1.0 / (step * math.pow(size, self.power)) for step, size in each)


@dataclass(frozen=True, slots=True)
class Localization:
    """One run of Algorithm 4 and the bound on its result.

    Attributes:
        problem: The constants of the objective.
        blocks: The blocks, with n_i, p and C_i.
        reach: The bound L on a block's mean of the longest gradients.
        failure_probability: The failure probability zeta.
        noise_multiplier: The noise multiplier z of the event of the whole run; rho = 2 / z^2.
    """

    problem: LocalizedProblem
    blocks: Blocks
    reach: float
    failure_probability: float
    noise_multiplier: float

    @property
    def distances(self) -> tuple[float, ...]:
        """The numbers V_i of the module, in squared gradient units."""
        fixed = 36.0 * self.reach**2 + 8.0 * self.problem.second**2
        d, p = self.problem.dimension, self.blocks.power
        each = zip(
            self.blocks.sizes, self.blocks.thresholds, self.blocks.noise_stddevs(self.noise_multiplier), strict=True
        )
        return tuple(
            fixed + 8.0 * d * stddev**2 + 20.0 * math.pow(size, p) * self._squared_bias(bound)
            for size, bound, stddev in each
        )

    def _squared_bias(self, threshold: float) -> float:
        """Return r_2k^2k / ((k-1)^2 C^(2k-2)), computed by logarithms."""
        moments, k = self.problem.moments, self.problem.moments.order
        if moments.never_clipped(threshold):
            return 0.0
        exponent = (2.0 * k - 2.0) * math.log(moments.high / threshold) - 2.0 * math.log(k - 1.0)
        # The exponent is capped to prevent overflow. The result is still a bound, because the bias of a clipped mean is
        # at most r_2k.
        return moments.high**2 * math.exp(min(exponent, _LARGEST_EXPONENT))

    def start_cost(self, start: float) -> float:
        """Return the number a of the module, where ``start`` bounds the root mean square of |w_0 - w*|."""
        p = self.blocks.power
        return math.pow(2.0, p + 1.0) * start**2 / math.pow(2 * self.blocks.sizes[0], p)

    @property
    def step_cost(self) -> float:
        """The number b of the module."""
        p, sizes, distances = self.blocks.power, self.blocks.sizes, self.distances
        terms = [
            2.0 * self.problem.second**2 * math.pow(size, p - 1.0) / 4.0**index
            for index, size in enumerate(sizes, start=1)
        ]
        terms += [2.0 ** (p + 1.0) * far / 4.0**index for index, far in enumerate(distances[:-1], start=1)]
        last = math.pow(sizes[-1], p / 2.0) * math.sqrt(distances[-1]) / 4.0 ** len(sizes)
        return math.fsum([*terms, self.problem.lipschitz_of_mean * last])

    def best_step_size(self, start: float) -> float:
        """Return the step size eta* = sqrt(a / b) with the smallest bound."""
        return math.sqrt(self.start_cost(start) / self.step_cost)

    def bound(self, start: float, step_size: float) -> float:
        """Return the bound a / eta + b eta + r_1 D zeta on the excess risk, in loss units."""
        failed = self.problem.lipschitz_of_mean * self.problem.diameter * self.failure_probability
        return self.start_cost(start) / step_size + self.step_cost * step_size + failed

    def radii(self, step_size: float) -> tuple[float, ...]:
        """Return the radii D_i = 2 L / lambda_i of the blocks."""
        return tuple(2.0 * self.reach / strength for strength in self.blocks.regularizers(step_size))
