"""Request and answer of `/v1/calibrate`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, MAX_DIMENSION
from app.algorithms.budget_costs import CostInBudgetBody
from app.algorithms.plans import LiteralBody, NoiseBody, PlanBody
from app.algorithms.schemas import AlgorithmFields, DtypeName
from app.algorithms.targets import AnyAchievedBody, TargetBody
from app.kit.fields import Identifier, Integer, OptionalInteger, Schema
from app.privacy.account import CertificatesBody
from app.wire.answers import ChoiceBody, ConventionBody, ProvenanceBody
from app.wire.events import EventSchema, NoiseMultiplierField


class CalibrateRequest(AlgorithmFields):
    """Gives every quantity except the one that `solve_for` names."""

    dataset_size: Integer = Field(ge=1, le=MAX_DATASET_SIZE, description="A public number of records.")
    capacity: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_DATASET_SIZE,
        description="Slots of the data set: the largest number of records that it may have. If left out, it is an "
        "eighth more than `dataset_size`, and at least 8 more, as for a data set that does not state it. "
        "`truncated_poisson` batches under `add_or_remove_one` are drawn from all slots, and cost what that many "
        "records cost; nothing else uses it.",
    )
    dimension: OptionalInteger = Field(
        None, ge=1, le=MAX_DIMENSION, description="Number of parameters; utility needs it, and noise in l_p norms."
    )
    noise_multiplier: NoiseMultiplierField | None = None
    target: TargetBody
    solve_for: Literal["noise_multiplier", "iterations", "batch_size", "epsilon", "delta"] = Field(
        "noise_multiplier",
        description="The field that is left out of the request, or of `target` for epsilon and delta.",
    )
    budget_id: Identifier | None = Field(
        None, description="Show what the plan would cost in this budget, too, if the target is not the budget itself."
    )
    judge_literal: bool = Field(
        False,
        description="Judge whether the paper's own calibration meets the target. This takes longer than calibrating.",
    )
    certificate: bool = Field(
        False,
        description="Ask for certificates of both ends of the epsilon or delta that the plan achieves, which "
        "`epsilond-verify` proves again. Only for approximate_dp targets about single records; takes up to a few "
        "seconds.",
    )


class NoiseMultiplierSolution(Schema):
    noise_multiplier: float = Field(description="Standard deviation of the noise on the sum, divided by the bound C.")


class IterationsSolution(Schema):
    """The largest number of steps that meets the target."""

    iterations: int = Field(le=MAX_COUNT)
    epochs: float = Field(description="The expected number of passes over the data.")


class BatchSizeSolution(Schema):
    """The largest batch size that meets the target."""

    batch_size: int
    sampling_probability: float


class EpsilonSolution(Schema):
    epsilon: float = Field(description="The certified upper end.")


class DeltaSolution(Schema):
    delta: float = Field(description="The certified upper end.")


class NoiseScaleSolution(Schema):
    """The smallest scale of Gumbel or generalised Gaussian noise that meets the target."""

    noise_scale: list[float] = Field(
        description="One for each change of scale, in units of the loss for scores and in units of the gradient for "
        "means."
    )


SolutionBody = (
    NoiseMultiplierSolution
    | NoiseScaleSolution
    | IterationsSolution
    | BatchSizeSolution
    | EpsilonSolution
    | DeltaSolution
)


class AlternativeBandsBody(Schema):
    """One number of bands, with the least noise that meets the target."""

    sampling: str
    bands: int = Field(description="1 is independent noise.")
    noise_multiplier: float = Field(
        description="Standard deviation of the normal numbers from which the noise is made, divided by the "
        "contribution bound."
    )
    error: float = Field(
        description="The error of the sums that training follows, by the request's `objective`, in contribution bounds."
    )
    ratio: float | None = Field(
        description="The error divided by that of Poisson batches with fresh noise in every step; null if these do "
        "not meet the target."
    )
    memory: int | None = Field(
        description="Bytes that a run keeps from earlier steps; null if the number of parameters is not given."
    )
    is_chosen: bool = Field(description="Whether it is the plan's number of bands.")
    is_allowed: bool = Field(
        description="Whether it is at most `max_bands`. If the largest number allowed is the best, some larger "
        "numbers show what more memory would gain."
    )


class NextBody(Schema):
    """The next larger integer, which misses the target."""

    value: int
    achieved: AnyAchievedBody


class CalibrateAnswer(Schema):
    solution: SolutionBody
    achieved: AnyAchievedBody = Field(
        description="What the plan guarantees, in the target's own fields; the certified upper end meets the target."
    )
    next: NextBody | None = Field(
        description="The next larger value and what it achieves, for iterations and batch_size; else null."
    )
    noise: NoiseBody
    hyperparameters: list[ProvenanceBody]
    utility: list[ProvenanceBody]
    choices: list[ChoiceBody] = Field(
        default=[],
        exclude_if=lambda choices: not choices,
        description="The values that the request left out and that were chosen for it; absent if it left out nothing.",
    )
    theorem_note: str | None = Field(
        default=None,
        exclude_if=lambda note: note is None,
        description="The values of the plan that the paper's theorem chooses, and those of `choices` that differ. "
        "Absent if nothing was left to choose.",
    )
    alternatives: list[AlternativeBandsBody] = Field(
        default=[],
        exclude_if=lambda rows: not rows,
        description="The plan's number of bands compared with others, and with the other sampling if that is "
        "accounted. Given if noise is correlated and solved for; absent otherwise.",
    )
    plan: PlanBody
    events: list[EventSchema]
    dtype: DtypeName = Field(description="The numeric type in which a run carries the plan out; part of its hash.")
    dtype_reason: str | None = Field(
        description="Why it is float64 although the request names no type; null for float32, or if the request named "
        "it."
    )
    plan_hash: str = Field(description="SHA-256 of the plan's canonical bytes; a run of this plan has it, too.")
    cost_in_budget: CostInBudgetBody | None = Field(
        description="The plan's cost in the budget that the request names; else null."
    )
    literal: LiteralBody | None = Field(
        description="The paper's own calibration, judged if the request asks for it; null if the paper has none for "
        "the target."
    )
    missing_assumptions: list[str] = Field(description="What the theorem's step size and bound would still need.")
    convention: ConventionBody
    certificates: CertificatesBody | None = Field(
        None,
        exclude_if=lambda found: found is None,
        description="Certificates of what the plan achieves. Given if the request asks for a `certificate`.",
    )
    citations: list[str]
    warnings: list[str]
