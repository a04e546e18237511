"""Requests and answers of `/v1/calibrate` and `/v1/algorithms`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from accounting.events.correlated_gaussian import MOST_LISTED
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from app.algorithms.geometry import DomainBody, GradientBoundBody, PenaltyBody
from app.kit.fields import INTEGRAL, Integer, OptionalInteger, Schema
from app.wire.answers import IntervalBody
from calibrators.algorithm import Assumption
from calibrators.correlation import USUAL_MAX_BANDS, Objective
from calibrators.presets import Preset
from calibrators.stages import MAX_STAGES
from calibrators.step_sizes import Course


class SamplingChoice(Schema):
    """A sampling scheme. Its rates follow from the public sizes."""

    kind: str = Field(max_length=64)
    max_batch_size: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_DATASET_SIZE,
        description="The most records in a batch of `truncated_poisson`, which needs this number. A larger batch keeps "
        "a uniformly random subset.",
    )


def _shorthand(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class NumericType(StrEnum):
    """The type in which a run stores its rows and computes logits and sums. The privacy is the same with each type."""

    FLOAT32 = "float32"
    """Half the memory, and about 0.6 of the time of a step; contributions stay below their bound by 2^-7 of it."""
    FLOAT64 = "float64"
    """More digits; contributions stay below their bound by 1e-5 of it."""


DtypeName = Literal["float32", "float64"]


class StepSizeScheduleChoice(Schema):
    """How step sizes change over a run, where `step_size` is the largest. The kind alone, as a string, is accepted,
    too."""

    kind: Course = Field(
        strict=False,
        description="`constant`, or a fall towards the end of the run, `linear` or along half a `cosine`.",
    )
    cooldown: float = Field(
        1.0, gt=0, le=1, description="The share of the steps, at the end of the run, in which the step sizes fall."
    )
    final_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="The step size at the end of the fall, divided by `step_size`; the step after the last one would "
        "have it.",
    )


class HyperparametersChoice(Schema):
    """Your own values of parameters, in place of the theorem's."""

    step_size: float | None = Field(None, gt=0, le=1e12, description="The factor that multiplies the update.")
    step_size_schedule: Annotated[
        StepSizeScheduleChoice | None,
        BeforeValidator(_shorthand, json_schema_input_type=StepSizeScheduleChoice | str | None),
        Field(
            description="How step sizes change over the run; only for algorithms with correlated noise, whose "
            "coefficients are fitted to them. If left out, they do not change.",
            examples=["linear"],
        ),
    ] = None
    averaged_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the steps, at the end, whose points are averaged; only for algorithms whose theorem "
        "does not say which point is released. If it is left out and a step size is given, the last point is released.",
    )
    momentum: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="How much of the last step goes into the next one; only for algorithms with correlated noise. If "
        "left out, 0.",
    )


def _no_number(value: Any) -> Any:
    return None if value == "auto" else value


class CorrelationChoice(Schema):
    """How the noise of successive steps is correlated: by a banded matrix. The answer has its coefficients."""

    bands: Annotated[
        int | None, INTEGRAL, BeforeValidator(_no_number, json_schema_input_type=int | Literal["auto"] | None)
    ] = Field(
        None,
        ge=1,
        le=MOST_LISTED,
        description="The number of steps whose noise enters a step, its own included. With `auto`, or if left out, "
        "1, 2, 4, ... are tried and the one with the least error is taken; the unknown is then the noise.",
        examples=["auto", 8],
    )
    objective: Objective = Field(
        Objective.MEAN,
        strict=False,
        description="`mean`: the root mean square over the steps of the error of the sums that training follows. "
        "`max`: the largest of these errors, which is that of the last step.",
    )
    max_bands: Integer = Field(
        USUAL_MAX_BANDS,
        ge=1,
        le=MOST_LISTED,
        description="The largest number that is tried: a run keeps 4 bytes per parameter for each band after the "
        "first.",
    )


class StageBody(Schema):
    """A stage of equal steps."""

    iterations: Integer = Field(ge=1, le=MAX_COUNT, description="Number of steps.")
    batch_size: Integer = Field(ge=1, le=MAX_DATASET_SIZE, description="Nominal batch size, and the public divisor.")
    noise_factor: float = Field(
        1.0, ge=1e-3, le=1e3, description="Noise of these steps, divided by the noise multiplier."
    )
    step_size: float | None = Field(None, gt=0, le=1e12, description="If left out, that of `hyperparameters`.")


class ScheduleChoice(Schema):
    """A training in stages whose steps differ."""

    stages: list[StageBody] = Field(min_length=1, max_length=MAX_STAGES, description="The stages in their order.")


class AlgorithmFields(Schema):
    """The fields that calibrations and runs share."""

    algorithm: str | None = Field(
        None,
        max_length=64,
        description="A name from `GET /v1/algorithms`. If left out, the preset `practical` chooses one: `dp_adam`, or "
        "the first that trains the model.",
    )
    preset: Preset | None = Field(
        None,
        strict=False,
        description="How to choose what the request leaves out, from public numbers alone. `practical`: "
        "by rules that are known to train well. `theorem`: by the paper's theorem. If left out, a run takes "
        "`practical`, but `theorem` where `assumptions` are given; a calibration that names its algorithm takes what "
        "it is given and chooses nothing else. The answer's `choices` name each value, its reason, and the theorem's "
        "value.",
    )
    batch_size: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_DATASET_SIZE,
        description="Nominal batch size: sampling probability times data set size, and the public divisor of the noisy "
        "sum. May be left out for full_batch.",
    )
    iterations: OptionalInteger = Field(
        None, ge=1, le=MAX_COUNT, description="Number of steps. You may give `epochs` instead."
    )
    epochs: float | None = Field(
        None, gt=0, le=1e8, description="Expected passes over the data, in place of iterations."
    )
    schedule: ScheduleChoice | None = Field(
        None,
        description="Stages with batch sizes, noise and step sizes of their own, in place of `batch_size`, "
        "`iterations` and `epochs`. One noise multiplier is solved for, and the noise of each stage is its "
        "`noise_factor` times that. For `dp_sgd`, `dp_nsgd`, `dp_adam` and `dp_nadam`.",
    )
    sampling: Annotated[
        SamplingChoice | None,
        BeforeValidator(_shorthand, json_schema_input_type=SamplingChoice | str | None),
        Field(
            description="One of the algorithm's `samplings`; the kind alone, as a string, is accepted. If left out, it "
            "is "
            "the first that is accounted under the relation, which is poisson for DP-SGD and similar algorithms; a "
            "preset may take full batches."
        ),
    ] = None
    neighboring_relation: NeighboringRelation | None = Field(
        None,
        strict=False,
        description="What differs between neighbouring data sets. If left out, it is that of the budget that is "
        "named; without a budget, it is the first of the algorithm's relations under which the sampling is accounted, "
        "which is add_or_remove_one for Poisson batches. The answer's `convention` says which.",
    )
    gradient_bound: GradientBoundBody | None = Field(
        None, description="How each record's gradient is bounded; some algorithms derive it from their assumptions."
    )
    domain: DomainBody | None = Field(
        None,
        description="The set to which parameters are confined. Algorithms with their own take it from `assumptions`.",
    )
    penalty: PenaltyBody | None = Field(None, description="Added to the mean loss; it costs no privacy.")
    hyperparameters: HyperparametersChoice = HyperparametersChoice(
        step_size=None, step_size_schedule=None, averaged_share=None, momentum=None
    )
    correlation: CorrelationChoice | None = Field(
        None, description="How noise is correlated over steps. Algorithms that do not correlate it refuse this."
    )
    variant: str | None = Field(
        None, max_length=64, description="One of the algorithm's `variants`; the first is the default."
    )
    dtype: DtypeName | None = Field(
        None,
        description="The numeric type in which a run stores the rows and computes logits and sums. If left out, it is "
        "`float32`, which halves the memory of the rows, or `float64` for a plan that float32 would not help; then "
        "`dtype_reason` says why. It is part of the plan and its hash, and costs no privacy.",
        examples=["float32", "float64"],
    )
    assumptions: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={},
        max_length=32,
        description="Constants of the problem; each algorithm's page lists those that it takes.",
    )


class CertifiedBody(Schema):
    """The evaluator behind a certified number, and the sources of its error."""

    method: str = Field(description="The evaluator that gave the upper bound.")
    error_budget: dict[str, float] = Field(
        description="The width of the interval, split into its named sources of error."
    )


class AchievedBody(CertifiedBody):
    """The achieved epsilon at the target's delta."""

    epsilon: IntervalBody
    delta: float


class AssumptionBody(Schema):
    """A constant of the problem."""

    name: str = Field(description="Inside `assumptions`.")
    symbol: str = Field(description="The paper's letter, LaTeX.")
    unit: str = Field(description="The unit, in units of the loss and of the parameters.")
    meaning: str
    lower: float
    upper: float
    required: bool = Field(description="Whether the theorem's numbers need it.")
    default: float | None

    @classmethod
    def of(cls, item: Assumption) -> AssumptionBody:
        """Describe a constant that an algorithm's theorem asks for."""
        return cls(
            name=item.name,
            symbol=item.symbol,
            unit=str(item.units),
            meaning=item.meaning,
            lower=item.lower,
            upper=item.upper,
            required=item.required,
            default=item.default,
        )


class AlgorithmBody(Schema):
    name: str
    summary: str
    source: str
    update: str = Field(description="One step, LaTeX.")
    samplings: list[str] = Field(
        description="The first is the default: poisson for DP-SGD and similar algorithms, otherwise the paper's own."
    )
    neighboring_relations: list[str] = Field(
        description="The default is the first under which the sampling is accounted."
    )
    gradient_bounds: list[str] = Field(description="Empty if the bound follows from the assumptions.")
    gradient_bound_required: bool
    variants: list[str] = Field(description="Forms of the algorithm, the default first; empty if there is only one.")
    correlates: bool = Field(
        description="Whether the noise of its steps is correlated: then it takes `correlation`, momentum and "
        "a schedule of step sizes."
    )
    assumptions: list[AssumptionBody]
    guarantee: str
    gradient_complexity: str = Field(description="Number of per-record gradients in a run, in LaTeX.")
    verdict: str = Field(
        description="Judgement of the paper's own calibration; `literal` in a request judges it for that request."
    )
    errata: list[str]
    models: list[str] = Field(description="Model kinds that a run of it can train.")


class AlgorithmDetails(AlgorithmBody):
    inputs: dict[str, Any] = Field(description="JSON schema of a calibration's request.")


class AlgorithmList(Schema):
    items: list[AlgorithmBody]
