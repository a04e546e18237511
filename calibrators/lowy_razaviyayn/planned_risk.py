"""This module is shared by the paper's one-pass algorithms. It states the numbers of their theorems with sources, and
makes their calibrations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from calibrators.as_published import AsPublished
from calibrators.geometry import Domain
from calibrators.lowy_razaviyayn.lower_bounds import failed_conditions
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.one_pass import FIXED_BATCHES, PlannedBatches
from calibrators.noise import Steps, calibration_of
from calibrators.plan import Phase
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.release import LAST_ITERATE, Release
from calibrators.spec import Calibration, Spec

#: The lower bound for strongly convex problems up to a constant, for comparison with Theorems 11 and 20.
STRONGLY_CONVEX_LOWER_RATE = (
    r"c \tfrac{r_k^2}{\mu}\left(\tfrac1n + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}^{(2k-2)/k}\right)"
    r",\; \rho = 2/z^2"
)


class Problem(Protocol):
    """The constants of an objective."""

    @property
    def trivial_excess_risk(self) -> float:
        """The bound on the excess risk that holds before any step, in loss units. A larger bound is vacuous."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedRisk(ABC):
    """A planned pass, together with the constants that its theorem needs.

    Attributes:
        batches: The calls of the mean oracle.
        step_size: The caller's step size; None if the theorem chooses it.
        order_constant: The constant c of the rates.
        problem: The constants of the objective.
    """

    batches: PlannedBatches
    step_size: float | None
    order_constant: float
    problem: Problem

    @property
    def _iterations(self) -> int:
        """The number T of steps."""
        return self.batches.phase.steps

    @property
    @abstractmethod
    def _used_step_size(self) -> float:
        """The step size of the plan, which is the caller's or the theorem's."""

    @property
    @abstractmethod
    def _is_covered(self) -> bool:
        """Return whether the theorem covers the plan's step size."""

    @property
    @abstractmethod
    def _largest_step_size(self) -> tuple[str, float]:
        """The formula and the value of the largest step size that the theorem covers; None if there is no largest
        one.
        """

    @abstractmethod
    def recommended(self) -> tuple[Provenance, ...]:
        """Return the numbers that the theorem chooses for this plan's noise."""

    def warnings(self) -> tuple[str, ...]:
        """Return sentences about numbers that are left out."""
        if self._is_covered:
            return ()
        formula, largest = self._largest_step_size
        return (
            f"The theorem does not cover step_size {self._used_step_size:g}, because the largest that it covers "
            f"is {formula} = {largest:g}. The bounds on the excess risk are left out.",
        )

    def utility(self) -> tuple[Provenance, ...]:
        """Return bounds and rates. Those that do not cover this plan have no value, and their assumptions say why."""
        return (
            self._bound(),
            self._closed_form(),
            self._printed_bound(),
            self._rate(),
            self._lower_bound(),
            self._lower_rate(),
        )

    @abstractmethod
    def _bound(self) -> Provenance: ...

    @abstractmethod
    def _closed_form(self) -> Provenance: ...

    @abstractmethod
    def _printed_bound(self) -> Provenance: ...

    @abstractmethod
    def _rate(self) -> Provenance: ...

    @abstractmethod
    def _lower_bound(self) -> Provenance: ...

    @abstractmethod
    def _lower_rate(self) -> Provenance: ...

    @property
    def _drawn(self) -> tuple[str, ...]:
        """The assumptions about batches that closed forms and rates need and that this plan violates."""
        return (FIXED_BATCHES,) if self.batches.are_drawn else ()

    def _risk(
        self,
        name: str,
        value: float | None,
        formula: str,
        source: str,
        kind: ProvenanceKind,
        assumptions: tuple[str, ...],
    ) -> Provenance:
        vacuous = None if value is None else value >= self.problem.trivial_excess_risk
        return Provenance(name, value, formula, source, kind, assumptions, vacuous=vacuous, units=LOSS)

    def _lower(self, value: float, formula: str, theorem: str, worst: str) -> Provenance:
        """Return a certified lower bound. ``worst`` describes the hard problem."""
        source = f"{PAPER}, {theorem} (constants derived, without the gain of sqrt(d))"
        return Provenance("lower_bound", value, formula, source, ProvenanceKind.DERIVED, (worst,), units=LOSS)

    def _lower_order(self, rate: float, formula: str, theorem: str, worst: str) -> Provenance:
        """Return a lower bound that is known only up to a constant. It has no value if the theorem's conditions
        fail.
        """
        failed = failed_conditions(self.batches.dimension, self.batches.rho)
        return Provenance(
            "lower_bound_rate",
            None if failed else self.order_constant * rate,
            formula,
            f"{PAPER}, {theorem}",
            ProvenanceKind.ORDER,
            (
                f"order_constant c = {self.order_constant:g}",
                worst,
                *(f"{words} fails here" for words in failed),
            ),
            units=LOSS,
        )


def calibration_of_pass(
    algorithm: str,
    spec: Spec,
    steps: Steps,
    phase: Phase,
    planned: PlannedRisk | None,
    *,
    source: str,
    evaluations: str,
    domain: Domain | None,
    missing: tuple[str, ...],
    as_published: AsPublished | None,
    release: Release = LAST_ITERATE,
) -> Calibration:
    """Return the calibration of one pass. If the theorem's constants are given, it includes the theorem's numbers.

    Args:
        planned: The planned pass; None if the theorem lacks a constant.
        source: The place where the algorithm is printed.
        evaluations: The formula for the number of per-record gradients.
        algorithm, spec, steps, phase, domain, missing, as_published, release: As in `calibration_of`.
    """
    gradients = Provenance(
        "gradient_evaluations", float(phase.steps * phase.divisor), evaluations, source, ProvenanceKind.EXACT
    )
    return calibration_of(
        algorithm,
        spec,
        steps,
        phase,
        domain=domain,
        penalty=spec.penalty,
        release=release,
        hyperparameters=planned.recommended() if planned else (),
        utility=(gradients, *(planned.utility() if planned else ())),
        missing=missing,
        warnings=planned.warnings() if planned else (),
        as_published=as_published,
    )
