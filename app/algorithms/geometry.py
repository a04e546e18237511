"""The HTTP form of domains, penalties and bounds on gradients, derived from the engine's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accounting.errors import inside
from app.wire.described import DescribedSchema, record_of, schema_of_any
from calibrators.geometry import DOMAINS, PENALTIES, Domain, Penalty
from calibrators.plan import GRADIENT_BOUNDS, GradientBound

if TYPE_CHECKING:  # type checkers cannot follow how the schemas are made
    DomainBody = DescribedSchema
    PenaltyBody = DescribedSchema
    GradientBoundBody = DescribedSchema
else:
    DomainBody = schema_of_any(DOMAINS, "Body", "Domain")
    PenaltyBody = schema_of_any(PENALTIES, "Body", "Penalty")
    GradientBoundBody = schema_of_any(GRADIENT_BOUNDS, "Body")


def to_domain(body: DomainBody | None) -> Domain | None:
    """Return the engine's domain.

    Raises:
        AccountingError: the domain is empty.
    """
    with inside("domain"):
        return None if body is None else record_of(body, DOMAINS)


def to_penalty(body: PenaltyBody | None) -> Penalty | None:
    return None if body is None else record_of(body, PENALTIES)


def to_gradient_bound(body: GradientBoundBody | None) -> GradientBound | None:
    return None if body is None else record_of(body, GRADIENT_BOUNDS)
