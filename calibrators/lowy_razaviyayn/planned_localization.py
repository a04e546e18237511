"""This module applies Theorem 12 to a plan. It states the recommended numbers and the bounds on the excess risk, each
with its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.localization import LocalizedProblem
from calibrators.lowy_razaviyayn.localized_setting import LocalizedRun, balanced_thresholds
from calibrators.lowy_razaviyayn.lower_bounds import convex_lower_bound, convex_lower_rate, failed_conditions
from calibrators.lowy_razaviyayn.moments import PAPER, trivial_excess_risk
from calibrators.lowy_razaviyayn.zcdp import paper_rho
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS, STEP, Provenance, ProvenanceKind, Units

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    "every record's loss is convex on the ball; it need not be smooth",
    "the largest subgradients of single records have the stated moments",
)
OWN_NUMBERS = "C_i and eta are the recommended ones; this does not hold here"
_DERIVED, _EXACT = ProvenanceKind.DERIVED, ProvenanceKind.EXACT


@dataclass(frozen=True, slots=True)
class PlannedLocalization:
    """A plan of localised steps, together with the constants that its theorem needs.

    Attributes:
        problem: The constants of the objective.
        runs: The runs of Algorithm 4, each with its localization.
        phase: The blocks of all runs.
        noise_multiplier: The noise multiplier z of the plan's single event.
        dataset_size: The declared number n of records.
        order_constant: The constant c of the rates.
        own_numbers: Whether the caller gave the clip threshold or the step size.
    """

    problem: LocalizedProblem
    runs: Sequence[LocalizedRun]
    phase: LocalizedPhase
    noise_multiplier: float
    dataset_size: int
    order_constant: float
    own_numbers: bool

    @property
    def rho(self) -> float:
        """The rho of the plan's noise in zCDP when a record is replaced."""
        return paper_rho(self.noise_multiplier)

    @property
    def records(self) -> int:
        """The number n of records of the first run: a power of two, unless the caller chose the number of blocks."""
        return 2 * self.runs[0].blocks.sizes[0]

    @property
    def trivial(self) -> float:
        """The bound on the excess risk that holds at every point of the domain, in loss units."""
        return trivial_excess_risk(self.problem.lipschitz_of_mean, self.problem.diameter, self.problem.strong_convexity)

    def recommended(self) -> tuple[Provenance, ...]:
        """Return the numbers that the theorem chooses for this plan's noise, one for each block in the order of the
        run.
        """
        step_sizes, strengths, radii, bounds, printed = self._of_blocks()
        theorem = f"{PAPER}, Theorem 12 (constants derived)"
        powers = tuple(run.blocks.power for run in self.runs)
        moments = self.problem.moments
        return (
            self._number("batch_size", self.phase.records, r"n_i = 2^{-i} n", f"{PAPER}, Algorithm 4", _EXACT),
            self._number(
                "inner_iterations",
                self.phase.inner_iterations,
                r"T_i = \lceil 2 n_i^p \ln(e + n_i^p) \rceil",
                theorem,
                _DERIVED,
            ),
            self._number(
                "localization_power",
                powers[0] if len(powers) == 1 else powers,
                r"p = \max(1, 1 + 2 \ln(L_f/\tilde r_{2k})/\ln n)"
                if moments.lipschitz is not None
                else self.power_without_bound,
                theorem,
                _DERIVED,
            ),
            self._number(
                "step_size",
                step_sizes,
                r"\eta_i = 4^{-i} \eta,\; \eta = \sqrt{a/b}",
                theorem,
                _DERIVED,
                STEP,
                "a step_size that the caller gives is eta; block i uses 4^(-i) times eta",
            ),
            self._number(
                "regularizer", strengths, r"\lambda_i = 1/(\eta_i n_i^p)", f"{PAPER}, Algorithm 4", _EXACT, SMOOTHNESS
            ),
            self._number("radius", radii, r"D_i = 2 L/\lambda_i", theorem, _DERIVED, PARAMETER),
            self._number(
                "max_grad_norm",
                bounds,
                r"C_i = \min\left\{L_f, \left(\tfrac54 \tfrac{\rho n_i^{2+p} \tilde r_{2k}^{2k}}{(k-1)^2 d T_i}"
                r"\right)^{1/(2k)}\right\},\; \rho = 2/z^2",
                theorem,
                _DERIVED,
                GRADIENT,
            ),
            self._number(
                "noise_stddev_on_mean",
                self.phase.noise_stddev_on_mean,
                r"\sigma_i = z C_i \sqrt{T_i}/n_i = \sqrt{2 C_i^2 T_i/(\rho n_i^2)}",
                f"{PAPER}, Algorithm 3 (z from the engine)",
                _EXACT,
                GRADIENT,
            ),
            self._number(
                "max_grad_norm_printed",
                printed,
                r"\tilde r_{2k} \left(\tfrac{\varepsilon_p n_i}{\sqrt{d \ln n}}\right)^{1/k},\; n_l = 1:\;"
                r" \tilde r_{2k} (\varepsilon_p/\sqrt d)^{1/k}",
                f"{PAPER}, proof of Theorem 12",
                _EXACT,
                GRADIENT,
                "the formula is known only up to a constant, which is taken as 1",
            ),
            *self._printed_step_size(),
        )

    def _printed_step_size(self) -> tuple[Provenance, ...]:
        power, known = self.runs[0].blocks.power, self.problem.moments.lipschitz is not None
        return (
            Provenance(
                "step_size_printed",
                self.problem.printed_step_size(self.records, power, self.noise_multiplier),
                r"\min\left\{\tfrac{\tilde r_{2k} D n^2}{\tilde r_1} \min\left\{\tfrac{1}{L_f},"
                r" \tfrac{1}{\tilde r_{2k}} (\tfrac{\varepsilon_p}{\sqrt d})^{(k-1)/k}\right\} Q,\,"
                r" \tfrac{D}{n^{p/2}} \min\left\{\tfrac{\sqrt n}{\tilde r_2 n^{p/2}}, \tfrac{1}{L_f},"
                r" \tfrac{1}{\tilde r_{2k} n^{p/2}} (\tfrac{\varepsilon_p n}{\sqrt{d \ln n}})^{(k-1)/k}"
                r"\right\}\right\}",
                f"{PAPER}, Theorem 12",
                _EXACT,
                (
                    *(() if known else ("this needs lipschitz, which is not given",)),
                    "the formula is known only up to constants, which are taken as 1",
                ),
                units=STEP,
            ),
        )

    @property
    def power_without_bound(self) -> str:
        """The formula of p if no bound on the largest gradient is known."""
        return r"p = 1 + \tfrac{1}{2k}"

    def utility(self) -> tuple[Provenance, ...]:
        """Return bounds and rates. If the conditions of one fail, it has no value, and its assumptions say why."""
        return (self._bound(), self._trivial(), self._rate(), self._lower_bound(), self._lower_rate())

    def _of_blocks(self) -> tuple[tuple[float, ...], ...]:
        """Return the recommended numbers of steps, regularisers, radii and thresholds of all blocks, and the printed
        thresholds.
        """
        found: list[tuple[float, ...]] = [()] * 5
        for run in self.runs:
            blocks, localization = run.blocks, run.localization
            assert localization is not None, "a planned localization always has a problem"
            eta, total = localization.best_step_size(run.start), 2 * blocks.sizes[0]
            numbers = (
                blocks.step_sizes(eta),
                blocks.regularizers(eta),
                localization.radii(eta),
                balanced_thresholds(self.problem, blocks.sizes, blocks.power, self.noise_multiplier),
                tuple(self.problem.printed_threshold(size, total, self.noise_multiplier) for size in blocks.sizes),
            )
            found = [before + more for before, more in zip(found, numbers, strict=True)]
        return tuple(found)

    def _bound(self) -> Provenance:
        return self._risk(
            "excess_risk_bound",
            self.runs[-1].bound,
            r"\tfrac{a}{\eta} + b\eta + \tilde r_1 D \zeta,\; a = \tfrac{2^{p+1} D^2}{n^p},\; b = \sum_{i \le l}"
            r"\tfrac{2 \tilde r_2^2 n_i^{p-1}}{4^i} + 2^{p+1} \sum_{i<l} \tfrac{V_i}{4^i} +"
            r" \tfrac{\tilde r_1 n_l^{p/2} \sqrt{V_l}}{4^l},\; V_i = 36 L^2 + 8\tilde r_2^2 + 8 d\sigma_i^2 +"
            r" \tfrac{20 n_i^p \tilde r_{2k}^{2k}}{(k-1)^2 C_i^{2k-2}}",
            f"{PAPER}, Theorem 12 (constants derived)",
            _DERIVED,
            (*HOLDS, self._reach()),
        )

    def _reach(self) -> str:
        if self.problem.moments.lipschitz is not None:
            return "no subgradient is longer than L_f: L = L_f, zeta = 0"
        zeta = self.runs[-1].localization
        assert zeta is not None, "a planned localization always has a problem"
        return (
            "L = r_2k (l/zeta)^(1/(2k)) bounds every block's mean except with probability zeta = "
            f"{zeta.failure_probability:.3g}; the bound includes this case"
        )

    def _trivial(self) -> Provenance:
        return Provenance(
            "trivial_excess_risk",
            self.trivial,
            r"\tilde r_1 D",
            "derived: the population loss is r_1-Lipschitz",
            _DERIVED,
            HOLDS[2:],
            units=LOSS,
        )

    def _rate(self) -> Provenance:
        failed = self.failed_of_rate()
        rate = self.problem.rate(self.records, self.noise_multiplier)
        return self._risk(
            "excess_risk_rate",
            None if failed else self.order_constant * rate,
            r"c\, \tilde r_{2k} D \left(n^{-1/2} + \left(\tfrac{\sqrt{d \ln n}}{\varepsilon_p n}\right)^{(k-1)/k}"
            r"\right)",
            f"{PAPER}, Theorem 12",
            ProvenanceKind.ORDER,
            (*HOLDS, f"order_constant c = {self.order_constant:g}", *failed),
        )

    def failed_of_rate(self) -> tuple[str, ...]:
        """Return the conditions of the rate that do not hold, in words."""
        large = f"epsilon_p <= sqrt(d), that is rho <= d/2; this does not hold here (rho is {self.rho:.4g})"
        return (
            *(() if 2.0 * self.rho <= self.problem.dimension else (large,)),
            *((OWN_NUMBERS,) if self.own_numbers else ()),
        )

    def _lower_bound(self) -> Provenance:
        moments = self.problem.moments
        value = convex_lower_bound(
            2.0 * moments.order, moments.bound_2k, 0.5 * self.problem.diameter, self.dataset_size, self.rho
        )
        return Provenance(
            "lower_bound",
            value,
            r"\tfrac{\tilde r_{2k} D}{2} \max\left\{\tfrac{1}{2\sqrt{6n}},\, \tfrac12 q^{(2k-1)/(2k)}\right\},\;"
            r" q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
            f"{PAPER}, Theorem 7 (constants derived, without the gain of sqrt(d))",
            _DERIVED,
            (
                "a lower bound on the worst problem with this r_2k and D (its losses are linear, and its lower "
                "moments may be larger than stated), for every algorithm that is as private as this plan in "
                "zCDP when a record is replaced",
            ),
            units=LOSS,
        )

    def _lower_rate(self) -> Provenance:
        moments, c = self.problem.moments, self.order_constant
        failed = failed_conditions(self.problem.dimension, self.rho)
        rate = convex_lower_rate(
            2.0 * moments.order,
            moments.bound_2k,
            self.problem.diameter,
            self.problem.dimension,
            self.dataset_size,
            self.rho,
        )
        return Provenance(
            "lower_bound_rate",
            None if failed else c * rate,
            r"c\, \tilde r_{2k} D \left(n^{-1/2} + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}^{(2k-1)/(2k)}"
            r"\right),\; \rho = 2/z^2",
            f"{PAPER}, Theorem 7",
            ProvenanceKind.ORDER,
            (
                f"order_constant c = {c:g}",
                "the lower rate for the worst problem with this r_2k and D",
                *(f"{words} fails here" for words in failed),
            ),
            units=LOSS,
        )

    def _risk(
        self,
        name: str,
        value: float | None,
        formula: str,
        source: str,
        kind: ProvenanceKind,
        assumptions: tuple[str, ...],
    ) -> Provenance:
        vacuous = None if value is None else value >= self.trivial
        return Provenance(name, value, formula, source, kind, assumptions, vacuous=vacuous, units=LOSS)

    def _number(
        self,
        name: str,
        value: float | Sequence[float],
        formula: str,
        source: str,
        kind: ProvenanceKind,
        units: Units = PURE,
        *assumptions: str,
    ) -> Provenance:
        number = tuple(map(float, value)) if isinstance(value, Sequence) else value
        return Provenance(name, number, formula, source, kind, assumptions, units=units)
