"""Prepare a run without writing to the database: describe its data, and calibrate, check and price its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from accounting.effort import is_quick
from accounting.events import Event
from accounting.filters import SMALLEST_DELTA
from accounting.relations import NeighboringRelation
from accounting.units import Amounts
from app.algorithms import service as algorithms
from app.algorithms.binding import DataDescription, build_model, facts_of
from app.algorithms.geometry import to_domain
from app.algorithms.plans import as_published_body
from app.algorithms.targets import (
    AlgorithmChoice,
    ApproximateDpTargetBody,
    RunTargetBody,
    achieved_body,
    to_target,
)
from app.algorithms.trainable import check_model, check_plan, check_slots
from app.algorithms.underivable import underivable
from app.auth import reach
from app.auth.principal import SERVICE, Principal
from app.context import Context
from app.entries.kinds import ChargedData
from app.ledger import repository as ledger
from app.ledger.commands import Quote
from app.ledger.rows import budget_state
from app.problems import Problem, refused_at, unprocessable
from app.reservations import prices, quotes
from app.reservations.certification import certified
from app.reservations.commands import Asked
from app.reservations.schemas import PlanPriceBody
from app.runs import request_data
from app.runs.schemas import RunRequest
from app.wire.answers import ChoiceBody, ProvenanceBody
from calibrators.registry import ALGORITHMS, find_algorithm
from calibrators.spec import Calibration, Unknown
from trainer.models import Model

#: The seconds for which a queued run holds its part of the budget. A run that no worker takes in this time fails.
QUEUE_HOLD_S = 7 * 24 * 3600


@dataclass
class Preparation:
    """A run that is calibrated and checked, but neither charged nor queued.

    Attributes:
        version: The version of its private data; None if the data are public.
    """

    calibration: Calibration
    data: DataDescription
    version: int | None
    assumptions: dict[str, float] = field(default_factory=dict)
    price: Price | None = None
    explanation: PlanPriceBody | None = None

    @property
    def is_public(self) -> bool:
        """Return whether every row of the data may be published."""
        return self.version is None


@dataclass(frozen=True)
class Price:
    """The price of a run or a sweep in its budget.

    Attributes:
        budget_id: The budget.
        events: What is priced: the events of a plan or of a sweep.
        charge_delta: The delta at which an approximate_dp budget prices them.
        quote: Their cost.
    """

    budget_id: str
    events: tuple[Event, ...]
    charge_delta: float | None
    quote: Quote

    def asked(
        self,
        purpose: str = "",
        run_id: str | None = None,
        plan_hash: str | None = None,
        dataset: ChargedData | None = None,
    ) -> Asked:
        """Return the command that holds the price in the budget until a worker takes the run."""
        until = timedelta(seconds=QUEUE_HOLD_S)
        return Asked(self.budget_id, self.events, purpose, until, self.charge_delta, run_id, plan_hash, dataset)

    @property
    def warnings(self) -> list[str]:
        """Return the warnings about the price, as sentences for readers."""
        return [detail for _, detail in self.quote.warnings]


def prepare(context: Context, request: RunRequest, principal: Principal = SERVICE) -> Preparation:
    """Prepare a run: its data's description, its model, its plan and its price.

    Raises:
        Problem: 422 with a pointer to the field that is malformed or does not fit; 404 for an unknown data set.
    """
    if request.certificate and request.budget_id is None:
        detail = (
            "a certificate is kept with a charge, and this run has no charge: give budget_id, or leave certificate out"
        )
        raise unprocessable("unsupported", detail, "certificate")
    ready = calibrate(context, request, principal)
    if request.budget_id is not None:
        plan = ready.calibration.plan
        ready.price = price(
            context,
            request.budget_id,
            plan.events,
            plan.neighboring_relation,
            request.target,
            certificate=request.certificate,
        )
        amounts = ready.price.quote.amounts
        ready.explanation = explained(context, request.budget_id, plan.events, amounts, may_take_long=True)
    return ready


def price(
    context: Context,
    budget_id: str,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    target: RunTargetBody,
    *,
    certificate: bool,
) -> Price:
    """Return the price of what was calibrated for a target: in an approximate_dp budget, at the target's own delta.

    If the caller or the setting wants a certificate, the price has one, or a warning that says why not.

    Raises:
        Problem: as `quotes.quote`; if a delta is missing, it points at the target.
    """
    delta = max(target.delta, SMALLEST_DELTA) if isinstance(target, ApproximateDpTargetBody) else None
    delta = quotes.charge_delta_in(context, budget_id, delta)
    try:
        quote = quotes.quote(context, budget_id, events, charge_delta=delta, relation=relation)
    except Problem as problem:
        if problem.code != "missing_charge_delta":
            raise
        detail = f"the budget prices a run at the delta of its target, and this target ({target.kind}) has none"
        raise unprocessable(problem.code, f"{detail}: use an approximate_dp target", "target", "kind") from None
    if certificate or context.settings.certify_charges:
        quote = certified(context, budget_id, events, quote)
    return Price(budget_id, events, delta, quote)


def explained(
    context: Context, budget_id: str, events: tuple[Event, ...], amounts: Amounts, *, may_take_long: bool
) -> PlanPriceBody | None:
    with context.database.read() as session:
        state, delta = budget_state(ledger.get_budget(session, budget_id)), ledger.report_delta(session, budget_id)
    if not may_take_long and not is_quick(events):
        return None
    said = prices.of_plan(context, state, delta, events, amounts)
    return None if said is None else PlanPriceBody(**said)


def calibrate(context: Context, request: RunRequest, principal: Principal = SERVICE) -> Preparation:
    """Prepare a run without its price.

    Raises:
        Problem: as `prepare`.
    """
    with context.database.read() as session:
        reach.check(session, principal, "budget_id", request.budget_id)
        reach.check(session, principal, "dataset_id", request.dataset_id)
        reach.check(session, principal, "dataset_id", request.test_dataset_id)
        data, version = request_data.describe(session, request)
        request_data.check_test_data(session, request, data)
        relation = _relation_of_budget(session, request)
        request_data.check_privacy(session, request, public=version is None)
    model = build_model(request.model, data)
    if request.algorithm is not None:
        check_model(find_algorithm(request.algorithm).name, request.model.kind)
    choice: AlgorithmChoice = request.model_copy(
        update={"neighboring_relation": request.neighboring_relation or relation}
    )
    facts = facts_of(request, request.model.kind, model, data)
    request_data.check_evaluation(request, data)
    assert data.capacity is not None, "what is described now has one"
    sizes = data.declared_size, data.capacity
    calibration = algorithms.calibrate(context, choice, *sizes, model.num_parameters, facts, request.evaluation)
    plan = calibration.plan
    if not plan.is_executable:
        raise _no_step_size(calibration, model, request)
    check_plan(plan, model, data.capacity)
    check_slots(data.capacity, model)
    if request.expected_plan_hash not in (None, plan.plan_hash):
        raise unprocessable(
            "plan_hash_mismatch",
            f"this request makes the plan {plan.plan_hash}, not the expected one; nothing was charged",
            "expected_plan_hash",
        )
    return Preparation(calibration, data, version, dict(calibration.derived))


def _relation_of_budget(session: Session, request: RunRequest) -> NeighboringRelation | None:
    """Return the budget's neighbouring relation. A run that names no relation uses it."""
    if request.budget_id is None:
        return None
    return NeighboringRelation(ledger.get_budget(session, request.budget_id).neighboring_relation)


def _no_step_size(calibration: Calibration, model: Model, request: RunRequest) -> Problem:
    """Name the constants that the theorem lacks for its step size, and say why no declared bound gives them."""
    missing = calibration.missing_assumptions
    with refused_at():
        domain = to_domain(request.domain)
    reasons = dict(underivable(model, domain, tuple(calibration.derived), request.assumptions))
    named = [f"{name} ({reasons[name].rstrip('.')})" if name in reasons else name for name in missing]
    instead = f", or what its theorem derives it from: {'; '.join(named)}" if named else ""
    if ALGORITHMS[calibration.plan.algorithm].step_rule is not None:
        instead += ", or take the preset practical"
    detail = f"a run needs a step size: give hyperparameters.step_size{instead}"
    return unprocessable("missing", detail, "hyperparameters", "step_size")


def columns_of(request: RunRequest, ready: Preparation) -> dict[str, Any]:
    """Return the columns of a run's row that hold the request and the plan. They are the same for all runs of one cell
    of a sweep."""
    plan = ready.calibration.plan
    return {
        "algorithm": plan.algorithm,
        "plan": plan.canonical(),
        "plan_hash": plan.plan_hash,
        "target": request.target.model_dump(mode="json"),
        "achieved": _achieved(ready.calibration, request),
        "provenance": _provenance(ready),
        "warnings": list(ready.calibration.warnings),
        "model": request.model.model_dump(mode="json"),
        "description": ready.data.model_dump(mode="json"),
        "dataset_id": request.dataset_id,
        "dataset_version": ready.version,
        "inline_dataset": None if request.dataset is None else request.dataset.model_dump(mode="json"),
        "test_dataset_id": request.test_dataset_id,
        "budget_id": request.budget_id,
        "seed": request.seed,
        "steps_total": plan.iterations,
    }


def _achieved(calibration: Calibration, request: RunRequest) -> dict[str, Any]:
    target = to_target(request.target, Unknown.NOISE_MULTIPLIER, None)
    return achieved_body(target, calibration.achieved).model_dump(mode="json")


def _provenance(ready: Preparation) -> dict[str, Any]:
    calibration = ready.calibration
    as_published = as_published_body(calibration.as_published)
    return {
        "hyperparameters": [ProvenanceBody.of(item).model_dump(mode="json") for item in calibration.hyperparameters],
        "utility": [ProvenanceBody.of(item).model_dump(mode="json") for item in calibration.utility],
        "literal": None if as_published is None else as_published.model_dump(mode="json"),
        "choices": [ChoiceBody.of(choice).model_dump(mode="json") for choice in calibration.choices],
        "theorem_note": calibration.theorem_note,
        "assumptions": ready.assumptions,
        "dtype_reason": calibration.dtype_reason,
    }
