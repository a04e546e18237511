"""This module applies Theorem 9 to a plan. It states the recommended numbers and the bounds on the excess risk, each
with its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.lowy_razaviyayn.convex_smooth import ConvexSmoothProblem
from calibrators.lowy_razaviyayn.lower_bounds import convex_lower_bound, convex_lower_rate
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.planned_risk import PlannedRisk
from calibrators.provenance import GRADIENT, STEP, Provenance, ProvenanceKind

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    "the population loss, including the penalty, is convex and beta-smooth on the ball",
    "at every point of the ball the clipped gradients have k-th moments of at most r_k^k",
)
_OWN_STEPS = "the step size is the recommended one; this does not hold here"
_LONG_STEPS = "the step size is at most 1/(4 beta); this does not hold here"


@dataclass(frozen=True, slots=True)
class PlannedAcceleration(PlannedRisk):
    """A plan of this algorithm, together with the constants that its theorem needs.

    Attributes:
        problem: The constants of the objective.

    A ``step_size`` that the caller gives is 1 / (2 eta).
    """

    problem: ConvexSmoothProblem

    @property
    def recommended_step_size(self) -> float:
        """The step size 1 / (2 eta), with the eta that minimises the closed form at the plan's T, C and noise."""
        return 0.5 / self.problem.inverse_step(self._iterations, self.batches.oracle)

    @property
    def _used_step_size(self) -> float:
        return self.recommended_step_size if self.step_size is None else self.step_size

    @property
    def _inverse_step(self) -> float:
        return 0.5 / self._used_step_size

    @property
    def _is_covered(self) -> bool:
        return self.problem.covers(self._used_step_size)

    @property
    def _is_covered_in_closed_form(self) -> bool:
        return self.problem.covers_closed_form(self._used_step_size) and not self.batches.are_drawn

    def recommended(self) -> tuple[Provenance, ...]:
        """Return the T, s, C and step sizes that the theorem chooses for this plan's noise."""
        p, n, epsilon_p = self.problem, self.batches.dataset_size, self.batches.paper_epsilon
        printed = 0.5 / p.printed_inverse_step(self._iterations, self.batches.oracle)
        exact, theorem = ProvenanceKind.EXACT, f"{PAPER}, Theorem 9"
        return (
            Provenance(
                "iterations",
                float(p.recommended_iterations(n, epsilon_p)),
                r"T = \max(1, \lceil \min\{x^{2k/(5k-1)} (\varepsilon_p n/\sqrt d)^{(2k-2)/(5k-1)},"
                r" \sqrt x\, n^{1/4}\} \rceil),\; x = \beta D/r_k,\; \varepsilon_p = 2/z",
                theorem,
                exact,
            ),
            Provenance(
                "batch_size",
                float(self.batches.phase.divisor),
                r"s = \lfloor n/T \rfloor",
                f"{PAPER}, Algorithm 2",
                exact,
            ),
            Provenance(
                "max_grad_norm",
                p.clip_threshold(self._iterations, n, epsilon_p),
                r"C = r_k \left(\varepsilon_p n/\sqrt{d T}\right)^{1/k}",
                theorem,
                exact,
                units=GRADIENT,
            ),
            Provenance(
                "step_size",
                self.recommended_step_size,
                r"\tfrac{1}{2\eta},\; \eta = \max\{2\beta, \sqrt{(2T+1)T(T+1)/12}\,\sqrt{\Sigma^2 + B^2}/D\}",
                f"{PAPER}, Proposition 30 (constants derived); step t is t times as long",
                ProvenanceKind.DERIVED,
                units=STEP,
            ),
            Provenance(
                "step_size_printed",
                printed,
                r"\tfrac{1}{2\eta},\; \eta = \max\{2\beta, T^{3/2}\sqrt{\Sigma^2 + B^2}/D\}",
                f"{PAPER}, Proposition 30 and the proof of Theorem 9; step t is t times as long",
                exact,
                units=STEP,
            ),
        )

    @property
    def _largest_step_size(self) -> tuple[str, float]:
        return "1/(2 beta)", 0.5 / self.problem.smoothness

    def _bound(self) -> Provenance:
        value = None
        if self._is_covered:
            value = self.problem.evaluated_bound(self._inverse_step, *self.batches.errors())
        drawn = (
            ("B_t and Sigma^2 are for batches that records draw at random, so batch sizes vary",)
            if self.batches.are_drawn
            else ()
        )
        long = () if self._is_covered else ("the step size is at most 1/(2 beta); this does not hold here",)
        return self._risk(
            "excess_risk_bound",
            value,
            r"\tfrac{2}{T(T+1)}\left(\eta D^2 + \sum_{t=1}^T \tfrac{t^2 (t+1) (\Sigma^2 + B_t^2)}"
            r"{4 (\eta (t+1) - \beta t)} + D \sum_{t=1}^T t B_t\right),\; B_t = \tfrac{(k-1)^{k-1}}{k^k}"
            r"\tfrac{r_k^k}{C^{k-1}},\; \Sigma^2 = d\sigma^2 + \tfrac{\min(r_2, C)^2}{s}",
            f"{PAPER}, Proposition 30 (constants derived, added up round by round)",
            ProvenanceKind.DERIVED,
            (*HOLDS, *drawn, *long),
        )

    def _closed_form(self) -> Provenance:
        value = None
        if self._is_covered_in_closed_form:
            oracle = self.batches.oracle
            value = self.problem.closed_form(self._iterations, self._inverse_step, oracle.bias, oracle.variance)
        return self._risk(
            "excess_risk_bound_closed_form",
            value,
            r"\tfrac{2\eta D^2}{T(T+1)} + \tfrac{(2T+1)(\Sigma^2 + B^2)}{6\eta} + B D,\;"
            r" B = \tfrac{r_k^k}{(k-1)C^{k-1}},\; \Sigma^2 = d\sigma^2 + r_2^2/s",
            f"{PAPER}, Proposition 30 (constants derived)",
            ProvenanceKind.DERIVED,
            (*HOLDS, *self._outside_the_closed_form),
        )

    def _printed_bound(self) -> Provenance:
        value = None
        if self._is_covered_in_closed_form:
            value = self.problem.printed_bound(self._iterations, self._inverse_step, self.batches.oracle)
        return self._risk(
            "excess_risk_bound_printed",
            value,
            r"\tfrac{4\eta D^2}{T(T+1)} + \tfrac{4(T+2)(\Sigma^2 + B^2)}{3\eta} + B D",
            f"{PAPER}, Proposition 30",
            ProvenanceKind.EXACT,
            (*HOLDS, *self._outside_the_closed_form),
        )

    def _rate(self) -> Provenance:
        c, n = self.order_constant, self.batches.dataset_size
        outside = (*self._drawn, *((_OWN_STEPS,) if self.step_size is not None else ()))
        return self._risk(
            "excess_risk_rate",
            None if outside else c * self.problem.rate(n, self.batches.paper_epsilon),
            r"c\, r_k D \left(n^{-1/2} + \max\{(x^{1/4} a)^{4(k-1)/(5k-1)}, a^{(k-1)/k}\}\right),\;"
            r" x = \tfrac{\beta D}{r_k},\; a = \tfrac{\sqrt d}{\varepsilon_p n}",
            f"{PAPER}, Theorem 9",
            ProvenanceKind.ORDER,
            (*HOLDS, f"order_constant c = {c:g}", "T and C are the preset's", *outside),
        )

    def _lower_bound(self) -> Provenance:
        moments, n = self.problem.moments, self.batches.dataset_size
        return self._lower(
            convex_lower_bound(moments.order, moments.bound, 0.5 * self.problem.diameter, n, self.batches.rho),
            r"\tfrac{r_k D}{2} \max\left\{\tfrac{1}{2\sqrt{6n}},\, \tfrac12 q^{(k-1)/k}\right\},\;"
            r" q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
            "Theorem 7",
            "a lower bound on the worst problem with these k, r_k and D (its losses are linear), for every "
            "algorithm that is as private as this plan in zCDP when a record is replaced",
        )

    def _lower_rate(self) -> Provenance:
        p, n = self.problem, self.batches.dataset_size
        return self._lower_order(
            convex_lower_rate(p.moments.order, p.moments.bound, p.diameter, p.dimension, n, self.batches.rho),
            r"c\, r_k D \left(n^{-1/2} + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}^{(k-1)/k}\right),\;"
            r" \rho = 2/z^2",
            "Theorem 7",
            "the lower rate for the worst problem with these k, r_k and D",
        )

    @property
    def _outside_the_closed_form(self) -> tuple[str, ...]:
        long = () if self.problem.covers_closed_form(self._used_step_size) else (_LONG_STEPS,)
        return (*self._drawn, *long)
