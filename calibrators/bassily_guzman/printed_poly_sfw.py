r"""This module contains the calibration of Bassily, Guzman & Nandi 2021, Algorithm 1, and the cost of its selections.

The authors take $n_0 = n/2$, $\eta = \ln(n/\ln K)/n$, batches of one record, and Laplace noise on the scores. The scale
is $4 L_0 M \sqrt{\ln(1/\delta)}/(\varepsilon\sqrt n)$ in the first selection and $2 s_t \sqrt{n
\ln(1/\delta)}/\varepsilon$ in the others, $s_t = \max\{(1-\eta)^t\, 2 L_0 M/n,\ 2\eta (L_1 M^2 + L_0 M)\}$.

Their proof treats every selection as $\varepsilon/\sqrt{n \ln(1/\delta)}$-DP and composes all of them, as if each
record took full part in each selection. By the ranges of `recursion`, a record of step $\tau$ costs only $\sum_{t \ge
\tau} a_t \tanh(a_t/2)$ with $a_t = s w_\tau (1-\eta)^{t-\tau}/\lambda_t$, which is far less. The largest of these costs
is compared with the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.as_published import AsPublished, Verdict, judge
from calibrators.bassily_guzman.recursion import Recursion, geometric_sum
from calibrators.bassily_guzman.tree import Problem
from calibrators.verdicts import UNJUDGED

SOURCE = "Bassily, Guzman & Nandi 2021, Algorithm 1 and Theorem 4"
FORMULA = (
    r"\lambda_0 = \frac{4 L_0 M \sqrt{\ln(1/\delta)}}{\varepsilon \sqrt n},\;"
    r" \lambda_t = \frac{2 s_t \sqrt{n \ln(1/\delta)}}{\varepsilon},\;"
    r" s_t = \max\{(1-\eta)^t \tfrac{2 L_0 M}{n}, 2 \eta (L_1 M^2 + L_0 M)\}"
)
#: If a sum has more terms a tanh(a/2) than this, each is replaced by its upper bound a^2/2. The terms then differ from
#: these bounds by less than one part in 10^9.
_MOST_TERMS = 1 << 20


@dataclass(frozen=True, slots=True)
class Printed:
    """The printed calibration of Algorithm 1 for one target.

    Attributes:
        problem: The constants L_0, L_1 and M.
        num_vertices: The number K of vertices.
        dataset_size: The number n of records, even.
        epsilon, delta: The target's epsilon and delta.
        length: The length that the noise is scaled to, in place of M: the diameter, or the radius D as in Guzman's
            talk.
    """

    problem: Problem
    num_vertices: int
    dataset_size: int
    epsilon: float
    delta: float
    length: float

    @property
    def step_size(self) -> float:
        r"""The step size $\eta = \ln(n/\ln K)/n$."""
        return math.log(self.dataset_size / math.log(self.num_vertices)) / self.dataset_size

    @property
    def recursion(self) -> Recursion:
        half = self.dataset_size // 2
        return Recursion(half + 1, half, 1, self.step_size)

    def noise_scale(self, step: int) -> float:
        """Return the scale of the Laplace noise at a step, in loss units.

        >>> printed = Printed(Problem(2.0, 1.0, 2.0), 100, 10_000, 1.0, 1e-6, 2.0)
        >>> [round(printed.noise_scale(step), 9) for step in (0, 1)]
        [0.59470755, 9.138467411]
        """
        n, lipschitz, root = self.dataset_size, self.problem.lipschitz, math.sqrt(math.log(1.0 / self.delta))
        if step == 0:
            return 4.0 * lipschitz * self.length * root / (self.epsilon * math.sqrt(n))
        return 2.0 * max(self._first_share(step), self._other_share) * math.sqrt(n) * root / self.epsilon

    @property
    def rho(self) -> float:
        """Return the rho of all selections together, if a record is replaced.

        From some step on, the noise is constant. Of the records that are read from that step on, the first costs most.
        """
        settled = 1
        while settled < self.recursion.selections - 1 and self._first_share(settled) > self._other_share:
            settled += 1
        return max(self._cost_of(step, settled) for step in range(settled + 1))

    def _cost_of(self, step: int, settled: int) -> float:
        """Return the rho of a record that is read at ``step``. The noise is constant from step ``settled`` on."""
        first, other = self.recursion.ranges(self.problem)
        width, kept = 2.0 * (first if step == 0 else other), 1.0 - self.step_size
        before = [width * kept ** (t - step) / self.noise_scale(t) for t in range(step, settled)]
        largest = width * kept ** (settled - step) / self.noise_scale(settled)
        return sum(map(_laplace_rho, before)) + _geometric_cost(largest, kept, self.recursion.selections - settled)

    def _first_share(self, step: int) -> float:
        return (1.0 - self.step_size) ** step * 2.0 * self.problem.lipschitz * self.length / self.dataset_size

    @property
    def _other_share(self) -> float:
        steepness = self.problem.smoothness * self.length**2 + self.problem.lipschitz * self.length
        return 2.0 * self.step_size * steepness


def printed_calibration(
    target: object, problem: Problem, num_vertices: int, dataset_size: int, needed: Callable[[], float] | None
) -> AsPublished | None:
    """Return the paper's noise at this target, with a verdict. None if the paper does not treat such targets. The
    printed noise is never executed.

    An odd number of records is reduced by one. Otherwise the first batch would have fewer than n/2 records, and the
    first scale would be too small.

    Args:
        needed: The least noise multiplier that meets the target, under replacement; None leaves the noise unjudged.
    """
    if isinstance(target, PureDpTarget) or (isinstance(target, ApproximateDpTarget) and target.delta == 0.0):
        why = "The printed noise is only for delta above 0, because its scales grow without limit as delta falls to 0."
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    if not isinstance(target, ApproximateDpTarget) or target.delta >= 1.0:
        return None
    n = dataset_size - dataset_size % 2
    if n <= math.log(num_vertices):
        why = f"The printed step size ln(n / ln K) / n is not positive for n = {n} and K = {num_vertices}."
        return AsPublished(Verdict.UNSOUND, why, SOURCE, FORMULA)
    by_diameter, by_radius = (
        Printed(problem, num_vertices, n, target.epsilon, target.delta, length)
        for length in (problem.diameter, 0.5 * problem.diameter)
    )
    rho = by_diameter.rho
    multiplier = math.sqrt(2.0 / rho)
    verdict, why = (
        UNJUDGED
        if needed is None
        else judge(
            [Event(ZcDp(min(rho, 1e6)))],
            NeighboringRelation.REPLACE_ONE,
            target,
            printed=multiplier,
            needed=needed(),
            setting=f"batches of one record, replace_one; the selections cost rho {rho:.6g}",
        )
    )
    why = (
        f"{why} With the radius in place of the diameter, the paper's lemma is false, and the selections cost rho "
        f"{by_radius.rho:.6g}."
    )
    return AsPublished(verdict, why, SOURCE, FORMULA, noise_multiplier=multiplier)


def _laplace_rho(range_over_scale: float) -> float:
    return range_over_scale * math.tanh(range_over_scale / 2.0)


def _geometric_cost(largest: float, ratio: float, count: int) -> float:
    """Return the rho of selections for which the range divided by the noise scale falls geometrically."""
    if count > _MOST_TERMS:
        return 0.5 * largest**2 * geometric_sum(ratio**2, count)
    ranges = largest * ratio ** np.arange(count, dtype=np.float64)
    return float(np.sum(ranges * np.tanh(ranges / 2.0)))
