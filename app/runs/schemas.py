"""Requests and answers of `/v1/runs`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.algorithms.model_choice import ModelChoice
from app.algorithms.plans import PlanBody
from app.algorithms.schemas import DtypeName
from app.algorithms.targets import AlgorithmChoice
from app.datasets.columns import MAX_COLUMNS
from app.datasets.schemas import InlineCell, InlineDataset
from app.kit.fields import Identifier, Name, OptionalInteger, Schema, Sha256
from app.reservations.schemas import PlanPriceBody
from app.tables.states import RunState
from app.wire.answers import ChoiceBody
from calibrators.held_out import EVALUATION_NOISE


class EvaluationRequest(Schema):
    """One noisy vector of sums over held-out rows, from which every metric is computed with its interval."""

    noise_multiplier: float | None = Field(
        None,
        ge=EVALUATION_NOISE.lower,
        le=EVALUATION_NOISE.upper,
        description="Standard deviation of the noise on each coordinate, over the bound on a row's contribution. By "
        "default the evaluation gets a tenth of the target, in squares of mu, which raises the training's noise by "
        "a twentieth.",
    )


class RunRequest(AlgorithmChoice):
    """A calibration whose sizes come from the data set, with the model to train and the budget that pays."""

    dataset_id: Identifier | None = Field(None, description="A data set; or give `dataset` inline (only public data).")
    dataset_version: OptionalInteger = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Which version of a private data set; by default the newest one at the time of the request.",
    )
    dataset: InlineDataset | None = None
    model: ModelChoice
    budget_id: Identifier | None = Field(
        None, description="The budget to charge: needed for private data, optional (for practice) with public ones."
    )
    expected_plan_hash: Sha256 | None = Field(
        None, description="The hash that a calibration answered; a run of any other plan is refused."
    )
    test_dataset_id: Identifier | None = Field(
        None, description="A public data set of the same columns, on which the released model is scored."
    )
    # Both fields are left out of stored requests that do not give them, so that requests from before these fields
    # existed stay the same.
    evaluation: EvaluationRequest | None = Field(
        None,
        exclude_if=lambda given: given is None,
        description="Evaluate the model on the rows that the data set holds out, as a part of the run's target; `{}` "
        "chooses all of it. The data set must have been registered with `held_out_share`.",
    )
    certificate: bool = Field(
        False,
        exclude_if=lambda given: not given,
        description="Store a certificate of what the plan costs, which `epsilond-verify` can check, with the charge. "
        "If there is none, a warning says so. Takes up to a few seconds.",
    )
    seed: OptionalInteger = Field(
        None,
        ge=0,
        le=2**63 - 1,
        description="Makes the run repeatable. Only for public data: anybody who knows it can subtract the noise.",
    )


class ProgressBody(Schema):
    done: int
    total: int
    unit: Literal["steps"] = "steps"


class MetricBody(Schema):
    """Scores of the released model on public rows, which cost no privacy. null if a score does not fit this task, or
    cannot be computed."""

    dataset_id: str | None = Field(description="null for rows that came in the request.")
    rows: Literal["test", "training"] | None = Field(
        None,
        description="Which rows. `test`: Those of the test data set. `training`: Those that were trained on. null in "
        "older runs.",
    )
    records: int
    accuracy: float | None = Field(None, description="Share of rows whose class is predicted; null for regression.")
    balanced_accuracy: float | None = Field(None, description="Mean of that share over the classes.")
    log_loss: float | None = Field(None, description="Mean of -log of the true class's probability, in nats.")
    auc: float | None = Field(None, description="Area under the ROC curve; the mean over each class against the rest.")
    calibration_error: float | None = Field(None, description="Expected calibration error of 15 bins.")
    confusion_matrix: list[list[int]] | None = Field(
        None, description="Rows by true class, columns by predicted class; up to 20 classes."
    )
    mean_absolute_error: float | None = Field(
        None, description="Error of the label, in its own unit; null for classification."
    )
    root_mean_squared_error: float | None = Field(
        None, description="Root of the mean squared error, in the label's unit."
    )
    r_squared: float | None = None


class EstimateBody(Schema):
    """A metric from noisy sums. Its interval covers the noise alone, and holds by itself with probability 0.95."""

    estimate: float | None = Field(description="The likely value; null if the noise hides it.")
    lower: float | None = Field(description="null where there is no lower bound.")
    upper: float | None


class HeldOutBody(Schema):
    """Metrics on held-out rows, all computed from one noisy vector that was charged before it was drawn. null if a
    metric does not fit this task, or cannot be computed."""

    confidence: float = Field(description="Probability that an interval, taken alone, holds the metric on these rows.")
    noise_stddev: float = Field(description="Standard deviation of the noise on each count of rows.")
    records: EstimateBody = Field(description="How many rows were held out; the true number is private.")
    accuracy: EstimateBody | None = Field(description="Share of rows whose class is predicted.")
    balanced_accuracy: EstimateBody | None = Field(description="Mean of that share over all declared classes.")
    log_loss: EstimateBody | None = Field(
        description="Mean of -log of the true class's probability, in nats, each at most `log_loss_cap`."
    )
    log_loss_cap: float | None
    auc: EstimateBody | None = Field(
        description="Area under the ROC curve; with 3 to 20 classes, the mean over each class against the rest."
    )
    calibration_error: EstimateBody | None = Field(description="Expected calibration error of 15 bins.")
    confusion_matrix: list[list[float]] | None = Field(
        description="Noisy counts: rows by true class, columns by predicted class; up to 20 classes."
    )
    confusion_half_width: float | None = Field(
        description="Half the width of the interval of each count of the confusion matrix."
    )
    mean_absolute_error: EstimateBody | None = Field(
        description="Error of the label, in its own unit. A prediction beyond the label's bounds counts as the bound."
    )
    root_mean_squared_error: EstimateBody | None = Field(
        description="Root of the mean squared error, in the label's unit; likewise."
    )
    r_squared: EstimateBody | None


class ResultBody(Schema):
    parameters: dict[str, list[int]] = Field(description="Names and shapes of the model's arrays.")
    metrics: list[MetricBody]
    held_out: HeldOutBody | None = Field(
        None, description="Metrics on the rows that the data set holds out; null for a run without `evaluation`."
    )
    noisy_score: float | None = Field(
        None,
        description="Share of training rows that the best run of a sweep predicts correctly, with the noise that was "
        "charged; null unless the sweep is scored so.",
    )
    device: str = Field(
        "cpu",
        description="What took the steps: cpu, or cuda with the name of the card (`docs/operating/gpu.md`).",
    )
    versions: dict[str, str] = Field(description="Versions of the accounting engine and of the worker that trained.")
    assumptions: dict[str, float] = Field(description="Constants behind the step size, if the service derived them.")


class RunProblem(Schema):
    """The reason why a run did not succeed. It never depends on the data."""

    code: str
    detail: str


class ProgressMessage(Schema):
    """A stream's message about a run: a part of the answer of `GET /v1/runs/{id}`."""

    id: Identifier
    state: RunState
    progress: ProgressBody
    problem: RunProblem | None


class RunBody(Schema):
    id: Identifier
    state: RunState
    algorithm: str
    progress: ProgressBody
    dataset_id: str | None
    dataset_version: int | None = Field(
        description="The version of private data that it trains on, fixed when it was asked for; null for public data, "
        "and for runs from before there were versions, which are on the first."
    )
    test_dataset_id: str | None
    model: ModelChoice
    budget_id: str | None
    reservation_id: str | None = Field(description="If the run belongs to a sweep, that of the sweep.")
    sweep_id: str | None = Field(description="The sweep whose charge the run is part of.")
    plan: PlanBody | None = Field(description="null where the stored plan no longer has its hash; a warning says so.")
    plan_hash: str
    dtype: DtypeName | None = Field(
        description="The numeric type of the plan: of rows, logits and sums; null if `plan` is."
    )
    dtype_reason: str | None = Field(
        description="Why it is float64 although the request named no type; otherwise null."
    )
    choices: list[ChoiceBody] = Field(
        description="Values that the request left out, chosen from public numbers only, each with the reason and the "
        "value by the paper's theorem. Empty if the request gave everything."
    )
    theorem_note: str | None = Field(
        description="Which values of the plan the paper's theorem chooses, and which of `choices` differ. Null in "
        "older runs."
    )
    charge: dict[str, Any] | None = Field(
        description="What the budget holds or has paid, in its filter's own fields; of a sweep, for all of its runs."
    )
    given_back: dict[str, Any] | None = Field(
        description="What came back for steps that were never taken, and its cost; `charge` is net of it."
    )
    price: PlanPriceBody | None = Field(
        None,
        description="The charge of the plan as an epsilon, beside the tight one. Given for one run that has its own "
        "charge, if the budget or its reports have a delta.",
    )
    result: ResultBody | None
    problem: RunProblem | None
    warnings: list[str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    release_at: datetime | None = Field(
        description="When the end of a run on private data is shown; known once a worker has the run. Training may "
        "have ended long before: its duration could reveal something about the rows, while this time follows from "
        "public numbers alone. On a late machine the end comes at a later multiple of a public interval. A worker "
        "that "
        "goes on with a lost run may need a later time. null for public data."
    )


def _list_of_cells(row: object) -> object:
    """Refuse a row that is an object, with a message that says what a row must be.

    Raises:
        ValueError: the row is an object.
    """
    if isinstance(row, dict):
        raise ValueError("A row is an array of cells, not an object; `columns` gives their order.")
    return row


class PredictionRequest(Schema):
    """Rows for a released model. They are predicted and forgotten: nothing keeps or logs them."""

    columns: list[Name] | None = Field(
        None,
        max_length=MAX_COLUMNS,
        description="Names of the columns, in the order of the cells; if left out, those of the model's `features`.",
    )
    rows: list[Annotated[list[InlineCell], BeforeValidator(_list_of_cells)]] = Field(
        min_length=1,
        max_length=1000,
        description="One list per row, one cell per column: numbers, and texts for categories. A number beyond its "
        "declared bounds becomes the bound.",
    )


class PredictionsBody(Schema):
    """Predictions, in the order of the rows."""

    run_id: Identifier
    plan_hash: str
    classes: list[str] = Field(description="Classes in the order of the probabilities; empty for regression.")
    predictions: list[str | float] = Field(description="Names of classes, or numbers in the label's unit.")
    probabilities: list[list[float]] | None = Field(
        description="The probability of each class, for each row; null where the model has none."
    )


class GuaranteeBody(Schema):
    """The guarantee of a released model in words; its privacy card has the numbers."""

    statement: str
    privacy_unit: str
    neighbors: str = Field(description="How two neighbouring data sets differ.")
    card: str = Field(description="Path of the privacy card, which names the same `plan_hash`.")
