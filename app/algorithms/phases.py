"""The HTTP form of the phases of plans."""

from __future__ import annotations

import typing
from dataclasses import fields
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Literal, Union

from pydantic import Field, create_model

from app.algorithms.geometry import GradientBoundBody
from app.kit.fields import Schema
from app.wire.events import EventSchema
from calibrators.phases import PHASES
from calibrators.phases.structured import StructuredPhase
from calibrators.plan import CorrelatedSteps


class GradientStepsBody(Schema):
    """Noisy gradient steps that are alike."""

    event: EventSchema
    gradient_bound: GradientBoundBody
    divisor: int
    step_size: float | list[float] | None = Field(description="One for all steps, or one for each.")


def _kind(word: str) -> Any:
    """Return the definition of a field `kind` that accepts only this word."""
    return Literal[word], ...


def _body_of(phase: type[StructuredPhase]) -> type[Schema]:
    """Return a schema with the fields of the phase, in their order. Its name is made from the phase's kind."""
    annotations = typing.get_type_hints(phase)
    described: dict[str, Any] = {"kind": _kind(phase.kind), "event": (EventSchema, ...)}
    described |= {
        field.name: (_as_list(annotations[field.name]), ...) for field in fields(phase) if field.name != "event"
    }
    name = "".join(word.capitalize() for word in phase.kind.split("_"))
    summary = (phase.__doc__ or "").split("\n", maxsplit=1)[0]
    return create_model(f"{name}Body", __base__=Schema, __doc__=summary, **described)


def _as_list(annotation: Any) -> Any:
    """Return the annotation with lists in place of tuples."""
    if typing.get_origin(annotation) is tuple:
        return GenericAlias(list, (_as_list(typing.get_args(annotation)[0]),))
    return annotation


CorrelatedStepsBody = create_model(
    "CorrelatedStepsBody",
    __base__=GradientStepsBody,
    __doc__="Noisy gradient steps whose noise is correlated over steps.",
    kind=_kind(CorrelatedSteps.kind),
    momentum=(float, ...),
)

if TYPE_CHECKING:  # type checkers cannot follow how the schemas are made
    PhaseBody = Schema
else:
    #: A phase of any kind; one without a kind is noisy gradient steps.
    PhaseBody = Union[(*map(_body_of, PHASES.values()), CorrelatedStepsBody, GradientStepsBody)]
