"""Use cases of runs: create (calibrate, reserve, queue), read, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from accounting.effort import is_quick
from accounting.events import Event
from accounting.filters import SMALLEST_DELTA
from accounting.relations import NeighboringRelation
from accounting.units import Amounts
from app.algorithms import service as algorithms
from app.algorithms.binding import DataDescription, build_model, facts_of
from app.algorithms.geometry import to_domain
from app.algorithms.model_choice import MODEL_CHOICE
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
from app.datasets import service as datasets
from app.datasets import versions
from app.datasets.inline import load_inline
from app.entries import registering
from app.entries.kinds import ChargedData, EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit import spans
from app.kit.ids import new_id
from app.kit.pagination import cut_page, decode_cursor
from app.ledger import repository as ledger
from app.ledger.commands import Quote
from app.ledger.rows import budget_state
from app.problems import Problem, not_found, refused_at, unprocessable
from app.reservations import prices, quotes
from app.reservations import service as reservations
from app.reservations.certification import certified
from app.reservations.commands import Asked, reserve
from app.reservations.schemas import PlanPriceBody
from app.runs import artifacts, lifecycle, repository
from app.runs import sweep_progression as progression
from app.runs import sweep_repository as run_sweeps
from app.runs.model_schemas import ModelBody, hash_of_card
from app.runs.report import guarantee_of, model_card
from app.runs.schemas import RunRequest
from app.tables.runs import Run
from app.tables.states import RunState
from app.wire.answers import ChoiceBody, ProvenanceBody
from calibrators.registry import ALGORITHMS, find_algorithm
from calibrators.spec import Calibration, Unknown
from trainer.models import TASKS, Model, Parameters, Task

#: A queued run holds its budget this long. If no worker takes it before, the hold is released and the run fails.
QUEUE_HOLD_S = 7 * 24 * 3600
#: A charge that is as near to the epsilon that was asked for, relatively, is the one that was asked for.
AS_ASKED = 1e-3


@dataclass
class Preparation:
    """A run that is calibrated and checked, but neither charged nor queued.

    Attributes:
        version: Of its private data; None where they are public.
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
        budget_id: Which budget.
        events: What is to be released.
        charge_delta: The delta at which an approximate_dp budget prices them.
        quote: What they cost.
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
        """The reservation that is asked for, until a worker takes the run."""
        until = timedelta(seconds=QUEUE_HOLD_S)
        return Asked(self.budget_id, self.events, purpose, until, self.charge_delta, run_id, plan_hash, dataset)

    @property
    def warnings(self) -> list[str]:
        """Return the warnings for readers about it."""
        return [detail for _, detail in self.quote.warnings]


def prepare(context: Context, request: RunRequest, principal: Principal = SERVICE) -> Preparation:
    """Everything about a run that needs no transaction: its data's description, its model, its plan, its price.

    Raises:
        Problem: 422 that points at what is malformed or does not fit, 404 for an unknown data set.
    """
    if request.certificate and request.budget_id is None:
        detail = "a certificate is kept with a charge, and this run has none: give budget_id, or leave certificate out"
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
        ready.explanation = _explained(context, request.budget_id, plan.events, amounts, may_take_long=True)
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
    """The price of what a target was calibrated for: in an approximate_dp budget at the target's own delta.

    Where a certificate is wanted, by the caller or by the setting, it comes with one or with a warning.

    Raises:
        Problem: as `quotes.quote`; where a delta is missing, it points at the target.
    """
    delta = max(target.delta, SMALLEST_DELTA) if isinstance(target, ApproximateDpTargetBody) else None
    delta = quotes.charge_delta_in(context, budget_id, delta)
    try:
        quote = quotes.quote(context, budget_id, events, charge_delta=delta, relation=relation)
    except Problem as problem:
        if problem.code != "missing_charge_delta":
            raise
        detail = f"the budget prices a run at the delta of its target, and a {target.kind} target has none"
        raise unprocessable(problem.code, f"{detail}: give an approximate_dp target", "target", "kind") from None
    if certificate or context.settings.certify_charges:
        quote = certified(context, budget_id, events, quote)
    return Price(budget_id, events, delta, quote)


def _explained(
    context: Context, budget_id: str, events: tuple[Event, ...], amounts: Amounts, *, may_take_long: bool
) -> PlanPriceBody | None:
    with context.database.read() as session:
        state, delta = budget_state(ledger.get_budget(session, budget_id)), ledger.report_delta(session, budget_id)
    if not may_take_long and not is_quick(events):
        return None
    said = prices.of_plan(context, state, delta, events, amounts)
    return None if said is None else PlanPriceBody(**said)


def price_of(context: Context, run_id: str) -> PlanPriceBody | None:
    """Return what the plan of a run costs alone; None where it has no charge of its own, or it may take long."""
    with context.database.read() as session:
        run = get(session, run_id)
        if run.reservation_id is None or run.budget_id is None:
            return None
        held = reservations.get_reservation(session, run.reservation_id)
        asked = run.budget_id, held.events, held.cost
    return _explained(context, *asked, may_take_long=False)


def calibrate(context: Context, request: RunRequest, principal: Principal = SERVICE) -> Preparation:
    """Prepare a run without its price.

    Raises:
        Problem: as `prepare`.
    """
    with context.database.read() as session:
        reach.check(session, principal, "budget_id", request.budget_id)
        reach.check(session, principal, "dataset_id", request.dataset_id)
        reach.check(session, principal, "dataset_id", request.test_dataset_id)
        data, version = _describe(session, request)
        _check_test_data(session, request, data)
        relation = _relation_of_budget(session, request)
        _check_privacy(session, request, public=version is None)
    model = build_model(request.model, data)
    if request.algorithm is not None:
        check_model(find_algorithm(request.algorithm).name, request.model.kind)
    choice: AlgorithmChoice = request.model_copy(
        update={"neighboring_relation": request.neighboring_relation or relation}
    )
    facts = facts_of(request, request.model.kind, model, data)
    _check_evaluation(request, data)
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


def _no_step_size(calibration: Calibration, model: Model, request: RunRequest) -> Problem:
    """Name what the theorem lacks for its step size, each constant with the reason why no declared bound gives it."""
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


def check_queue(context: Context, principal_id: str, more: int = 1) -> None:
    """Refuse a key that has too many runs waiting; several requests at once may each pass the last place.

    Args:
        context: The process's context.
        principal_id: Whose key it is.
        more: How many runs are to be queued.

    Raises:
        Problem: 429 ``queue_full``.
    """
    most = context.settings.queued_runs_per_key
    with context.database.read() as session:
        queued = repository.count_queued(session, principal_id) + run_sweeps.count_waiting(session, principal_id)
    if queued + more > most:
        detail = (
            f"{queued} runs of this key wait for a worker, {more} more {'is' if more == 1 else 'are'} asked for, and "
            f"{most} is the limit. Ask again when some have been taken, or cancel some."
        )
        raise Problem(429, "queue_full", detail, headers={"Retry-After": "60"})


def create(session: Session, context: Context, principal_id: str, request: RunRequest, ready: Preparation) -> Run:
    """Reserve the plan's cost and queue the run, in the caller's transaction.

    Raises:
        Problem: 409 when the budget is not the data set's own.
        Exceeded: the budget does not admit the plan.
    """
    plan = ready.calibration.plan
    run_id = new_id("run")
    reservation_id = None
    registering.lock(session)
    warnings = list(ready.calibration.warnings)
    if request.budget_id is not None:
        assert ready.price is not None, "what is charged has a price"
        charged = datasets.charged_by_run(session, request.dataset_id, ready.version, request.budget_id)
        asked = ready.price.asked(f"{plan.algorithm} run {run_id}", run_id, plan.plan_hash, charged)
        reservation_id = reserve(session, context, principal_id, asked, ready.price.quote)
        warnings += ready.price.warnings
        warnings += _charged_otherwise(request.target, ready.explanation)
    run = Run(
        **{**columns_of(request, ready), "warnings": warnings},
        id=run_id,
        principal_id=principal_id,
        state=RunState.QUEUED,
        reservation_id=reservation_id,
        steps_done=0,
        trace_parent=spans.current_as_text(),
        created_at=context.clock(),
    )
    session.add(run)
    entered = Registration(EntryKind.REGISTER, Subject.RUN, run_id, principal_id)
    registering.enter(session, run.created_at, [entered])
    return run


def _charged_otherwise(target: RunTargetBody, price: PlanPriceBody | None) -> list[str]:
    """Say it where a run asks for an epsilon and its budget charges another."""
    if not isinstance(target, ApproximateDpTargetBody) or price is None or price.charged is None:
        return []
    if target.group_size > 1:
        return [
            f"The run's epsilon is for groups of {target.group_size} records; its budget charges what the plan costs "
            f"one record, epsilon {price.charged:.5g} at delta {price.delta:g}."
        ]
    if abs(price.charged - target.epsilon) <= AS_ASKED * target.epsilon:
        return []
    tight = "" if price.tight.upper is None else f", where its tight epsilon is at most {price.tight.upper:.5g}"
    return [
        f"The run asks for epsilon {target.epsilon:g} at delta {target.delta:g}, and its budget charges the plan as "
        f"epsilon {price.charged:.5g} at delta {price.delta:g}{tight}. {price.why}"
    ]


def columns_of(request: RunRequest, ready: Preparation) -> dict[str, Any]:
    """Return what a run's row says of its request and its plan; nothing of it belongs to one run alone."""
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


def get(session: Session, run_id: str) -> Run:
    run = repository.find(session, run_id)
    if run is None:
        raise not_found("run", run_id)
    return run


def list_page(
    session: Session, cursor: str | None, limit: int, within: ColumnElement[bool]
) -> tuple[Sequence[Run], str | None]:
    """Runs that the reader reaches, newest first, and the next page's cursor."""
    before = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    found = repository.page(session, before, limit + 1, within)
    return cut_page(found, limit, lambda run: (run.created_at, run.id))


def cancel(session: Session, context: Context, run_id: str, principal: Principal) -> Run:
    """Cancel a queued run, or ask the worker of a running one to stop; charged in full if it was started ever.

    Raises:
        Problem: 403 ``not_your_run``; 409 when the run has ended.
    """
    run = repository.find_for_update(session, run_id)
    if run is None or run.is_withheld:
        raise not_found("run", run_id)
    if not principal.acts_for(run.principal_id):
        raise not_your_run("run")
    if run.state == RunState.QUEUED:
        lifecycle.settle(session, context, run, lifecycle.Ending(RunState.CANCELLED))
    elif run.state == RunState.RUNNING:
        run.state = RunState.CANCELLING
    elif run.state != RunState.CANCELLING:
        raise Problem(409, "run_has_ended", f"The run has {run.state}; it can no longer be cancelled.")
    session.flush()
    return run


def not_your_run(what: str) -> Problem:
    """403 for whoever would end what another key has begun, and paid for."""
    return Problem(
        403, "not_your_run", f"Another key made this {what}: that key cancels it, or one with the scope owner."
    )


def go_on_with_sweep(context: Context, run_id: str) -> None:
    """Settle the run's sweep, if it has one and this was the last of its runs."""
    with context.database.read() as session:
        run = repository.find(session, run_id)
    if run is not None:
        progression.advance(context, {run.sweep_id})


def released(session: Session, context: Context, run_id: str) -> Run:
    """The run, whose model there is.

    Raises:
        Problem: 404; 409 ``model_not_released``.
    """
    run = get(session, run_id)
    if run.state != RunState.SUCCEEDED:
        raise Problem(409, "model_not_released", f"The run has not succeeded (it is {run.state}): there is no model.")
    if not artifacts.model_path(context, run).exists():
        raise Problem(409, "model_not_released", "There is no model that the run has released.")
    return run


def model_body(session: Session, context: Context, run: Run) -> ModelBody:
    """The model of a run that succeeded, with what is needed to use it."""
    return _model_body(session, run, artifacts.read_parameters(context, run))


def model_file(session: Session, context: Context, run: Run) -> bytes:
    """Return the model as an NPZ file."""
    document = _model_body(session, run, {}).model_dump(mode="json", exclude={"parameters"})
    return artifacts.model_file(context, run, document)


def _model_body(session: Session, run: Run, parameters: Parameters) -> ModelBody:
    data, card = DataDescription.model_validate(run.description), model_card(session, run)
    return ModelBody(
        run_id=run.id,
        algorithm=run.algorithm,
        kind=run.model["kind"],
        model=MODEL_CHOICE.validate_python(run.model),
        plan_hash=run.plan_hash,
        features=[column.model_dump(mode="json") for column in data.features],
        classes=list(data.classes),
        label=data.label.model_dump(mode="json"),
        guarantee=guarantee_of(session, run),
        card=card,
        card_hash=None if card is None else hash_of_card(card),
        parameters={name: array.tolist() for name, array in parameters.items()},
    )


def _describe(session: Session, request: RunRequest) -> tuple[DataDescription, int | None]:
    """Return what is declared of the data, and which version is trained on; None for public data."""
    if (request.dataset_id is None) == (request.dataset is None):
        raise unprocessable(
            "missing", "give dataset_id, or dataset with public rows; exactly one of them", "dataset_id"
        )
    if request.dataset is not None:
        if request.dataset_version is not None:
            raise unprocessable(
                "overdetermined", "rows in a request have no versions: leave this out", "dataset_version"
            )
        return DataDescription.of_inline(load_inline(request.dataset, "dataset")), None
    assert request.dataset_id is not None
    dataset = datasets.get(session, request.dataset_id)
    version = versions.get(session, dataset, request.dataset_version)
    return DataDescription.of(dataset, version), None if dataset.is_public else version.number


def _relation_of_budget(session: Session, request: RunRequest) -> NeighboringRelation | None:
    """The relation that the budget counts under: a run that names none is meant under it."""
    if request.budget_id is None:
        return None
    return NeighboringRelation(ledger.get_budget(session, request.budget_id).neighboring_relation)


def _check_test_data(session: Session, request: RunRequest, data: DataDescription) -> None:
    if request.test_dataset_id is None:
        return
    test = datasets.get(session, request.test_dataset_id)
    if not test.is_public:
        raise unprocessable(
            "test_dataset_not_public",
            "a score on private rows would be a release of its own: the test data set must be declared public",
            "test_dataset_id",
        )
    if not DataDescription.of(test, versions.newest(session, test)).has_columns_of(data):
        raise unprocessable(
            "columns_differ",
            "the test data set must declare the same columns (names, order, bounds, categories) and the same label",
            "test_dataset_id",
        )


def _check_evaluation(request: RunRequest, data: DataDescription) -> None:
    if request.evaluation is None:
        return
    if data.held_out_size is None:
        detail = (
            "the data hold no rows out: register a private data set with held_out_share, or score the model on public "
            "rows with test_dataset_id"
        )
        raise unprocessable("no_held_out_rows", detail, "evaluation")
    if TASKS[request.model.kind] is Task.MEAN:
        raise unprocessable("unsupported", "a mean predicts no label: leave evaluation out", "evaluation")


def _check_privacy(session: Session, request: RunRequest, *, public: bool) -> None:
    if not public and request.seed is not None:
        raise unprocessable(
            "seed_on_private_data",
            "a seed is for public data alone: anybody who knows it can subtract the noise",
            "seed",
        )
    if not public and request.budget_id is None:
        assert request.dataset_id is not None, "rows in a request are public"
        own = datasets.get(session, request.dataset_id).budget_id
        detail = (
            f"private data need a budget that pays for the run: {own}, which this data set is bound to, or a part of it"
        )
        raise unprocessable("missing", detail, "budget_id")


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
