r"""This module computes the noise of Theorem 11, from Renyi amplification by subsampling, and tests when the theorem
may be used.

Each step on $b$ of $n$ records, drawn without replacement, is $(\lambda, 3.5\,p^2\lambda\Delta^2/\sigma^2)$-Renyi
private with $p = b/n$ and $\Delta = 2G/b$ (Lemma 3), but only under two conditions. With a split $\beta \in (0, 1)$ of
epsilon between the composed Renyi divergence and its conversion, $\lambda = \ln(1/\delta)/((1-\beta)\varepsilon) + 1$,

$$\sigma^2(\beta) = \frac{14\,G^2\,T\,\lambda}{\beta\,n^2\,\varepsilon}$$

on the mean gradient is $(\varepsilon, \delta)$-private if, with $u = \sigma^2/\Delta^2$,

$$(32)\quad u \ge 0.67,\qquad (33)\quad \lambda - 1 \le \tfrac{2u}{3}\,\ln\frac{1}{p\,\lambda\,(1+u)}.$$

The paper has $b = 1$. The batch size enters only through $p$ and $\Delta$, and cancels in $\sigma^2(\beta)$. Without
its conditions Lemma 3 is badly false, so every answer here tests the conditions first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.events import WithoutReplacement
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.noise import GaussianSteps
from calibrators.plan import Phase
from calibrators.spec import Spec
from calibrators.verdicts import RELATION, judge_steps
from calibrators.wang_nonsmooth.holder import PAPER

SOURCE = f"{PAPER}, Theorem 11, with beta nearest to 1/2 among those that meet its conditions"
FORMULA = (
    r"\sigma^2 = \frac{14\,G^2\,T\,\lambda}{\beta\,n^2\,\varepsilon},\;"
    r" \lambda = \frac{\ln(1/\delta)}{(1-\beta)\varepsilon} + 1"
)
SETTING = "batches without replacement, replace_one"

#: The smallest ratio sigma^2 / sensitivity^2 for which Lemma 3 allows any order.
LEAST_RATIO = 0.67

Vector = npt.NDArray[np.float64]

#: The grid of splits. Feasible splits are often near 1e-6, so the grid is logarithmic near 0 and 1, with 200 points a
#: decade.
_ENDS = np.logspace(-14.0, -2.0, 2401)
_GRID: Vector = np.unique(np.concatenate([_ENDS, np.linspace(0.01, 0.99, 1961), 1.0 - _ENDS]))
_GRID = _GRID[(_GRID > 0.0) & (_GRID < 1.0)]


def subsampled_renyi(order: float, fraction: float, noise_ratio: float) -> float | None:
    """Return the Renyi divergence of one step by Lemma 3, or None if its conditions fail.

    Args:
        order: The order lambda > 1.
        fraction: The fraction p of the records that a batch holds.
        noise_ratio: The standard deviation of the noise, divided by the sensitivity.

    >>> round(subsampled_renyi(4.0, 1e-3, 1.0), 12)
    1.4e-05
    >>> subsampled_renyi(6.0, 0.02, 0.5) is None
    True
    """
    ratio = noise_ratio**2
    if ratio < LEAST_RATIO or order - 1.0 > _largest_order_less_one(order, fraction, ratio):
        return None
    return 3.5 * fraction**2 * order / ratio


@dataclass(frozen=True, slots=True)
class Split:
    """A split of epsilon, and the noise of Theorem 11 for this split.

    Attributes:
        beta: The share of epsilon that the composed Renyi divergence takes.
        order: The order lambda.
        relative_variance: The variance sigma^2(beta) / G^2 on the mean gradient.
        ratio_margin: The margin by which (32) holds; negative if it fails.
        order_margin: The margin by which (33) holds.
    """

    beta: float
    order: float
    relative_variance: float
    ratio_margin: float
    order_margin: float

    @property
    def is_feasible(self) -> bool:
        return self.ratio_margin >= 0.0 and self.order_margin >= 0.0


@dataclass(frozen=True, slots=True)
class Theorem11:
    """The function sigma(beta) of Theorem 11 for n records, T steps, batches of b records and the target (epsilon,
    delta).

    >>> theorem = Theorem11(dataset_size=1000, iterations=10**6, epsilon=4.0, delta=1e-6)
    >>> half = theorem.split(0.5)
    >>> round(half.order, 9), round(half.relative_variance, 8), half.is_feasible
    (7.907755279, 55.35428695, True)
    >>> round(theorem.unconstrained_beta, 10)
    0.5317419473
    """

    dataset_size: int
    iterations: int
    epsilon: float
    delta: float
    batch_size: int = 1

    @property
    def unconstrained_beta(self) -> float:
        """The beta that minimises sigma^2 without the conditions: (1 + A) - sqrt(A (1 + A)) with A =
        ln(1/delta)/epsilon. It is always above 1/2.
        """
        # This computes the difference of the roots without cancellation, as sqrt(1 + A) / (sqrt(1 + A) + sqrt(A)) in
        # terms of 1/A.
        inverse = self.epsilon / -math.log(self.delta)
        return 1.0 / (1.0 + 1.0 / math.sqrt(1.0 + inverse))

    def split(self, beta: float) -> Split:
        """Return the noise at one split, with the margins of (32) and (33)."""
        order, variance, ratio_margin, order_margin = self._at(np.array([beta]))
        return Split(beta, float(order[0]), float(variance[0]), float(ratio_margin[0]), float(order_margin[0]))

    def as_published(self) -> Split | None:
        """Return the split by the paper's rule: beta = 1/2 if it is feasible, otherwise the feasible beta nearest to
        1/2. None if no beta is feasible.
        """
        half = self.split(0.5)
        return half if half.is_feasible else min(self._ends(), key=lambda found: abs(found.beta - 0.5), default=None)

    def least_noise(self) -> Split | None:
        """Return the feasible split with the least noise; None if no split is feasible."""
        best = self.split(self.unconstrained_beta)
        return best if best.is_feasible else min(self._ends(), key=lambda found: found.relative_variance, default=None)

    def nearest_to_feasible(self) -> Split:
        """Return the split whose smaller margin is largest. It is shown if no split is feasible."""
        _, _, ratio_margin, order_margin = self._at(_GRID)
        return self.split(float(_GRID[int(np.argmax(np.minimum(ratio_margin, order_margin)))]))

    def _ends(self) -> list[Split]:
        """Return both ends of every interval of feasible splits. Callers need only these splits, because they have
        tested the optimum inside before.
        """
        feasible = self._feasible(_GRID)
        ends = []
        for left in np.flatnonzero(feasible[1:] != feasible[:-1]):
            inside, outside = (left, left + 1) if feasible[left] else (left + 1, left)
            ends.append(self._refined(float(_GRID[inside]), float(_GRID[outside])))
        ends += [self.split(float(_GRID[end])) for end in (0, -1) if feasible[end]]
        return ends

    def _refined(self, inside: float, outside: float) -> Split:
        """Return the last feasible split between a feasible and an infeasible one, found by bisection."""
        while True:
            middle = 0.5 * (inside + outside)
            if middle in (inside, outside):
                return self.split(inside)
            if self.split(middle).is_feasible:
                inside = middle
            else:
                outside = middle

    def _feasible(self, beta: Vector) -> npt.NDArray[np.bool_]:
        _, _, ratio_margin, order_margin = self._at(beta)
        return (ratio_margin >= 0.0) & (order_margin >= 0.0)

    def _at(self, beta: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """Return lambda, sigma^2 / G^2, and the margins of (32) and (33) for each beta."""
        order = -math.log(self.delta) / ((1.0 - beta) * self.epsilon) + 1.0
        variance = 14.0 * self.iterations * order / (beta * float(self.dataset_size) ** 2 * self.epsilon)
        ratio = variance * self.batch_size**2 / 4.0
        largest = 2.0 * ratio / 3.0 * -np.log(order * (self.batch_size / self.dataset_size) * (1.0 + ratio))
        return order, variance, ratio - LEAST_RATIO, largest - (order - 1.0)


def theorem_11(spec: Spec, phase: Phase) -> AsPublished | None:
    """Return a verdict on the theorem's noise for this spec's steps and batches; None for targets that the theorem does
    not treat.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    steps, size, bound = phase.steps, phase.divisor, phase.gradient_bound.contribution_bound
    theorem = Theorem11(spec.dataset_size, steps, target.epsilon, target.delta, size)
    split = theorem.as_published()
    if split is None:
        near = theorem.nearest_to_feasible()
        why = (
            "The theorem gives no noise here, because no beta in (0, 1) meets its conditions (32) and (33). "
            f"The nearest, beta = {near.beta:.4g}, has sigma^2/G^2 = {near.relative_variance:.4g} and the "
            f"margins {near.ratio_margin:.4g} and {near.order_margin:.4g}; both margins would have to be at "
            "least 0."
        )
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    stddev = bound * split.relative_variance**0.5
    multiplier = stddev * size / bound
    chosen = f"beta = {split.beta:.4g}, lambda = {split.order:.4g}"
    chosen += ". " if split.beta == 0.5 else ", because beta = 1/2 does not meet the conditions. "
    if MIN_NOISE_MULTIPLIER <= multiplier <= MAX_NOISE_MULTIPLIER:
        batches = GaussianSteps(WithoutReplacement.kind, spec.dataset_size, RELATION)
        verdict, why = judge_steps(spec, batches, multiplier, iterations=steps, batch_size=size, setting=SETTING)
    else:
        verdict, why = (
            Verdict.UNSOUND,
            f"The noise multiplier {multiplier:.4g} is outside the range that the accounting engine certifies.",
        )
    return AsPublished(verdict, chosen + why, SOURCE, FORMULA, noise_stddev_on_mean=stddev)


def least_epsilon_of_lemma_13(dataset_size: int) -> float:
    """Return the epsilon above which Lemma 13 claims that a feasible split exists, for T = n and delta = 1/n^2.

    The claim is false for 18 <= n <= 43 just above the curve; elsewhere the condition is sufficient and far from
    necessary. The function is only for plots: a calibration searches for feasible splits.

    >>> round(least_epsilon_of_lemma_13(1000), 9)
    1.538945618
    """
    root = math.cbrt(dataset_size) - 1.0
    return (7.0 * root + 4.0 * dataset_size * math.log(dataset_size) + 7.0) / (2.0 * dataset_size * root)


def least_feasible_epsilon(dataset_size: int, iterations: int, delta: float) -> float:
    """Return the epsilon above which some split is feasible. It is found by bisection between 1e-3 and 1e3, to a
    relative 1e-6.

    The result is about 1e3 if no split is feasible in this range.
    """
    low, high = math.log(1e-3), math.log(1e3)
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        if Theorem11(dataset_size, iterations, math.exp(middle), delta).least_noise() is None:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _largest_order_less_one(order: float, fraction: float, ratio: float) -> float:
    return 2.0 * ratio / 3.0 * -math.log(order * fraction * (1.0 + ratio))
