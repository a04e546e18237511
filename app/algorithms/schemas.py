"""Requests and answers of `/v1/calibrate` and `/v1/algorithms`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from app.kit.fields import Integer, Schema
from app.privacy.answers import IntervalBody
from app.privacy.schemas import EventSchema


class ClipBody(Schema):
    """Clip each record's gradient to an l2 norm."""

    kind: Literal["clip"]
    max_grad_norm: float = Field(gt=0, le=1e12, description="Clip threshold, in gradient units.")


class NormalizeBody(Schema):
    """Divide each record's gradient by (regularizer + its l2 norm)."""

    kind: Literal["normalize"]
    regularizer: float = Field(ge=0, le=1e12, description="In gradient units. It never scales the noise.")


GradientBoundBody = Annotated[ClipBody | NormalizeBody, Field(discriminator="kind")]


class SamplingChoice(Schema):
    """A sampling scheme without what follows from the public sizes."""

    kind: str = Field(max_length=64)


def _shorthand(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class ApproximateDpTargetBody(Schema):
    """(epsilon, delta) of the whole run."""

    kind: Literal["approximate_dp"]
    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(ge=1e-30, le=0.5)


class HyperparametersChoice(Schema):
    """Values of the caller's own, in place of the theorem's."""

    step_size: float | None = Field(None, gt=0, le=1e12, description="Factor of the update.")


class AlgorithmFields(Schema):
    """What a calibration and a run have in common."""

    algorithm: str = Field(max_length=64, description="A name from `GET /v1/algorithms`.")
    batch_size: Integer | None = Field(
        None,
        ge=1,
        le=MAX_DATASET_SIZE,
        description="Nominal batch size: sampling probability times data set size, and the public divisor of the noisy "
        "sum. May be left out for full_batch.",
    )
    iterations: Integer | None = Field(None, ge=1, le=MAX_COUNT, description="Number of steps; or give `epochs`.")
    epochs: float | None = Field(
        None, gt=0, le=1e8, description="Expected passes over the data, in place of iterations."
    )
    sampling: Annotated[
        SamplingChoice,
        BeforeValidator(_shorthand, json_schema_input_type=SamplingChoice | str),
        Field(description="`poisson` or `full_batch`; the bare kind as a string will do."),
    ]
    neighboring_relation: NeighboringRelation = Field(
        NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False, description="What differs between neighbouring data sets."
    )
    gradient_bound: GradientBoundBody
    hyperparameters: HyperparametersChoice = HyperparametersChoice(step_size=None)
    assumptions: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={}, max_length=32, description="Constants of the problem; each algorithm's page names its own."
    )


class AlgorithmChoice(AlgorithmFields):
    """What a run chooses: everything but the noise, which its target decides."""

    target: ApproximateDpTargetBody
    solve_for: Literal["noise_multiplier"] = "noise_multiplier"


class CertifiedBody(Schema):
    """Where a certified number comes from."""

    method: str = Field(description="The evaluator that gave the upper bound.")
    error_budget: dict[str, float] = Field(description="Width of the interval by its named sources of error.")


class AchievedBody(CertifiedBody):
    """Epsilon at the target's delta."""

    epsilon: IntervalBody
    delta: float


class NoiseBody(Schema):
    stddev_on_sum: float = Field(description="Per coordinate, in the unit of one record's contribution.")
    stddev_on_mean: float = Field(description="After division by the public batch size.")
    l2_sensitivity: float = Field(description="Largest distance of the sums of two neighbours, same unit.")


class PhaseBody(Schema):
    """Steps that are alike."""

    event: EventSchema
    gradient_bound: GradientBoundBody
    divisor: int
    step_size: float | None


class PlanBody(Schema):
    """What a run would execute and a ledger would charge."""

    algorithm: str
    dataset_size: int
    neighboring_relation: str
    phases: list[PhaseBody]
    engine: str


class AssumptionBody(Schema):
    name: str
    symbol: str
    unit: str
    meaning: str


class AlgorithmBody(Schema):
    name: str
    summary: str
    source: str
    update: str = Field(description="One step, LaTeX.")
    samplings: list[str]
    neighboring_relations: list[str]
    gradient_bounds: list[str]
    assumptions: list[AssumptionBody]
    guarantee: str
    gradient_complexity: str
    errata: list[str]
    models: list[str] = Field(description="Model kinds that a run of it can train.")


class AlgorithmDetails(AlgorithmBody):
    inputs: dict[str, Any] = Field(description="JSON schema of a calibration's request.")


class AlgorithmList(Schema):
    items: list[AlgorithmBody]
