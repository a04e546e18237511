"""The facts of a run's privacy card, from its plan, its charge and the description of its data set."""

from __future__ import annotations

import json
from typing import cast

from sqlalchemy.orm import Session

from accounting.canonical import sha256_hex
from accounting.convention import convention
from app.algorithms.binding import DataDescription
from app.algorithms.model_choice import MODEL_CHOICE
from app.algorithms.plans import LiteralBody, noise_body, plan_body
from app.algorithms.schemas import DtypeName
from app.datasets import repository as datasets
from app.deployments import repository as deployments
from app.deployments.schemas import DeploymentBody
from app.ledger import repository as ledger
from app.ledger.amounts import limit_in_words
from app.ledger.books_repository import certificate
from app.ledger.repository import get_budget
from app.runs import repository as runs
from app.runs import sweep_repository as sweeps
from app.runs.evaluation import evaluation, registry
from app.runs.guarantee import TARGET, achieved_of, group_size_of, guarantee_body, of_several_rows, read_achieved
from app.runs.report_schemas import (
    AuditSummary,
    BudgetSummary,
    CardFacts,
    CertificateSummary,
    DataSummary,
    EntrySummary,
    LedgerSummary,
    ModelCard,
    PrivacyReport,
    SweepSummary,
)
from app.runs.schemas import HeldOutBody, MetricBody, RunProblem
from app.runs.stored import (
    charge_of,
    choices_of,
    plan_if_intact,
    reservation_id_of,
    reservation_of,
    stored_plan,
    sweep_of,
)
from app.tables.ledger import Reservation
from app.tables.runs import Audit, Run, RunSweep
from app.tables.states import RunState, Select
from app.wire.answers import ConventionBody, ProvenanceBody
from app.wire.events import EventSchema
from calibrators.plan import Plan
from calibrators.registry import ALGORITHMS
from trainer.devices import HOST

#: The most audits of the run that a report names.
MOST_AUDITS = 20
CAVEATS = (
    "The guarantee covers every bit of a model whose noise was drawn on a public grid. Models of earlier releases had "
    "noise in floating point: the proof does not cover somebody who sees their exact bits.",
    "Step size, clip threshold and iterations are taken as chosen without looking at the private data.",
)
SELECTION = (
    "The best of a random number of trials, drawn in secret, each of a cell drawn at random; no other result is "
    "released. Papernot & Steinke 2022, Lemma 7, Theorems 2 and 6; Koskela, Redberg & Wang 2024."
)
COMPOSITION = "Every cell of the grid is run once, and every result is released: the events of all runs compose."
PUBLIC_ROWS = "The rows are public: the guarantee is what the same run would give to private ones."


def privacy_report(session: Session, run: Run) -> PrivacyReport:
    """Assemble the card from the run's stored plan, its charge and its data set's public description.

    Raises:
        Problem: 500 ``stored_plan_altered``.
    """
    plan = stored_plan(run)
    final = _model_card(session, run, plan)
    sweep = sweep_of(session, run)
    data = _data_summary(session, run)
    reservation = reservation_of(session, run)
    several_rows = of_several_rows(session, run, final.privacy_unit, group_size_of(final.target))
    facts = CardFacts(
        **dict(final),
        state=RunState(run.state),
        sweep=None if sweep is None else _sweep_summary(session, sweep),
        problem=None if run.problem is None else RunProblem.model_validate(run.problem),
        data=data,
        literal=_literal(run),
        plan=plan_body(plan),
        charge=charge_of(session, run)[0],
        budget=None if run.budget_id is None else _budget_summary(session, run.budget_id),
        deployment=None if run.budget_id is None else _deployment(session, run.budget_id),
        ledger=None if reservation is None else _ledger_summary(session, reservation),
        audits=[_audit_summary(audit) for audit in runs.newest_audits(session, run.id, MOST_AUDITS)],
        caveats=[several_rows, *CAVEATS, *([PUBLIC_ROWS] if data.public else []), *run.warnings],
    )
    return PrivacyReport(**dict(facts), evaluation=evaluation(facts), registry=registry(facts))


def model_card(session: Session, run: Run) -> ModelCard | None:
    """Return the part of a released model's card that never changes; None if the stored plan no longer matches its
    hash.

    Only `privacy_report` has the facts that may change: answers of the operator, audits, proofs, names and budgets.
    """
    plan = plan_if_intact(run)
    return None if plan is None else _model_card(session, run, plan)


def _model_card(session: Session, run: Run, plan: Plan) -> ModelCard:
    guarantee = guarantee_body(session, run, plan)
    return ModelCard(
        run_id=run.id,
        statement=guarantee.statement,
        created_at=run.created_at,
        finished_at=run.finished_at,
        seeded=run.seed is not None,
        target=TARGET.validate_python(run.target),
        achieved=achieved_of(run, sweep_of(session, run)),
        convention=ConventionBody.model_validate(convention(plan.neighboring_relation, plan.events)),
        privacy_unit=guarantee.privacy_unit,
        neighbors=guarantee.neighbors,
        model=MODEL_CHOICE.validate_python(run.model),
        algorithm=run.algorithm,
        source=ALGORITHMS[run.algorithm].source,
        events=[EventSchema.of(event) for event in plan.events],
        noise=noise_body(plan),
        choices=choices_of(run),
        theorem_note=run.provenance.get("theorem_note"),
        hyperparameters=[ProvenanceBody.model_validate(item) for item in run.provenance["hyperparameters"]],
        utility=[ProvenanceBody.model_validate(item) for item in run.provenance["utility"]],
        assumptions=run.provenance.get("assumptions", {}),
        plan_hash=run.plan_hash,
        dtype=cast(DtypeName, plan.dtype),
        dtype_reason=run.provenance.get("dtype_reason"),
        budget_id=run.budget_id,
        reservation_id=reservation_id_of(session, run),
        device=None if run.result is None else run.result.get("device", HOST.name),
        versions=None if run.result is None else run.result["versions"],
        scores=[] if run.result is None else [MetricBody.model_validate(each) for each in run.result["metrics"]],
        held_out=_held_out(run),
    )


def _data_summary(session: Session, run: Run) -> DataSummary:
    stored = None if run.dataset_id is None else datasets.find(session, run.dataset_id)
    description = DataDescription.model_validate(run.description)
    return DataSummary(
        dataset_id=run.dataset_id,
        version=run.dataset_version,
        name=None if stored is None or stored.deleted_at is not None else stored.name,
        public=stored is None or stored.is_public,  # rows that come in a request are public
        declared_size=description.declared_size,
        held_out_size=description.held_out_size,
        capacity=description.capacity,
    )


def _deployment(session: Session, budget_id: str) -> DeploymentBody | None:
    said = deployments.nearest(session, budget_id)
    # Cards are passed on, so they do not name who gave the answers. Those who may read the budget can look it up.
    return None if said is None else DeploymentBody.of(said, budget_id, None)


def _held_out(run: Run) -> HeldOutBody | None:
    found = None if run.result is None else run.result.get("held_out")
    return None if found is None else HeldOutBody.model_validate(found)


def _budget_summary(session: Session, budget_id: str) -> BudgetSummary:
    budget = get_budget(session, budget_id)
    return BudgetSummary(
        id=budget.id,
        name=budget.name,
        neighboring_relation=budget.neighboring_relation,
        privacy_unit=budget.privacy_unit,
        limit=limit_in_words(budget.filter),
    )


def _ledger_summary(session: Session, reservation: Reservation) -> LedgerSummary:
    return LedgerSummary(
        reservation_state=reservation.state,
        purpose=reservation.purpose,
        certificate=_certificate_summary(session, reservation),
        entries=[
            EntrySummary(
                id=entry.id,
                kind=entry.kind,
                sequence=entry.sequence,
                leaf_index=entry.leaf_index,
                recorded_at=entry.recorded_at,
                previous_hash=entry.previous_hash,
                hash=entry.hash,
            )
            for entry in ledger.of_reservation(session, reservation)
        ],
        proof=None,
    )


def _certificate_summary(session: Session, reservation: Reservation) -> CertificateSummary | None:
    data = None if reservation.certificate is None else certificate(session, reservation.certificate)
    if data is None or sha256_hex(data) != reservation.certificate:
        return None  # `epsilond ledger verify --proofs` reports certificates that are missing or changed
    stated = json.loads(data)["statement"]
    return CertificateSummary(
        epsilon=float(stated["epsilon"]),
        delta=float(stated["delta"]),
        sha256=reservation.certificate,
        path=f"/v1/reservations/{reservation.id}/certificate",
    )


def _audit_summary(audit: Audit) -> AuditSummary:
    found = audit.finding
    return AuditSummary(
        id=audit.id,
        design=found["design"],
        method=found["method"],
        trials=found["trials"],
        delta=found["finding"]["delta"],
        epsilon_lower=found["finding"]["epsilon_lower"],
        claimed=found["finding"]["claim"]["upper"],
        confidence=found["finding"]["confidence"],
        verdict=found["verdict"],
        created_at=audit.created_at,
    )


def _literal(run: Run) -> LiteralBody | None:
    stored = run.provenance.get("literal")
    return None if stored is None else LiteralBody.model_validate(stored)


def _sweep_summary(session: Session, sweep: RunSweep) -> SweepSummary:
    return SweepSummary(
        id=sweep.id,
        select=sweep.select,
        fields=sweep.fields,
        cells=sweeps.count_cells(session, sweep.id),
        sweep_hash=sweep.sweep_hash,
        guarantee=None if sweep.guarantee is None else read_achieved(sweep.guarantee),
        trials=sweep.trials,
        score=sweep.score,
        theorem=SELECTION if sweep.select == Select.BEST else COMPOSITION,
    )
