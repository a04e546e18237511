"""Use cases of audits: attack a plan, and store the findings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from accounting.canonical import sha256_hex
from accounting.convention import convention
from accounting.errors import AccountingError
from app.algorithms import service as algorithms
from app.algorithms.budget_costs import BudgetReader
from app.algorithms.questions import read
from app.audits import repository
from app.audits.schemas import AuditBody, AuditRequest
from app.auth import reach
from app.auth.principal import Principal
from app.context import Context
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit.ids import new_id
from app.kit.pagination import cut_page, decode_cursor
from app.kit.process_pool import JobFailed
from app.problems import Problem, from_accounting, not_found, unprocessable
from app.runs import service as runs
from app.runs.evaluating import layout_of_run
from app.runs.stored import stored_plan
from app.tables.runs import Audit
from app.wire.answers import ConventionBody
from app.wire.events import EventSchema
from calibrators.plan import Plan, plan_from_canonical
from trainer.audit.audit import AuditCancelled, attacked_events, audit
from trainer.audit.held_out import TWO_CLASSES
from trainer.held_out import Layout

#: The audit's share of the time limit of its process; the rest is for starting the process and for its answer.
SHARE_OF_TIME = 0.8


@dataclass(frozen=True)
class Audited:
    """A plan and the findings of the attack on it."""

    plan: Plan
    found: dict[str, Any]


def carry_out(context: Context, request: AuditRequest, principal: Principal) -> Audited:
    """Attack the plan that the request names, in a process with limits of time and memory.

    Raises:
        Problem: 422 if there is no such plan, it cannot run, or the attack takes too long; 404 for an unknown run.
    """
    plan, layout = _plan(context, request, principal)
    if not plan.is_executable:
        raise unprocessable(
            "missing",
            "an audit carries out the plan, and this plan has no step size: give hyperparameters.step_size",
            "calibration",
            "hyperparameters",
            "step_size",
        )
    seconds = SHARE_OF_TIME * context.audit_processes.seconds
    try:
        found = context.audit_processes.run(attack, plan.canonical(), layout, request.model_dump(), seconds)
        return Audited(plan, found)
    except AccountingError as error:
        raise from_accounting(error) from None
    except (AuditCancelled, JobFailed):
        raise unprocessable(
            "too_much_work",
            f"the audit did not finish within {seconds:.0f} s; take fewer trials, or a plan of fewer steps",
            "trials",
        ) from None


def attack(plan: bytes, layout: Layout, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Carry out the audit. It runs in another process, so its arguments and its result can be pickled."""
    deadline = time.monotonic() + seconds
    result = audit(
        plan_from_canonical(plan, sha256_hex(plan)),
        delta=request["delta"],
        trials=request["trials"],
        confidence=request["confidence"],
        method=request["method"],
        design=request["design"],
        layout=layout,
        seed=request["seed"],
        is_cancelled=lambda: time.monotonic() > deadline,
    )
    return dict(result.to_json())


def store(session: Session, context: Context, principal_id: str, request: AuditRequest, audited: Audited) -> Audit:
    """Store an audit with the claim that it tests."""
    found = audited.found
    stored = Audit(
        id=new_id("aud"),
        principal_id=principal_id,
        algorithm=audited.plan.algorithm,
        run_id=request.run_id,
        plan=audited.plan.canonical(),
        plan_hash=audited.plan.plan_hash,
        request=request.model_dump(mode="json"),
        claim=found["finding"]["claim"],
        finding=found,
        created_at=context.clock(),
    )
    session.add(stored)
    entered = Registration(EntryKind.REGISTER, Subject.AUDIT, stored.id, principal_id)
    registering.enter(session, stored.created_at, [entered])
    return stored


def get(session: Session, audit_id: str) -> Audit:
    found = repository.find(session, audit_id)
    if found is None:
        raise not_found("audit", audit_id)
    return found


def list_page(
    session: Session, cursor: str | None, limit: int, run_id: str | None, within: ColumnElement[bool]
) -> tuple[Sequence[Audit], str | None]:
    """Return the audits that the reader may see, newest first, and the next page's cursor."""
    before = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    found = repository.page(session, before, limit + 1, run_id, within)
    return cut_page(found, limit, lambda item: (item.created_at, item.id))


def audit_body(stored: Audit) -> AuditBody:
    plan = plan_from_canonical(stored.plan, stored.plan_hash)
    events = attacked_events(plan, stored.finding["design"])
    return AuditBody(
        id=stored.id,
        run_id=stored.run_id,
        algorithm=stored.algorithm,
        plan_hash=stored.plan_hash,
        events=[EventSchema.of(event) for event in events],
        convention=ConventionBody.model_validate(convention(plan.neighboring_relation, events)),
        created_at=stored.created_at,
        **stored.finding,
    )


def _plan(context: Context, request: AuditRequest, principal: Principal) -> tuple[Plan, Layout]:
    """Return the attacked plan, and the layout of the vector that an evaluation on held-out rows would release."""
    if (request.run_id is None) == (request.calibration is None):
        raise unprocessable("missing", "give either run_id or calibration", "calibration")
    if request.run_id is not None:
        with context.database.read() as session:
            reach.check(session, principal, "run_id", request.run_id)
            run = runs.get(session, request.run_id)
            plan = stored_plan(run)
            return plan, TWO_CLASSES if plan.evaluation is None else layout_of_run(run)
    assert request.calibration is not None
    try:
        question = read(request.calibration, BudgetReader(context, principal))
        return algorithms.solve_within_limits(context, question).plan, TWO_CLASSES
    except Problem as problem:
        raise problem.inside("calibration") from None
