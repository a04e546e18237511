r"""This module contains the algorithm for strong convexity (Theorem 18): runs of Algorithm 4 on more and more records.
Each run starts at the last point of the run before.

Run j of $M = \lceil \log_2 \log_2 n \rceil$ takes $N_j = 2^{j-2} n / \log_2 n$ records, rounded down to a power of two.
If F is $\mu$-strongly convex, $\mathbb{E}\|w_j - w^*\|^2 \le 2 (\mathbb{E} F(w_j) - F^*)/\mu$, so each run starts
nearer than the one before. The paper's proof assumes that the algorithm knows this distance. Here the algorithm uses a
bound on it,

$$\hat D_0 = \min(D, \tilde r_1/\mu), \qquad \hat D_j = \min(D, \tilde r_1/\mu, \sqrt{2\, \mathrm{bound}_j/\mu}),$$

where $\mathrm{bound}_j$ is the bound of `localization` for $N_j$ records and the initial distance $\hat D_{j-1}$. (For
a fixed step size, this bound is linear in $\mathbb{E}\|w_0 - w^*\|^2$. The term $\tilde r_1/\mu$ holds because
$\mu\|w - w^*\| \le \|\nabla F(w)\| \le \tilde r_1$.) Without $L_f$, $\zeta_j = 1/N_j$ and $p = 1 + 1/k$, because with
$p = 1 + 1/(2k)$ the failures would contribute more than the rate allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.localization import Blocks, Localization, LocalizedProblem
from calibrators.lowy_razaviyayn.localized_setting import LocalizedRun
from calibrators.lowy_razaviyayn.lower_bounds import (
    failed_conditions,
    strongly_convex_lower_bound,
    strongly_convex_lower_rate,
)
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.planned_localization import HOLDS, PlannedLocalization
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon
from calibrators.provenance import LOSS, Provenance, ProvenanceKind


def run_sizes(records: int) -> tuple[int, ...]:
    """Return N_1 .. N_M, which are powers of two. The first may be 1, which means that this run is left out.

    >>> run_sizes(1024), run_sizes(100_000)
    ((32, 64, 128, 256), (2048, 4096, 8192, 16384, 32768))
    """
    log = math.log2(records)
    runs = max(1, math.ceil(math.log2(log)))
    return tuple(1 << int(max(1.0, 2.0 ** (j - 2) * records / log)).bit_length() - 1 for j in range(1, runs + 1))


def default_power(problem: LocalizedProblem, records: int) -> float:
    """Return the power p of a run. Without L_f it is 1 + 1/k."""
    moments = problem.moments
    return 1.0 + 1.0 / moments.order if moments.lipschitz is None else moments.power(records)


def first_distance(problem: LocalizedProblem) -> float:
    """Return D_0, a bound on the distance of every point of the domain from the minimiser."""
    return min(problem.diameter, problem.lipschitz_of_mean / problem.strong_convexity)


def next_distance(problem: LocalizedProblem, bound: float) -> float:
    """Return D_j, a bound on the distance from the minimiser after a run with this bound on its excess risk."""
    return min(first_distance(problem), math.sqrt(2.0 * bound / problem.strong_convexity))


def localized_chain(
    problem: LocalizedProblem, runs: Sequence[Blocks], noise_multiplier: float, step_size: float | None
) -> tuple[LocalizedRun, ...]:
    """Return the runs with bounds on their initial distances. Each run has its best step size if the caller gave
    none.
    """
    found: list[LocalizedRun] = []
    start = first_distance(problem)
    for blocks in runs:
        failure = 0.0 if problem.moments.lipschitz is not None else 0.5 / blocks.sizes[0]
        reach = problem.reach(len(blocks.sizes), failure)
        localization = Localization(problem, blocks, reach, failure, noise_multiplier)
        eta = localization.best_step_size(start) if step_size is None else step_size
        found.append(LocalizedRun(blocks, eta, localization, start))
        start = next_distance(problem, found[-1].bound)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PlannedReduction(PlannedLocalization):
    """A plan of the runs on more and more records, with the bounds and rates for strongly convex losses."""

    @property
    def power_without_bound(self) -> str:
        return r"p = 1 + \tfrac{1}{k}"

    def _printed_step_size(self) -> tuple[Provenance, ...]:
        """Return None, because the paper's step size depends on an unknown distance."""
        return ()

    def _bound(self) -> Provenance:
        return self._risk(
            "excess_risk_bound",
            self.runs[-1].bound,
            r"\tfrac{a_M}{\eta} + b_M\eta + \tilde r_1 D \zeta_M,\; a_j = \tfrac{2^{p+1} \hat D_{j-1}^2}{N_j^p},\;"
            r" \hat D_0 = \min\{D, \tfrac{\tilde r_1}{\mu}\},\; \hat D_j = \min\left\{\hat D_0,"
            r" \sqrt{\tfrac{2}{\mu} \left(\tfrac{a_j}{\eta} + b_j\eta + \tilde r_1 D \zeta_j\right)}\right\}",
            f"{PAPER}, Theorem 18 (constants derived)",
            ProvenanceKind.DERIVED,
            (*HOLDS, "the population loss, including the penalty, is mu-strongly convex on the ball", self._reach()),
        )

    def _trivial(self) -> Provenance:
        return Provenance(
            "trivial_excess_risk",
            self.trivial,
            r"\min\left\{\tilde r_1 D, \tfrac{\tilde r_1^2}{2\mu}\right\}",
            "derived: the population loss is r_1-Lipschitz and mu-strongly convex",
            ProvenanceKind.DERIVED,
            HOLDS[2:],
            units=LOSS,
        )

    def _rate(self) -> Provenance:
        problem, n, failed = self.problem, self.dataset_size, self.failed_of_rate()
        spread = math.sqrt(problem.dimension * math.log(n)) / (paper_epsilon(self.noise_multiplier) * n)
        private = math.pow(spread, 2.0 - 2.0 / problem.moments.order)
        rate = problem.moments.high**2 / problem.strong_convexity * (1.0 / n + private)
        return self._risk(
            "excess_risk_rate",
            None if failed else self.order_constant * rate,
            r"c \tfrac{\tilde r_{2k}^2}{\mu} \left(\tfrac1n + \left(\tfrac{\sqrt{d \ln n}}{\varepsilon_p n}\right)"
            r"^{(2k-2)/k}\right)",
            f"{PAPER}, Theorem 18",
            ProvenanceKind.ORDER,
            (*HOLDS, f"order_constant c = {self.order_constant:g}", *failed),
        )

    def _lower_bound(self) -> Provenance:
        p = self.problem
        value = strongly_convex_lower_bound(
            2.0 * p.moments.order, p.moments.bound_2k, p.strong_convexity, p.diameter, self.dataset_size, self.rho
        )
        return Provenance(
            "lower_bound",
            value,
            r"\tfrac{r^2}{\mu} \max\left\{\tfrac{1}{96 n},\, \tfrac{1}{16} q^{(4k-2)/(2k)}\right\},\;"
            r" r = \min(\tilde r_{2k}, \mu D),\; q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
            f"{PAPER}, Theorem 8 (constants derived, without the gain of sqrt(d))",
            ProvenanceKind.DERIVED,
            (
                "a lower bound on the worst problem with this r_2k, mu and at most this D (its lower moments "
                "may be larger than stated), for every algorithm that is as private as this plan in zCDP when "
                "a record is replaced",
            ),
            units=LOSS,
        )

    def _lower_rate(self) -> Provenance:
        p, c = self.problem, self.order_constant
        failed = failed_conditions(p.dimension, self.rho)
        rate = strongly_convex_lower_rate(
            2.0 * p.moments.order, p.moments.bound_2k, p.strong_convexity, p.dimension, self.dataset_size, self.rho
        )
        return Provenance(
            "lower_bound_rate",
            None if failed else c * rate,
            r"c \tfrac{\tilde r_{2k}^2}{\mu} \left(\tfrac1n + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}"
            r"^{(4k-2)/(2k)}\right),\; \rho = 2/z^2",
            f"{PAPER}, Theorem 8",
            ProvenanceKind.ORDER,
            (
                f"order_constant c = {c:g}",
                (
                    "the lower rate for the worst problem with this r_2k and mu, on a domain whose diameter is "
                    "about r_2k/mu"
                ),
                *(f"{words} fails here" for words in failed),
            ),
            units=LOSS,
        )
