"""What the theorems of the paper's one-pass algorithms have in common, as numbers with their sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from calibrators.lowy_razaviyayn.lower_bounds import failed_conditions
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.one_pass import FIXED_BATCHES, PlannedBatches
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.units import LOSS

#: The lower rate of strongly convex problems, to which Theorems 11 and 20 are held.
STRONGLY_CONVEX_LOWER_RATE = (
    r"c \tfrac{r_k^2}{\mu}\left(\tfrac1n + \min\left\{1, \tfrac{\sqrt d}{\sqrt\rho n}\right\}^{(2k-2)/k}\right)"
    r",\; \rho = 2/z^2"
)


@dataclass(frozen=True, slots=True)
class PlannedRisk(ABC):
    """A planned pass, with what its theorem needs to know of it.

    Attributes:
        batches: The oracle's calls.
        step_size: The caller's own; None where it is the theorem's.
        order_constant: c of the rates.
    """

    batches: PlannedBatches
    step_size: float | None
    order_constant: float

    @property
    @abstractmethod
    def trivial_excess_risk(self) -> float:
        """What every point of the domain has at most: a bound above it says nothing."""

    def utility(self) -> tuple[Provenance, ...]:
        """Bounds and rates; those that this plan is outside of have no value, and their assumptions say why."""
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
        """What closed forms and rates assume of batches, where it fails."""
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
        vacuous = None if value is None else value >= self.trivial_excess_risk
        return Provenance(name, value, formula, source, kind, assumptions, vacuous=vacuous, units=LOSS)

    def _lower(self, value: float, formula: str, theorem: str, worst: str) -> Provenance:
        """A certified lower bound, of what ``worst`` says."""
        source = f"{PAPER}, {theorem} (constants derived, without the gain of sqrt(d))"
        return Provenance("lower_bound", value, formula, source, ProvenanceKind.DERIVED, (worst,), units=LOSS)

    def _lower_order(self, rate: float, formula: str, theorem: str, worst: str) -> Provenance:
        """A lower bound up to its constant; no value where the theorem's conditions fail."""
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
