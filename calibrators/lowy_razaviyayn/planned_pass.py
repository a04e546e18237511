"""This module applies Theorem 11 to a plan. It states the recommended numbers and the bounds on the excess risk, each
with its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.lowy_razaviyayn.lower_bounds import strongly_convex_lower_bound, strongly_convex_lower_rate
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.planned_risk import STRONGLY_CONVEX_LOWER_RATE, PlannedRisk
from calibrators.lowy_razaviyayn.stich_schedule import Schedule
from calibrators.lowy_razaviyayn.strongly_convex import StronglyConvexProblem
from calibrators.provenance import GRADIENT, STEP, Provenance, ProvenanceKind

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    "the population loss, including the penalty, is mu-strongly convex and beta-smooth on the ball",
    "at every point of the ball the clipped gradients have k-th moments of at most r_k^k",
)
_OWN_SCHEDULE = "the step sizes are those of the theorem's schedule; this does not hold here"


@dataclass(frozen=True, slots=True)
class PlannedPass(PlannedRisk):
    """A plan of this algorithm, together with the constants that its theorem needs.

    Attributes:
        problem: The constants of the objective.
        schedule: The step sizes and weights. They are the theorem's if ``step_size`` is None.
    """

    problem: StronglyConvexProblem
    schedule: Schedule

    @property
    def _iterations(self) -> int:
        return self.batches.phase.steps - 1

    @property
    def _outside_the_theorem(self) -> tuple[str, ...]:
        """Return the conditions of the theorem that this plan does not meet, in words."""
        return (*self._drawn, _OWN_SCHEDULE) if self.step_size is not None else self._drawn

    def recommended(self) -> tuple[Provenance, ...]:
        """Return the T, s, C and step sizes that the theorem chooses for this plan's noise."""
        p, n, epsilon_p = self.problem, self.batches.dataset_size, self.batches.paper_epsilon
        derived, exact = ProvenanceKind.DERIVED, ProvenanceKind.EXACT
        preset = p.recommended_iterations(n, epsilon_p)
        clip = p.clip_threshold(self._iterations, n, epsilon_p)
        steps = p.schedule(self._iterations).step_sizes
        theorem = f"{PAPER}, Theorem 11"
        return (
            Provenance(
                "iterations",
                float(preset),
                r"T = \max(1, \lceil 4 (\kappa + \tfrac12) \ln X \rceil),\; X = \tfrac{\mu\beta D^2}{r_k^2}"
                r"\left(n + (\varepsilon_p^2 n^2/d)^{(k-1)/k}\right),\; \varepsilon_p = 2/z",
                f"{theorem} (derived: kappa + 1/2 replaces kappa)",
                derived,
            ),
            Provenance(
                "batch_size",
                float(self.batches.phase.divisor),
                r"s = \lfloor n/(T+1) \rfloor",
                f"{PAPER}, Algorithm 6 (n/T there: derived)",
                derived,
            ),
            Provenance(
                "max_grad_norm",
                clip,
                r"C = r_k \left(\varepsilon_p^2 n^2/(d T)\right)^{1/(2k)}",
                theorem,
                exact,
                units=GRADIENT,
            ),
            Provenance(
                "step_size",
                steps,
                r"\eta_t = 1/g \;(t < t_0 \text{ or } T \le g/a),\; \eta_t = 2/(a (K + t - t_0)) \;(t \ge t_0),\;"
                r" a = \mu/2,\; g = \beta + \mu/2,\; K = 2g/a,\; t_0 = \lceil T/2 \rceil",
                f"{PAPER}, Lemma 33 after Stich 2019 (schedule derived)",
                derived,
                units=STEP,
            ),
        )

    @property
    def _largest_step_size(self) -> tuple[str, float]:
        return "1/(beta + mu/2)", 1.0 / self.problem.inverse_step

    @property
    def _used_step_size(self) -> float:
        assert self.step_size is not None, "called only if the caller chose the step size"
        return self.step_size

    @property
    def _is_covered(self) -> bool:
        return self.step_size is None or self.problem.covers(self.step_size)

    def _bound(self) -> Provenance:
        value = None
        oracle, n = self.batches.oracle, self.batches.dataset_size
        if self._is_covered and self.batches.are_drawn:
            value = self.problem.evaluated_bound_of_drawn_batches(self.schedule, oracle, n)
        elif self._is_covered:
            value = self.problem.evaluated_bound(self.schedule, oracle)
        return self._risk(
            "excess_risk_bound",
            value,
            r"\tfrac{1}{2Z}\left(\tfrac{\zeta_{t_1}}{\eta_{t_1}}(1 - \tfrac\mu2\eta_{t_1}) r_{t_1} + \sum_{t \ge t_1}"
            r"\zeta_t (2\Sigma^2\eta_t + 4 B^2/\mu)\right),\; r_{t+1} = (1 - \tfrac\mu2\eta_t) r_t + 2\Sigma^2\eta_t^2"
            r" + 4 B^2\eta_t/\mu,\; r_0 = D^2,\; B = \tfrac{(k-1)^{k-1}}{k^k}\tfrac{r_k^k}{C^{k-1}},\;"
            r" \Sigma^2 = d\sigma^2 + \tfrac{\min(r_2, C)^2}{s}",
            f"{PAPER}, Proposition 32 (constants derived, evaluated at the plan's step sizes)",
            ProvenanceKind.DERIVED,
            self._bound_conditions(),
        )

    def _closed_form(self) -> Provenance:
        return self._risk(
            "excess_risk_bound_closed_form",
            None if self._outside_the_theorem else self.problem.closed_form(self._iterations, self.batches.oracle),
            r"\tfrac\mu2 D^2 e^{-\mu T/(4g)} + \tfrac{20\Sigma^2}{\mu T} + \tfrac{6B^2}{\mu} \;(T > 2\kappa + 1);\;"
            r" \tfrac12\left(g D^2 e^{-\mu(T+1)/(2g)} + \tfrac{2\Sigma^2}{g} + \tfrac{4B^2}{\mu}\right) \;(T \le"
            r" 2\kappa + 1),\; B = \tfrac{r_k^k}{(k-1)C^{k-1}},\; \Sigma^2 = d\sigma^2 + r_2^2/s",
            f"{PAPER}, Proposition 32 (constants derived)",
            ProvenanceKind.DERIVED,
            self._conditions(),
        )

    def _printed_bound(self) -> Provenance:
        return self._risk(
            "excess_risk_bound_printed",
            None if self._outside_the_theorem else self.problem.printed_bound(self._iterations, self.batches.oracle),
            r"32\beta D^2 e^{-T/(4\kappa)} + \tfrac{72\Sigma^2}{\mu T} + \tfrac{2B^2}{\mu}",
            f"{PAPER}, Proposition 32 as printed",
            ProvenanceKind.ORDER,
            self._conditions(
                "not a valid bound: the proof returns an iterate that the algorithm cannot identify. It needs "
                "step sizes of at most 1/beta; the constants 32, 72 and 2 are the paper's"
            ),
        )

    def _rate(self) -> Provenance:
        c, n = self.order_constant, self.batches.dataset_size
        conditioned = self.problem.is_well_conditioned(n)
        rate = None
        if conditioned and not self._outside_the_theorem:
            rate = c * self.problem.rate(n, self.batches.paper_epsilon)
        failed = () if conditioned else ("kappa <= n / ln n; this does not hold here",)
        return self._risk(
            "excess_risk_rate",
            rate,
            r"c \tfrac{r_k^2}{\mu}\left(\tfrac1n + \left(\tfrac{\sqrt{d\kappa\ln n}}{\varepsilon_p n}\right)"
            r"^{(2k-2)/k}\right)",
            f"{PAPER}, Theorem 11",
            ProvenanceKind.ORDER,
            self._conditions(f"order_constant c = {c:g}", "T and C are the preset's", *failed),
        )

    def _lower_bound(self) -> Provenance:
        p, n = self.problem, self.batches.dataset_size
        return self._lower(
            strongly_convex_lower_bound(
                p.moments.order, p.moments.bound, p.strong_convexity, p.diameter, n, self.batches.rho
            ),
            r"\tfrac{r^2}{\mu}\max\left\{\tfrac{1}{96 n},\, \tfrac{1}{16} q^{(2k-2)/k}\right\},\;"
            r" r = \min(r_k, \mu D),\; q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
            "Theorem 8",
            "a lower bound on the worst problem with these k, r_k, mu and at most this D, for every algorithm "
            "that is as private as this plan in zCDP when a record is replaced",
        )

    def _lower_rate(self) -> Provenance:
        p, n, rho = self.problem, self.batches.dataset_size, self.batches.rho
        return self._lower_order(
            strongly_convex_lower_rate(p.moments.order, p.moments.bound, p.strong_convexity, p.dimension, n, rho),
            STRONGLY_CONVEX_LOWER_RATE,
            "Theorem 8",
            "the lower rate for the worst problem with these k, r_k and mu, on a domain whose diameter is about r_k/mu",
        )

    def _bound_conditions(self) -> tuple[str, ...]:
        drawn = (
            ("B and Sigma^2 are for batches that records draw at random, so batch sizes vary",)
            if self.batches.are_drawn
            else ()
        )
        long = () if self._is_covered else ("every step size is at most 1/(beta + mu/2); this does not hold here",)
        return (*HOLDS, *drawn, *long)

    def _conditions(self, *more: str) -> tuple[str, ...]:
        return (*HOLDS, *more, *self._outside_the_theorem)
