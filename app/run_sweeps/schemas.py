"""Requests and answers of `/v1/run-sweeps`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, RootModel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.algorithms.schemas import AchievedBody, DtypeName
from app.algorithms.targets import AchievedPureBody, AnyAchievedBody
from app.kit.fields import Identifier, OptionalInteger, Schema, Sha256
from app.privacy.tuning import DistributionBody, NamedTrials, NegativeBinomialTrials, PoissonTrialsIn
from app.reservations.schemas import PriceBody
from app.runs.schemas import MetricBody, RunProblem, RunRequest
from app.sweeps.schemas import OBJECTS, list_of_values
from app.tables.states import RunState, Select, SweepState

MAX_CELLS = 1000
#: The largest number of swept fields, since heat maps and tables have two dimensions.
MAX_SWEPT = 2
#: The most seconds that a result is held back: as long as a hold on a budget may last.
MAX_RELEASE_AFTER_S = 7 * 24 * 3600

_REQUEST = "#/components/schemas/RunRequest"
#: The fields that are the same in every run of a sweep. A list in one of them is not swept: it is refused, or means
#: what it means in a run.
FIXED = ("dataset_id", "dataset_version", "test_dataset_id", "budget_id", "neighboring_relation", "model")
#: Fields of a run's request that a sweep names differently, or refuses.
_NOT_HERE = ("dataset", "expected_plan_hash")


class PublicScore(Schema):
    """Accuracy, or the mean absolute error, on public rows: the test data set, else the training data."""

    kind: Literal["public"]


class NoisyScore(Schema):
    """The number of training rows predicted correctly, with Gaussian noise: a release of its own, charged per trial.

    A row adds 1 if its class is predicted. With a real label it adds 1 minus the error in units of half the label's
    range, and at least 0.
    """

    kind: Literal["noisy"]
    noise_multiplier: float = Field(
        gt=0, le=1e6, description="Noise on the sum, divided by the most that one row adds, which is 1."
    )


TrialsLaw = Annotated[
    NegativeBinomialTrials | NamedTrials | PoissonTrialsIn, Field(discriminator="kind", title="TrialsLaw")
]
ScoreChoice = Annotated[PublicScore | NoisyScore, Field(discriminator="kind", title="Score")]


class SweepTerms(Schema):
    """The fields of a sweep besides those of its runs."""

    select: Literal["all", "best"]
    trials: TrialsLaw | None = Field(
        None, description="The distribution from which the number of trials is drawn in secret; needed with `best`."
    )
    score: ScoreChoice | None = Field(None, description="The score by which `best` chooses a trial.")
    release_after_s: OptionalInteger = Field(
        None,
        ge=0,
        le=MAX_RELEASE_AFTER_S,
        description="Seconds that must pass before anything is told about a sweep with `best`, so that the duration "
        "does not tell the number of trials. Needed on private data; there, `release_at` moves to the time at "
        "which all trials will have ended, if that is later.",
    )
    expected_sweep_hash: Sha256 | None = Field(
        None, description="The hash in the answer of a dry run; any other sweep is refused."
    )


class RunSweepRequest(RootModel[dict[str, Any]]):
    """A run request in which one or two fields, also inside `target` or another object, take lists: the grid. `select`
    says what is released: all runs, or the best of a random number of them.

    Each cell is checked as the run request that it is. The data set, the budget, the relation and the model are the
    same in all of them.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        properties: dict[str, Any] = {}
        for name in RunRequest.model_fields:
            if name in _NOT_HERE:
                continue
            choices: list[dict[str, Any]] = [{"$ref": f"{_REQUEST}/properties/{name}"}]
            if name not in FIXED:
                choices.append(list_of_values(MAX_CELLS))
            if name in OBJECTS:
                choices.append({"type": "object", "description": "With a list in one or two of its fields."})
            properties[name] = choices[0] if len(choices) == 1 else {"anyOf": choices}
        # The schemas that these refer to also occur in other requests and answers.
        properties |= SweepTerms.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
        needed = [name for name, field in RunRequest.model_fields.items() if field.is_required()]
        return {
            "type": "object",
            "description": cls.__doc__,
            "properties": properties,
            "additionalProperties": False,
            "required": [*needed, "dataset_id", "select"],
        }


class CellBody(Schema):
    """A cell of the grid. A sweep for the best run shows nothing about single cells."""

    values: list[float | int | str] = Field(description="The values of the swept fields, in the order of the fields.")
    plan_hash: str
    achieved: AnyAchievedBody = Field(description="What one run of this cell would guarantee if it were alone.")
    run_id: str | None
    state: RunState | None
    metrics: list[MetricBody] = Field(description="Scores of its model on public rows.")
    problem: RunProblem | None


class BestBody(Schema):
    """The released run of a sweep for the best run."""

    run_id: Identifier
    values: list[float | int | str]
    metrics: list[MetricBody]
    noisy_score: float | None = Field(
        description="The share of training rows that are predicted correctly, with the noise that was charged."
    )


class TrialsQuantile(Schema):
    """A sweep makes at most so many trials with this probability. This follows from the law, not from the number
    drawn."""

    probability: float
    trials: int


class RunSweepSummary(Schema):
    """A sweep without its cells."""

    id: Identifier
    state: SweepState
    select: Select
    fields: list[str] = Field(description="The swept fields, as paths with dots.")
    shape: list[int] = Field(description="How many values each of them has: the sides of the grid.")
    dataset_id: str
    dataset_version: int | None = Field(
        description="The version of private data that all runs train on; null for public data."
    )
    test_dataset_id: str | None
    budget_id: str | None
    reservation_id: str | None
    charge: dict[str, Any] | None = Field(description="What the budget holds or has paid, in its filter's own fields.")
    guarantee: AchievedBody | AchievedPureBody | None = Field(
        description="The guarantee for everything that is released; null if a target has no delta, or if it took too "
        "long to compute."
    )
    sweep_hash: str
    trials: DistributionBody | None
    trials_quantile: TrialsQuantile | None
    score: ScoreChoice | None
    release_at: datetime | None
    best: BestBody | None
    note: str | None = Field(description="An explanation of how it ended, if it needs one.")
    warnings: list[str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class RunSweepBody(RunSweepSummary):
    """A sweep as a table with a row for each cell. In the order of the rows, the last field changes fastest."""

    cells: list[CellBody]


class PricedCell(Schema):
    """A cell that was calibrated."""

    values: list[float | int | str]
    plan_hash: str
    dtype: DtypeName = Field(description="The numeric type in which a run of this cell carries its plan out.")
    dtype_reason: str | None = Field(
        description="Why it is float64 although the request names no type; otherwise null."
    )
    achieved: AnyAchievedBody


class RunSweepQuote(Schema):
    """The cost that a sweep would have. Nothing was written."""

    fields: list[str]
    cells: list[PricedCell]
    guarantee: AchievedBody | AchievedPureBody | None
    cost: dict[str, Any] | None = Field(description="The charge in the budget's own fields; null without a budget.")
    remaining: dict[str, Any] | None = Field(description="What remains in the budget after this hold.")
    price: PriceBody | None = Field(
        description="The cost as epsilons, here and in budgets of other kinds, if the budget or its reports have a "
        "delta."
    )
    sweep_hash: str
    trials_quantile: TrialsQuantile | None
    warnings: list[str]
