"""The HTTP form of plans, of noise, and of the paper's own calibration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from app.algorithms.geometry import DomainBody, PenaltyBody
from app.algorithms.phases import PhaseBody
from app.algorithms.schemas import DtypeName
from app.kit.fields import Schema
from calibrators.as_published import AsPublished, Verdict
from calibrators.plan import Plan


class NoiseBody(Schema):
    """The noise of the plan's first phase. If it is not on a single sum or mean, `noise_scale` is given instead."""

    stddev_on_sum: float | None = Field(
        description="Standard deviation per coordinate, in the unit of one record's contribution."
    )
    stddev_on_mean: float | None = Field(
        description="The same, divided by the public batch size; for output perturbation, the noise on the mean of "
        "points."
    )
    l2_sensitivity: float | None = Field(
        description="Largest distance between the sums of two neighbours, in the same unit."
    )
    noise_scale: list[float] | None = Field(
        description="Sizes of the noise in the order in which they are first drawn, if it has several sizes or is not "
        "on a single sum or mean; otherwise null. A size is the scale parameter of Gumbel or generalised Gaussian "
        "noise, the standard deviation of Gaussian noise on means over blocks or groups of records, or that of "
        "shuffled counts."
    )


class AverageIterateBody(Schema):
    """The mean of the points that the steps start from."""

    kind: Literal["average"]


class RandomIterateBody(Schema):
    """One of the points that the steps start from, drawn in secret."""

    kind: Literal["random"]


class WeightedAverageBody(Schema):
    """A weighted mean of the points that the steps lead to."""

    kind: Literal["weighted_average"]
    weights: list[float]


ReleaseBody = Annotated[AverageIterateBody | RandomIterateBody | WeightedAverageBody, Field(discriminator="kind")]


def is_none(value: object) -> bool:
    return value is None


class EvaluationBody(Schema):
    """A released vector of sums over held-out rows, with Gaussian noise. All metrics on these rows follow from it."""

    noise_multiplier: float = Field(
        description="Standard deviation of the noise on each coordinate, divided by the bound on what a row adds."
    )


class PlanBody(Schema):
    """The plan that a run would execute and a ledger would charge."""

    algorithm: str
    dataset_size: int
    neighboring_relation: str
    phases: list[PhaseBody]
    # Fields with their default value are left out, as in the plan's canonical bytes, which are hashed.
    domain: DomainBody | None = Field(
        None, exclude_if=is_none, description="The set to which parameters are confined; if left out, all of R^d."
    )
    penalty: PenaltyBody | None = Field(None, exclude_if=is_none, description="Left out if there is none.")
    release: ReleaseBody | None = Field(
        None, exclude_if=is_none, description="The point that is the model; if left out, the last one."
    )
    dtype: DtypeName | None = Field(
        None, exclude_if=is_none, description="The numeric type of the run's rows and sums; if left out, float64."
    )
    evaluation: EvaluationBody | None = Field(
        None,
        exclude_if=is_none,
        description="Evaluates the model on held-out rows after the last step; if left out, nothing is evaluated.",
    )
    engine: str


class LiteralBody(Schema):
    """The paper's own calibration of this request, for comparison only: nothing executes it."""

    noise_multiplier: float | None = Field(
        description="Noise on the sum over the contribution bound, if it prints one."
    )
    noise_stddev_on_mean: float | None = Field(description="Noise on the mean, if it prints one.")
    verdict: Verdict | None = Field(
        strict=False,
        description="`sound`: meets the target. `loose`: meets it with more noise than is needed. `unsound`: misses "
        "it, or its conditions or its proof fail. null: this was not asked for, and is not known.",
    )
    why: str
    formula: str = Field(description="LaTeX.")
    source: str


def plan_body(plan: Plan) -> PlanBody:
    return PlanBody.model_validate(plan.to_json(), strict=False)


def noise_body(plan: Plan) -> NoiseBody:
    """Return the noise of the plan's first phase."""
    return NoiseBody.model_validate(asdict(plan.phases[0].noise(plan.neighboring_relation)), strict=False)


def batch_size_of(plan: Plan) -> int:
    """Return the nominal number of records of the first phase's steps."""
    return plan.phases[0].batch_size


def as_published_body(found: AsPublished | None) -> LiteralBody | None:
    if found is None:
        return None
    return LiteralBody(
        noise_multiplier=found.noise_multiplier,
        noise_stddev_on_mean=found.noise_stddev_on_mean,
        verdict=found.verdict,
        why=found.why,
        formula=found.formula,
        source=found.source,
    )
