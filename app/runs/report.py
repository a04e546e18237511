"""The report of a run: its state, and the privacy card that a reader of its model needs."""

from __future__ import annotations

import json
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, cast

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from accounting.canonical import sha256_hex
from accounting.convention import convention
from accounting.errors import AccountingError
from accounting.relations import NeighboringRelation
from app.algorithms.binding import DataDescription
from app.algorithms.model_choice import MODEL_CHOICE
from app.algorithms.plans import LiteralBody, noise_body, plan_body
from app.algorithms.schemas import AchievedBody, DtypeName
from app.algorithms.targets import (
    AchievedMuBody,
    AchievedOfGroupsBody,
    AchievedPureBody,
    AchievedRhoBody,
    AnyAchievedBody,
    ApproximateDpTargetBody,
    RunTargetBody,
)
from app.datasets import repository as datasets
from app.deployments import repository as deployments
from app.deployments.schemas import DeploymentBody
from app.ledger import repository as ledger
from app.ledger.amounts import limit_in_words
from app.ledger.books_repository import certificate
from app.ledger.repository import get_budget
from app.problems import Problem
from app.reservations import service as reservations
from app.runs import repository as runs
from app.runs import sweep_repository as sweeps
from app.runs.evaluation import evaluation, registry
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
from app.runs.schemas import GuaranteeBody, HeldOutBody, MetricBody, ProgressBody, ResultBody, RunBody, RunProblem
from app.tables.ledger import Reservation
from app.tables.runs import Audit, Run, RunSweep
from app.tables.states import ReservationStatus, RunState, Select
from app.wire.answers import ChoiceBody, ConventionBody, ProvenanceBody
from app.wire.events import EventSchema
from calibrators.plan import Plan, plan_from_canonical
from calibrators.registry import ALGORITHMS
from trainer.devices import HOST

NEIGHBOURS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "one {unit} is added or removed",
    NeighboringRelation.REPLACE_ONE: "one {unit} is replaced by another",
    NeighboringRelation.REPLACE_SPECIAL: "one {unit} is replaced by a null record in its place",
}
GROUP_NEIGHBOURS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "a group of up to {size} is added or removed, each of them one {unit}",
    NeighboringRelation.REPLACE_ONE: "a group of up to {size} is replaced by others, each of them one {unit}",
    NeighboringRelation.REPLACE_SPECIAL: "a group of up to {size}, each of them one {unit}, is replaced by null "
    "records in their places",
}

PLAN_ALTERED = "The run's stored plan does not have its hash any more: somebody else has changed the database."

#: Audits of the run that a report names.
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


_TARGET: TypeAdapter[RunTargetBody] = TypeAdapter(RunTargetBody)
_ACHIEVED: TypeAdapter[AnyAchievedBody] = TypeAdapter(AnyAchievedBody)


def stored_plan(run: Run) -> Plan:
    """Return the run's plan.

    Raises:
        Problem: 500 ``stored_plan_altered`` if its bytes no longer have their hash.
    """
    plan = _plan_if_intact(run)
    if plan is None:
        raise Problem(500, "stored_plan_altered", PLAN_ALTERED)
    return plan


def _plan_if_intact(run: Run) -> Plan | None:
    try:
        return plan_from_canonical(run.plan, run.plan_hash)
    except AccountingError:
        return None


def sweep_of(session: Session, run: Run) -> RunSweep | None:
    """Return the sweep whose charge the run is part of."""
    return None if run.sweep_id is None else session.get_one(RunSweep, run.sweep_id)


def reservation_id_of(session: Session, run: Run) -> str | None:
    """Return the reservation that holds what the run costs: its own, or its sweep's."""
    sweep = sweep_of(session, run)
    return run.reservation_id if sweep is None else sweep.reservation_id


def run_body(session: Session, run: Run) -> RunBody:
    """State, progress and result."""
    plan = _plan_if_intact(run)
    charge, given_back = charge_of(session, run)
    return RunBody(
        id=run.id,
        state=RunState(run.state),
        algorithm=run.algorithm,
        progress=ProgressBody(done=run.steps_done, total=run.steps_total),
        dataset_id=run.dataset_id,
        dataset_version=run.dataset_version,
        test_dataset_id=run.test_dataset_id,
        model=MODEL_CHOICE.validate_python(run.model),
        budget_id=run.budget_id,
        reservation_id=reservation_id_of(session, run),
        sweep_id=run.sweep_id,
        plan=None if plan is None else plan_body(plan),
        plan_hash=run.plan_hash,
        dtype=None if plan is None else cast(DtypeName, plan.dtype),
        dtype_reason=run.provenance.get("dtype_reason"),
        choices=_choices(run),
        theorem_note=run.provenance.get("theorem_note"),
        charge=charge,
        given_back=given_back,
        result=None if run.result is None else ResultBody.model_validate(run.result),
        problem=None if run.problem is None else RunProblem.model_validate(run.problem),
        warnings=run.warnings if plan is not None else [PLAN_ALTERED, *run.warnings],
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        release_at=run.release_at,
    )


def _choices(run: Run) -> list[ChoiceBody]:
    """Return the choices for what its request left out. Runs from before there were presets have no record of them."""
    return [ChoiceBody.model_validate(item) for item in run.provenance.get("choices", ())]


def privacy_report(session: Session, run: Run) -> PrivacyReport:
    """Assemble the card from the run's stored plan, its charge and its data set's public description.

    Raises:
        Problem: 500 ``stored_plan_altered``.
    """
    plan = stored_plan(run)
    final = _model_card(session, run, plan)
    sweep = sweep_of(session, run)
    data = _data_summary(session, run)
    reservation = _reservation_of(session, run)
    of_several_rows = _of_several_rows(session, run, final.privacy_unit, _group_size(final.target))
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
        caveats=[of_several_rows, *CAVEATS, *([PUBLIC_ROWS] if data.public else []), *run.warnings],
    )
    return PrivacyReport(**dict(facts), evaluation=evaluation(facts), registry=registry(facts))


def model_card(session: Session, run: Run) -> ModelCard | None:
    """Return the part of a released model's card that never changes; None if the stored plan has another hash.

    Answers of the operator, audits, proofs, names and budgets may change, so only `privacy_report` has them.
    """
    plan = _plan_if_intact(run)
    return None if plan is None else _model_card(session, run, plan)


def _model_card(session: Session, run: Run, plan: Plan) -> ModelCard:
    guarantee = _guarantee_body(session, run, plan)
    return ModelCard(
        run_id=run.id,
        statement=guarantee.statement,
        created_at=run.created_at,
        finished_at=run.finished_at,
        seeded=run.seed is not None,
        target=_TARGET.validate_python(run.target),
        achieved=_achieved(run, sweep_of(session, run)),
        convention=ConventionBody.model_validate(convention(plan.neighboring_relation, plan.events)),
        privacy_unit=guarantee.privacy_unit,
        neighbors=guarantee.neighbors,
        model=MODEL_CHOICE.validate_python(run.model),
        algorithm=run.algorithm,
        source=ALGORITHMS[run.algorithm].source,
        events=[EventSchema.of(event) for event in plan.events],
        noise=noise_body(plan),
        choices=_choices(run),
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


def guarantee_of(session: Session, run: Run) -> GuaranteeBody | None:
    """Return the guarantee of what the run releases; None if its stored plan no longer has its hash."""
    plan = _plan_if_intact(run)
    return None if plan is None else _guarantee_body(session, run, plan)


def _guarantee_body(session: Session, run: Run, plan: Plan) -> GuaranteeBody:
    unit = DataDescription.model_validate(run.description).privacy_unit
    neighbors = _neighbors(plan.neighboring_relation, unit, _group_size(_TARGET.validate_python(run.target)))
    sweep = sweep_of(session, run)
    statement = _statement(run, _achieved(run, sweep), neighbors, _reservation_of(session, run))
    return GuaranteeBody(
        statement=statement + _of_the_sweep(session, sweep),
        privacy_unit=unit,
        neighbors=neighbors,
        card=f"/v1/runs/{run.id}/report",
    )


def _reservation_of(session: Session, run: Run) -> Reservation | None:
    reservation_id = reservation_id_of(session, run)
    return None if reservation_id is None else reservations.get_reservation(session, reservation_id)


def _group_size(target: RunTargetBody) -> int:
    return target.group_size if isinstance(target, ApproximateDpTargetBody) else 1


def _neighbors(relation: NeighboringRelation, unit: str, group_size: int) -> str:
    """Return in words how neighbouring data sets differ: in one row, or in all rows of a group."""
    if group_size == 1:
        return NEIGHBOURS[relation].format(unit=unit)
    return GROUP_NEIGHBOURS[relation].format(unit=unit, size=group_size)


def _of_several_rows(session: Session, run: Run, unit: str, group_size: int) -> str:
    """Return in words what the guarantee means for somebody with several rows, from the declaration and without
    counting rows."""
    dataset = None if run.dataset_id is None else datasets.find(session, run.dataset_id)
    most = None if dataset is None else dataset.rows_per_person
    if most is None and group_size > 1:
        return (
            f"One row is taken as one {unit}. The guarantee is for {group_size} of them at a time, and weaker for more."
        )
    if most is None:
        return f"One row is taken as one {unit}: a {unit} with several rows has a weaker guarantee."
    if most == 1:
        return "No person has more than one row, by the ids that the owner gave: they were compared at each upload."
    if most <= group_size:
        return f"A person has at most {most} rows, by the ids that the owner gave. The guarantee is about all of them."
    return (
        f"A person has at most {most} rows, by the ids that the owner gave. The guarantee is about {group_size} of "
        f"them; /v1/account says with group_size {most} what it is for all."
    )


def _data_summary(session: Session, run: Run) -> DataSummary:
    stored = None if run.dataset_id is None else datasets.find(session, run.dataset_id)
    description = DataDescription.model_validate(run.description)
    return DataSummary(
        dataset_id=run.dataset_id,
        version=run.dataset_version,
        name=None if stored is None or stored.deleted_at is not None else stored.name,
        public=stored is None or stored.is_public,  # rows in a request are
        declared_size=description.declared_size,
        held_out_size=description.held_out_size,
        capacity=description.capacity,
    )


def _deployment(session: Session, budget_id: str) -> DeploymentBody | None:
    said = deployments.nearest(session, budget_id)
    # Cards are handed out, and keys are often called after people: who they are is for readers of the budget.
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
        return None  # `epsilond ledger verify --proofs` finds what is missing or was changed
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


def charge_of(session: Session, run: Run) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return what the run's reservation holds or has spent, and what was given back for steps that the run gave up.

    Both are in the filter's own fields, and None without a budget. The charge of a sweep is for all its runs; a single
    run of a sweep gives nothing up.
    """
    reservation_id = reservation_id_of(session, run)
    if reservation_id is None:
        return None, None
    charge, given_back = reservations.charge(session, reservation_id)
    return charge, given_back if reservation_id == run.reservation_id else None


def round_up(number: float | None) -> str:
    """Write a number with at most six significant digits, and never below it.

    >>> round_up(1.2345644), round_up(1e-5), round_up(None)
    ('1.23457', '0.00001', 'unbounded')
    """
    if number is None:
        return "unbounded"
    exact = Decimal(number)
    # The double nearest to a short decimal is meant as that decimal; only what is above it is rounded up.
    short = Decimal(f"{number:.6g}")
    return str(short if short >= Decimal(repr(number)) else Context(prec=6, rounding=ROUND_CEILING).plus(exact))


def _statement(run: Run, achieved: AnyAchievedBody, neighbors: str, reservation: Reservation | None) -> str:
    if run.seed is not None:
        return "This run was seeded, on public data: it repeats, and protects nobody."
    private = f"{_guarantee(achieved)} where {neighbors}."
    if run.state == RunState.SUCCEEDED:
        return f"The released model is {private}"
    if run.state not in (RunState.FAILED, RunState.CANCELLED):
        return f"Nothing was released so far. The plan is {private}"
    end = "failed" if run.state == RunState.FAILED else "was cancelled"
    ended = f"Nothing was released: the run {end}. Its plan was {private}"
    if reservation is None:
        return ended
    if reservation.state in (ReservationStatus.STARTED, ReservationStatus.COMMITTED):
        return f"{ended} The charge stands: noise may have been drawn."
    return f"{ended} Nothing was charged."


def _achieved(run: Run, sweep: RunSweep | None) -> AnyAchievedBody:
    """Return the guarantee of the released model; if it was selected among others, this is the cost of the
    selection."""
    if sweep is None or sweep.select != Select.BEST:
        return _read_achieved(run.achieved)
    assert sweep.guarantee is not None, "a selection has a guarantee"
    return _read_achieved(sweep.guarantee)


def _read_achieved(stored: dict[str, Any]) -> AnyAchievedBody:
    body: AnyAchievedBody = _ACHIEVED.validate_python(stored)
    return body


def _of_the_sweep(session: Session, sweep: RunSweep | None) -> str:
    if sweep is None:
        return ""
    cells = sweeps.count_cells(session, sweep.id)
    if sweep.select == Select.BEST:
        return (
            f" This is the cost of selecting it as the best of a secret number of trials on a grid of {cells} cells, "
            "which holds as long as that number stays secret."
        )
    if sweep.guarantee is None:
        return f" It is one of {cells} runs of a sweep, whose results are all released: the charge is for all of them."
    together = _guarantee(_ACHIEVED.validate_python(sweep.guarantee))
    return f" It is one of {cells} runs of a sweep, whose results are all released: together they are {together}."


def _sweep_summary(session: Session, sweep: RunSweep) -> SweepSummary:
    return SweepSummary(
        id=sweep.id,
        select=sweep.select,
        fields=sweep.fields,
        cells=sweeps.count_cells(session, sweep.id),
        sweep_hash=sweep.sweep_hash,
        guarantee=None if sweep.guarantee is None else _ACHIEVED.validate_python(sweep.guarantee),
        trials=sweep.trials,
        score=sweep.score,
        theorem=SELECTION if sweep.select == Select.BEST else COMPOSITION,
    )


def _guarantee(achieved: AnyAchievedBody) -> str:
    match achieved:
        case AchievedBody() | AchievedOfGroupsBody():
            return f"({round_up(achieved.epsilon.upper)}, {round_up(achieved.delta)})-differentially private"
        case AchievedPureBody():
            return f"{round_up(achieved.epsilon)}-differentially private"
        case AchievedRhoBody():
            return f"{round_up(achieved.rho)}-zCDP"
        case AchievedMuBody():
            return f"{round_up(achieved.mu)}-Gaussian differentially private"
    raise AssertionError(f"a run's target is a guarantee, not {type(achieved).__name__}")
