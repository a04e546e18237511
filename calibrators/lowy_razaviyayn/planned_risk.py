"""Shared code of the paper's one-pass algorithms: numbers of their theorems with sources, and their answer."""

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

#: The lower rate of strongly convex problems, with which Theorems 11 and 20 are compared.
STRONGLY_CONVEX_LOWER_RATE = (
    r"c \tfrac{r_k^2}{\mu}\left(\tfrac1n + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}^{(2k-2)/k}\right)"
    r",\; \rho = 2/z^2"
)


class Problem(Protocol):
    """Constants of an objective."""

    @property
    def trivial_excess_risk(self) -> float:
        """The bound that holds without a step, in loss units: a larger bound says nothing."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedRisk(ABC):
    """A planned pass, with the facts that its theorem needs.

    Attributes:
        batches: The oracle's calls.
        step_size: The caller's own step size; None if it is the theorem's.
        order_constant: c of the rates.
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
        """The step size of the plan: the caller's, or the theorem's."""

    @property
    @abstractmethod
    def _is_covered(self) -> bool:
        """Return whether the theorem holds at that step size."""

    @property
    @abstractmethod
    def _largest_step_size(self) -> tuple[str, float]:
        """The largest step size that the theorem covers, if there is one: its formula and its value."""

    @abstractmethod
    def recommended(self) -> tuple[Provenance, ...]:
        """Return the numbers that the theorem would take with this plan's noise."""

    def warnings(self) -> tuple[str, ...]:
        """Return sentences for numbers that are left out."""
        if self._is_covered:
            return ()
        formula, largest = self._largest_step_size
        return (
            f"the theorem does not cover the step size {self._used_step_size:g}: the largest is {formula} = "
            f"{largest:g}. The bounds on the excess risk are left out.",
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
        """The assumptions of closed forms and rates about batches that this plan violates."""
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
        """Return a certified lower bound; ``worst`` names the hard problem."""
        source = f"{PAPER}, {theorem} (constants derived, without the gain of sqrt(d))"
        return Provenance("lower_bound", value, formula, source, ProvenanceKind.DERIVED, (worst,), units=LOSS)

    def _lower_order(self, rate: float, formula: str, theorem: str, worst: str) -> Provenance:
        """Return a lower bound up to its constant. It has no value if the theorem's conditions fail."""
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
    """Return the answer of one pass, with the statements of the theorem if its constants are given.

    Args:
        planned: The planned pass; None if the theorem lacks a constant.
        source: The place where the algorithm is printed.
        evaluations: Formula of the number of per-record gradients.
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
