"""Requests and answers of `/v1/calibrate` and `/v1/algorithms`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from app.algorithms.geometry import DomainBody, PenaltyBody
from app.kit.fields import Integer, Schema
from app.privacy.answers import IntervalBody


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
        SamplingChoice | None,
        BeforeValidator(_shorthand, json_schema_input_type=SamplingChoice | str | None),
        Field(
            description="One of the algorithm's `samplings`, whose first is the paper's own and the default; the bare "
            "kind as a string will do."
        ),
    ] = None
    neighboring_relation: NeighboringRelation | None = Field(
        None,
        strict=False,
        description="What differs between neighbouring data sets. Left out, it is that of the budget that is named, "
        "else the paper's own; the answer's `convention` tells which.",
    )
    gradient_bound: GradientBoundBody | None = Field(
        None, description="How each record's gradient is bounded; some algorithms derive it from their assumptions."
    )
    domain: DomainBody | None = Field(
        None, description="Where parameters are kept. Algorithms with a domain of their own take it from `assumptions`."
    )
    penalty: PenaltyBody | None = Field(None, description="Added to the mean loss; it costs no privacy.")
    hyperparameters: HyperparametersChoice = HyperparametersChoice(step_size=None)
    variant: str | None = Field(
        None, max_length=64, description="One of the algorithm's `variants`, whose first is the default."
    )
    assumptions: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={}, max_length=32, description="Constants of the problem; each algorithm's page names its own."
    )


class CertifiedBody(Schema):
    """Where a certified number comes from."""

    method: str = Field(description="The evaluator that gave the upper bound.")
    error_budget: dict[str, float] = Field(description="Width of the interval by its named sources of error.")


class AchievedBody(CertifiedBody):
    """Epsilon at the target's delta."""

    epsilon: IntervalBody
    delta: float


class AssumptionBody(Schema):
    """A constant of the problem."""

    name: str = Field(description="Inside `assumptions`.")
    symbol: str = Field(description="The paper's letter, LaTeX.")
    unit: str = Field(description="In units of the loss and of the parameters.")
    meaning: str
    lower: float
    upper: float
    required: bool = Field(description="Whether the theorem's numbers need it.")
    default: float | None


class AlgorithmBody(Schema):
    name: str
    summary: str
    source: str
    update: str = Field(description="One step, LaTeX.")
    samplings: list[str] = Field(description="The first is the paper's own, and the default.")
    neighboring_relations: list[str] = Field(description="The first is the paper's own, and the default.")
    gradient_bounds: list[str] = Field(description="Empty where the bound follows from the assumptions.")
    gradient_bound_required: bool
    variants: list[str] = Field(description="Forms of the algorithm, the default first; empty where it has but one.")
    assumptions: list[AssumptionBody]
    guarantee: str
    gradient_complexity: str = Field(description="Per-record gradients of a run, LaTeX.")
    verdict: str = Field(description="On the paper's own calibration; `literal` judges it at each request.")
    errata: list[str]
    models: list[str] = Field(description="Model kinds that a run of it can train.")


class AlgorithmDetails(AlgorithmBody):
    inputs: dict[str, Any] = Field(description="JSON schema of a calibration's request.")


class AlgorithmList(Schema):
    items: list[AlgorithmBody]
