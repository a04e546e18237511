"""The privacy card: one object, from which its JSON, its Markdown and its page are made."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from app.algorithms.model_choice import ModelChoice
from app.algorithms.plans import LiteralBody, NoiseBody, PlanBody
from app.algorithms.schemas import DtypeName
from app.algorithms.targets import AnyAchievedBody, RunTargetBody
from app.deployments.schemas import DeploymentBody
from app.kit.fields import Identifier, Schema
from app.ledger.transparency_schemas import InclusionBody
from app.runs.schemas import HeldOutBody, MetricBody, RunProblem
from app.tables.states import RunState
from app.wire.answers import ChoiceBody, ConventionBody, ProvenanceBody
from app.wire.events import EventSchema


class AuditSummary(Schema):
    """An attack on the run's plan; `GET /v1/audits/{id}` has all of it."""

    id: Identifier
    design: str = Field(description="`held_out` attacks the evaluation; the others attack the training.")
    method: str
    trials: int
    delta: float
    epsilon_lower: float = Field(description="What ran has no epsilon below it, at `confidence`.")
    claimed: float | None = Field(
        description="The claim: the attacked events have at most this epsilon at `delta`; null if none is finite."
    )
    confidence: float
    verdict: str
    created_at: datetime


class DataSummary(Schema):
    """The declarations of the rows that were trained on; nothing that was counted."""

    dataset_id: str | None = Field(description="null for rows that came in the request.")
    name: str | None = Field(description="null for rows that came in the request, and for a data set deleted since.")
    version: int | None = Field(
        description="The version of private data; null for public data, and for runs from before there were any."
    )
    public: bool
    declared_size: int = Field(
        description="The owner's public number of records, near the true one; without those that are held out."
    )
    held_out_size: int | None = Field(
        description="How many of the declared records are held out on average; null if none are."
    )
    capacity: int | None = Field(
        description="Slots that the run kept for rows, filled or not: a public number. null for runs from before data "
        "sets had one."
    )


class BudgetSummary(Schema):
    """The budget that paid: its unit and its present limit."""

    id: Identifier
    name: str
    neighboring_relation: str
    privacy_unit: str
    limit: dict[str, Any] = Field(description="Its filter's kind and fields.")


class EntrySummary(Schema):
    """An entry of the ledger about the run's reservation. Its hash covers the entry and the one before."""

    id: str
    kind: str
    sequence: int = Field(description="Place in the chain of its budget.")
    leaf_index: int = Field(description="Place among all entries.")
    recorded_at: datetime
    previous_hash: str
    hash: str


class CertificateSummary(Schema):
    """A certificate of the charge, and what it states. It was verified before it was kept."""

    epsilon: float = Field(description="The events of the charge have at most this epsilon.")
    delta: float = Field(description="The delta at which they have it.")
    sha256: str = Field(description="The hash of its bytes, which the entry that reserved names.")
    path: str = Field(description="The path of its bytes, for `epsilond-verify`.")


class LedgerSummary(Schema):
    """The charge as it is in the ledger."""

    reservation_state: str
    purpose: str
    certificate: CertificateSummary | None = Field(
        description="null for a charge without one: `certificate` in the request of a run asks for it."
    )
    entries: list[EntrySummary]
    proof: InclusionBody | None = Field(
        description="Proof that the last entry is in the tree of all entries, with a signed checkpoint; `epsilond "
        "ledger prove` checks it offline. null: the database was changed, nothing is signed."
    )


class Layer(StrEnum):
    """A layer of the pyramid of NIST SP 800-226; each layer rests on those below."""

    GUARANTEE = "guarantee"
    """What is promised, and to whom: parameters, unit, relation."""
    ALGORITHM = "algorithm"
    """How the promise is kept: mechanism, sensitivity, utility, bias."""
    DEPLOYMENT = "deployment"
    """The place where the promise is kept: queries, trust, side channels, security, collection of the data."""


class EvaluationPoint(Schema):
    """A point of NIST SP 800-226, and what this service knows about it."""

    layer: Layer
    section: str = Field(description="Section of NIST SP 800-226 (2025).")
    point: str
    finding: str | None = Field(description="null: open; `POST /v1/budgets/{id}/deployment` answers it.")


class RegistryField(Schema):
    """A field of the public registry of deployments of differential privacy."""

    field: str = Field(description="Its path in the registry's entries.")
    value: str | float | None = Field(description="null: open; `POST /v1/budgets/{id}/deployment` answers it.")


class SweepSummary(Schema):
    """The sweep of the run: the charge and the guarantee are those of the whole sweep."""

    id: Identifier
    select: str = Field(description="all: every run is released. best: only this one.")
    fields: list[str] = Field(description="The swept fields.")
    cells: int
    sweep_hash: str
    guarantee: AnyAchievedBody | None = Field(description="The guarantee for all that the sweep releases.")
    trials: dict[str, Any] | None = Field(description="The law of the number of trials.")
    score: dict[str, Any] | None
    theorem: str


class ModelCard(Schema):
    """The facts of a run's privacy card that do not change once its model is released: the model's file holds them."""

    card_version: Literal[1] = Field(1, description="Raised when a field changes its meaning or is removed.")
    run_id: Identifier
    statement: str = Field(description="The guarantee in a sentence or two.")
    created_at: datetime
    finished_at: datetime | None
    seeded: bool = Field(description="A seeded run repeats: its numbers are those of its plan, and protect nobody.")
    target: RunTargetBody
    achieved: AnyAchievedBody = Field(
        description="The guarantee of the released model; if it was selected among trials, that of the selection."
    )
    convention: ConventionBody
    privacy_unit: str
    neighbors: str = Field(description="How two neighbouring data sets differ.")
    model: ModelChoice
    algorithm: str
    source: str
    events: list[EventSchema]
    noise: NoiseBody
    choices: list[ChoiceBody] = Field(
        description="Values that the request left out, chosen from public numbers, each with the theorem's value."
    )
    theorem_note: str | None = Field(
        description="Which values of the plan the paper's theorem chooses, and which of `choices` differ. Null in "
        "older runs."
    )
    hyperparameters: list[ProvenanceBody]
    utility: list[ProvenanceBody]
    assumptions: dict[str, float] = Field(description="Constants of the theory that the service derived or was given.")
    plan_hash: str
    dtype: DtypeName = Field(description="The numeric type in which the plan is carried out; part of its hash.")
    dtype_reason: str | None = Field(
        description="Why float64 was chosen although the request named no dtype; null otherwise."
    )
    budget_id: str | None
    reservation_id: str | None
    device: str | None = Field(
        description="What took the steps: cpu, or cuda with the name of the card; null before the run has trained."
    )
    versions: dict[str, str] | None = Field(description="Versions of the worker that trained; null before it has.")
    scores: list[MetricBody] = Field(description="Scores on public rows.")
    held_out: HeldOutBody | None = Field(
        description="Metrics on held-out rows, from one noisy vector that is among the events; null without one."
    )


class CardFacts(ModelCard):
    """The facts that the service knows about a run and its privacy."""

    state: RunState
    sweep: SweepSummary | None = Field(description="null for a run of its own.")
    problem: RunProblem | None
    data: DataSummary
    literal: LiteralBody | None = Field(description="The paper's own calibration, which was not executed.")
    plan: PlanBody = Field(description="What was, or would be, executed: phases, thresholds, step sizes.")
    charge: dict[str, Any] | None
    budget: BudgetSummary | None
    deployment: DeploymentBody | None = Field(
        description="The operator's answers about the budget's deployment; null if there are none."
    )
    ledger: LedgerSummary | None = Field(description="null for a run without a budget.")
    audits: list[AuditSummary] = Field(description="The newest ones, at most 20.")
    caveats: list[str]


class PrivacyReport(CardFacts):
    """The facts about a model's privacy that its readers need."""

    evaluation: list[EvaluationPoint] = Field(description="Point by point, as NIST SP 800-226 asks.")
    registry: list[RegistryField] = Field(description="An entry for the registry of deployments, as far as known.")
