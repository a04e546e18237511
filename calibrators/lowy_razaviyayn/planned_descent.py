"""This module applies Theorem 20 to a plan. It states the recommended numbers and the bounds on the excess risk, each
with its source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.lower_bounds import strongly_convex_lower_bound, strongly_convex_lower_rate
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.planned_risk import STRONGLY_CONVEX_LOWER_RATE, PlannedRisk
from calibrators.lowy_razaviyayn.proximal_pl import ProximalPlProblem
from calibrators.provenance import GRADIENT, STEP, Provenance, ProvenanceKind

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    (
        "the population loss without the penalty is beta-smooth; with the penalty and on the domain, it satisfies "
        "the proximal PL inequality with mu"
    ),
    "at every point of the domain, and at the start, the clipped gradients have k-th moments of at most r_k^k",
    "the risk at the start exceeds the minimum by at most the initial gap",
)
_OWN_STEPS = "the step size is 1/(2 beta); this does not hold here"
_LONG_STEPS = "the step size is at most 1/beta; this does not hold here"


@dataclass(frozen=True, slots=True)
class PlannedDescent(PlannedRisk):
    """A plan of this algorithm, together with the constants that its theorem needs.

    Attributes:
        problem: The constants of the objective.
    """

    problem: ProximalPlProblem

    @property
    def _used_step_size(self) -> float:
        return self.problem.step_size if self.step_size is None else self.step_size

    @property
    def _is_covered(self) -> bool:
        return self.problem.covers(self._used_step_size)

    @property
    def _is_the_papers(self) -> bool:
        return math.isclose(self._used_step_size, self.problem.step_size, rel_tol=1e-12)

    def recommended(self) -> tuple[Provenance, ...]:
        """Return the T, s, C and step size that the theorem chooses for this plan's noise."""
        p, n, epsilon_p = self.problem, self.batches.dataset_size, self.batches.paper_epsilon
        derived, exact, theorem = ProvenanceKind.DERIVED, ProvenanceKind.EXACT, f"{PAPER}, Theorem 20"
        return (
            Provenance(
                "iterations",
                float(p.recommended_iterations(n, epsilon_p)),
                r"T = 2 \lceil \kappa \ln \max(e, \Delta\mu n/r_k^2) \rceil",
                f"{theorem} (derived: r_k^2/n replaces B^2 + Sigma^2, which depend on T)",
                derived,
            ),
            Provenance(
                "batch_size",
                float(self.batches.phase.divisor),
                r"s = \lfloor n/T \rfloor",
                f"{PAPER}, Algorithm 8",
                exact,
            ),
            Provenance(
                "max_grad_norm",
                p.clip_threshold(self._iterations, n, epsilon_p),
                r"C = r_k \left(\varepsilon_p^2 n^2/(d T^2)\right)^{1/(2k)},\; \varepsilon_p = 2/z",
                theorem,
                exact,
                units=GRADIENT,
            ),
            Provenance(
                "step_size", p.step_size, r"\eta = \tfrac{1}{2\beta}", f"{PAPER}, Algorithm 8", exact, units=STEP
            ),
        )

    @property
    def _largest_step_size(self) -> tuple[str, float]:
        return "1/beta", 1.0 / self.problem.smoothness

    def _bound(self) -> Provenance:
        value = None
        if self._is_covered:
            value = self.problem.evaluated_bound(self._used_step_size, *self.batches.errors())
        drawn = (
            ("B_t and Sigma^2 are for batches that records draw at random, so batch sizes vary",)
            if self.batches.are_drawn
            else ()
        )
        return self._risk(
            "excess_risk_bound",
            value,
            r"(1 - \mu\eta)^T \Delta + \tfrac\eta2 \sum_{t=0}^{T-1} (1 - \mu\eta)^{T-1-t} (\Sigma^2 + B_t^2),\;"
            r" B_t = \tfrac{(k-1)^{k-1}}{k^k} \tfrac{r_k^k}{C^{k-1}},\;"
            r" \Sigma^2 = d\sigma^2 + \tfrac{\min(r_2, C)^2}{s}",
            f"{PAPER}, Proposition 46 (constants derived, added up round by round)",
            ProvenanceKind.DERIVED,
            (*HOLDS, *drawn, *(() if self._is_covered else (_LONG_STEPS,))),
        )

    def _closed_form(self) -> Provenance:
        value = None
        if self._is_covered and not self._drawn:
            value = self.problem.closed_form(self._iterations, self._used_step_size, self.batches.oracle)
        return self._risk(
            "excess_risk_bound_closed_form",
            value,
            r"(1 - \mu\eta)^T \Delta + \tfrac{B^2 + \Sigma^2}{2\mu},\; B = \tfrac{r_k^k}{(k-1)C^{k-1}},\;"
            r" \Sigma^2 = d\sigma^2 + r_2^2/s",
            f"{PAPER}, Proposition 46 (constants derived)",
            ProvenanceKind.DERIVED,
            (*HOLDS, *self._drawn, *(() if self._is_covered else (_LONG_STEPS,))),
        )

    def _printed_bound(self) -> Provenance:
        holds = self._is_the_papers and not self._drawn
        return self._risk(
            "excess_risk_bound_printed",
            self.problem.printed_bound(self._iterations, self.batches.oracle) if holds else None,
            r"(1 - \tfrac{\mu}{2\beta})^T \Delta + \tfrac{4 (B^2 + \Sigma^2)}{\mu}",
            f"{PAPER}, Proposition 46",
            ProvenanceKind.EXACT,
            (*HOLDS, *self._drawn, *(() if self._is_the_papers else (_OWN_STEPS,))),
        )

    def _rate(self) -> Provenance:
        p, c, n = self.problem, self.order_constant, self.batches.dataset_size
        outside = (*self._drawn, *(() if self._is_the_papers else (_OWN_STEPS,)))
        if not p.is_well_conditioned(n):
            outside = (*outside, "kappa <= n / ln n; this does not hold here")
        return self._risk(
            "excess_risk_rate",
            None if outside else c * p.rate(n, self.batches.paper_epsilon),
            r"c \tfrac{r_k^2}{\mu}\left(\left(\tfrac{\sqrt d\, \kappa \ln n}{\varepsilon_p n}\right)^{(2k-2)/k}"
            r" + \tfrac{\kappa \ln n}{n}\right)",
            f"{PAPER}, Theorem 20",
            ProvenanceKind.ORDER,
            (*HOLDS, f"order_constant c = {c:g}", "T and C are the preset's", *outside),
        )

    def _lower_bound(self) -> Provenance:
        p, n = self.problem, self.batches.dataset_size
        # The hard problem starts at the centre of a ball of this diameter. There its excess risk is at most the initial
        # gap.
        diameter = 2.0 * math.sqrt(2.0 * p.initial_gap / p.pl_constant)
        return self._lower(
            strongly_convex_lower_bound(p.moments.order, p.moments.bound, p.pl_constant, diameter, n, self.batches.rho),
            r"\tfrac{r^2}{\mu}\max\left\{\tfrac{1}{96 n},\, \tfrac{1}{16} q^{(2k-2)/k}\right\},\;"
            r" r = \min(r_k, \sqrt{8\mu\Delta}),\; q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
            "Theorem 8",
            "a lower bound on the worst problem with these k, r_k, mu and initial gap (it is strongly convex "
            "on a ball), for every algorithm that is as private as this plan in zCDP when a record is replaced",
        )

    def _lower_rate(self) -> Provenance:
        p, n, rho = self.problem, self.batches.dataset_size, self.batches.rho
        return self._lower_order(
            strongly_convex_lower_rate(p.moments.order, p.moments.bound, p.pl_constant, p.dimension, n, rho),
            STRONGLY_CONVEX_LOWER_RATE,
            "Theorem 8",
            "the lower rate for the worst problem with these k, r_k and mu; its initial gap is about r_k^2/mu",
        )
