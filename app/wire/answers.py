"""Answer objects that every privacy answer shares: intervals, conventions, provenance."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Self

from pydantic import Field

from accounting.intervals import Answer, Interval
from app.kit.fields import Schema
from calibrators.choices import Choice
from calibrators.provenance import Provenance, ProvenanceKind


class IntervalBody(Schema):
    """`lower <= truth <= upper`. A bound that is not finite is null, and a warning says why."""

    lower: float | None = Field(description="The cost of an attained pair of distributions.")
    estimate: float | None = Field(description="The best single number.")
    upper: float | None = Field(description="A proved upper bound, which a ledger charges.")

    @classmethod
    def of(cls, interval: Interval) -> Self:
        return cls(lower=_finite(interval.lower), estimate=_finite(interval.estimate), upper=_finite(interval.upper))


class ConventionBody(Schema):
    """The convention of the numbers in a privacy answer. Conventions in the literature differ by factors of 2."""

    neighboring_relation: str
    contribution_bound: str
    sensitivity: float = Field(
        description="The largest distance between the sums of two neighbours, in units of the bound C."
    )
    norm: str
    noise_multiplier_is: str
    normalization: str
    sampling_probability: float | None = Field(None, description="Given if it is the same for every event.")


class ProvenanceBody(Schema):
    """A number with its formula and its theorem."""

    name: str
    value: float | list[float] | None = Field(
        description="A list has one value per step or phase; null if the formula's conditions fail."
    )
    unit: str = Field(
        "", description="Its unit, in units of the loss and of the parameters; empty if an older run did not record it."
    )
    formula: str = Field(description="LaTeX.")
    source: str = Field(description="Paper, theorem, equation.")
    kind: ProvenanceKind = Field(strict=False, description="`exact`, `derived` or `order` (known up to a constant).")
    assumptions: list[str]
    vacuous: bool | None = Field(
        description="Whether a bound is worse than the trivial one; null if that has no meaning."
    )

    @classmethod
    def of(cls, provenance: Provenance) -> Self:
        return cls(
            name=provenance.name,
            value=list(provenance.value) if isinstance(provenance.value, tuple) else provenance.value,
            unit=str(provenance.units),
            formula=provenance.formula,
            source=provenance.source,
            kind=provenance.kind,
            assumptions=list(provenance.assumptions),
            vacuous=provenance.vacuous,
        )


class ChoiceBody(Schema):
    """A value that the request left out. It was chosen from public numbers only."""

    name: str = Field(description="The member of a request that holds it, such as `hyperparameters.step_size`.")
    value: Any = Field(description="The value, as a request would give it.")
    reason: str
    source: str = Field(description="The paper, or where the value was tuned.")
    theorem: Any = Field(
        description="The value that the paper's theorem would have chosen. Null if no theorem chooses it, or if a "
        "constant of the theorem is not known; `theorem_reason` says which."
    )
    theorem_reason: str = Field(
        default="",
        description="A sentence that says where the theorem's value comes from, or why there is none. Empty in runs "
        "that were stored before answers had this member.",
    )

    @classmethod
    def of(cls, choice: Choice) -> Self:
        return cls(**asdict(choice))


def error_budget(answer: Answer) -> dict[str, float]:
    """Return the named terms of the interval's width. A term without a finite bound is left out, and a warning mentions
    it."""
    return {name: width for name, width in answer.error_budget.items() if math.isfinite(width)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
