"""Phases of plans as the HTTP contract writes them."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any, Literal, Union

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


class CorrelatedStepsBody(GradientStepsBody):
    """Noisy gradient steps whose noise is correlated over steps."""

    kind: Literal[CorrelatedSteps.kind]  # type: ignore[valid-type]  # one word, in one place
    momentum: float


def _body_of(phase: type[StructuredPhase]) -> type[Schema]:
    """The fields of the phase, in their order, named after its kind."""
    annotations = typing.get_type_hints(phase)
    described: dict[str, Any] = {"kind": (Literal[phase.kind], ...), "event": (EventSchema, ...)}
    described |= {
        field.name: (_as_list(annotations[field.name]), ...) for field in fields(phase) if field.name != "event"
    }
    name = "".join(word.capitalize() for word in phase.kind.split("_"))
    summary = (phase.__doc__ or "").split("\n", maxsplit=1)[0]
    return create_model(f"{name}Body", __base__=Schema, __doc__=summary, **described)


def _as_list(annotation: Any) -> Any:
    """Tuples are written as lists."""
    if typing.get_origin(annotation) is tuple:
        return list[_as_list(typing.get_args(annotation)[0])]  # type: ignore[misc]  # computed
    return annotation


#: A phase of any kind; one without a kind is noisy gradient steps.
PhaseBody = Union[(*map(_body_of, PHASES.values()), CorrelatedStepsBody, GradientStepsBody)]  # type: ignore[valid-type]
