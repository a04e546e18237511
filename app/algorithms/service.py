"""Use cases of calibration: read a request, solve it, describe the algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from accounting.errors import AccountingError, NoCostInFilter, Unreachable, Unsupported, inside
from accounting.events import DisjointBatches, Event, FullBatch, Poisson, ShuffledEpochs
from accounting.targets import ApproximateDpTarget, BudgetTarget, GroupDpTarget, Target
from app.algorithms.answers import calibrate_answer
from app.algorithms.budget_costs import (
    BudgetReader,
    CostInBudgetBody,
    KnownBudget,
    budget_target,
    cost_in_budget,
    fits_in_budget,
)
from app.algorithms.calibrate import CalibrateAnswer, CalibrateRequest
from app.algorithms.geometry import to_domain, to_gradient_bound, to_penalty
from app.algorithms.schemas import (
    AlgorithmBody,
    AlgorithmFields,
    AssumptionBody,
)
from app.algorithms.targets import AlgorithmChoice, BudgetGoal, to_target
from app.auth.principal import Principal
from app.context import Context
from app.kit.process_pool import too_much_work
from app.privacy.certificates import certificates
from app.problems import Problem, from_accounting, unprocessable
from calibrators import registry
from calibrators.algorithm import Algorithm, Assumption
from calibrators.correlation import Correlation
from calibrators.evaluated import EvaluatedRun
from calibrators.practical import UNKNOWN_OBJECTIVE, Draft, Objective
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.stages import Stage
from calibrators.step_sizes import StepSizeSchedule
from trainer.algorithms import EXECUTIONS
from trainer.numeric_types import carried_out

Said = TypeVar("Said")


class Evaluation(Protocol):
    """An evaluation on held-out rows, as a run asks for it."""

    @property
    def noise_multiplier(self) -> float | None: ...


@dataclass(frozen=True)
class Question:
    """A request that is read and checked, with everything that solving it takes.

    Attributes:
        algorithm: Name of the calibrator.
        spec: What it is asked.
        budget: The budget that the plan's cost is shown in, as it was when the request was read.
        charge_delta: At which that budget prices the plan, if it is an approximate_dp one.
        dtype: The numeric type that the plan is to be carried out in; None leaves it to `trainer.numeric_types`.
        draft: What chooses what the request leaves out; None if it is to have everything.
    """

    algorithm: str
    spec: Spec
    budget: KnownBudget | None = None
    charge_delta: float | None = None
    dtype: str | None = None
    draft: Draft | EvaluatedRun | None = None

    def work(self) -> Callable[[], Calibration]:
        """Return a function that solves for the open quantities.

        It is sent to processes that do not import the service.
        """
        if self.draft is not None:
            return self.draft.calibrate
        return partial(registry.calibrate, self.algorithm, self.spec)


def calibrate(
    context: Context,
    choice: AlgorithmChoice,
    dataset_size: int,
    capacity: int,
    dimension: int | None,
    facts: Objective,
    evaluation: Evaluation | None = None,
) -> Calibration:
    """Choose what a run leaves out, and solve for its noise.

    Args:
        context: The process's context.
        choice: What the run asks for.
        dataset_size: Declared number of records.
        capacity: Slots of the data set.
        dimension: Number of parameters.
        facts: What is publicly known of the objective.
        evaluation: How its model is evaluated on held-out rows, for a part of its target; None if it is not.

    Raises:
        Problem: 422 that points at what is malformed, unsupported or unreachable.
    """
    target = to_target(choice.target, Unknown.NOISE_MULTIPLIER, None)
    spec = _spec(
        choice,
        Unknown.NOISE_MULTIPLIER,
        dataset_size,
        capacity,
        dimension,
        target,
        None,
        judge_published=True,
        drafted=True,
    )
    question = _drafted(choice, spec, facts)
    if evaluation is not None:
        evaluated = EvaluatedRun(choice.algorithm, spec, choice.preset, facts, evaluation.noise_multiplier)
        question = replace(question, draft=evaluated)
    return solve_within_limits(context, question)


def answer(context: Context, request: CalibrateRequest, principal: Principal) -> CalibrateAnswer:
    """Solve a request for what it leaves out.

    Raises:
        Problem: 422 that points at what is malformed, unsupported or unreachable.
    """
    question = read(request, BudgetReader(context, principal))
    certified = _certified_field(request, question.spec.target) if request.certificate else None
    calibration = solve_within_limits(context, question)
    cost = _price_within_limits(context, question, calibration)
    found = None
    if certified is not None:
        plan, (field, value, size) = calibration.plan, certified
        achieved = calibration.achieved.value
        found = certificates(context, plan.events, plan.neighboring_relation, field, value, achieved, size)
    return calibrate_answer(question.spec, calibration, cost, found)


def has_every_certificate(answer: CalibrateAnswer) -> bool:
    """Return whether no certificate is missing: another time, with less to do, it may be found."""
    found = answer.certificates
    return found is None or None not in (found.upper, found.lower)


def _certified_field(request: CalibrateRequest, target: Target | OpenEpsilon | OpenDelta) -> tuple[str, float, int]:
    """Return which of epsilon and delta is given, its value, and of how many records: certificates are of the other.

    Raises:
        Problem: 422 ``unsupported``: the target is of another kind.
    """
    match target:
        case GroupDpTarget(delta=delta, group_size=size) if delta > 0.0:
            return "delta", delta, size
        case ApproximateDpTarget(delta=delta) | OpenEpsilon(delta=delta) if delta > 0.0:
            return "delta", delta, 1
        case OpenDelta(epsilon=epsilon):
            return "epsilon", epsilon, 1
    raise unprocessable(
        "unsupported",
        "certificates are of epsilon at a delta above 0: ask with an approximate_dp target, or leave certificate out; "
        f"this target is {request.target.kind}",
        "certificate",
    )


def names_a_budget(request: CalibrateRequest) -> bool:
    """Return whether the answer depends on what is charged to a budget."""
    return request.budget_id is not None or isinstance(request.target, BudgetGoal)


def read(request: CalibrateRequest, budgets: BudgetReader) -> Question:
    """Check a request as far as that takes no time.

    Raises:
        Problem: 422 that points at what is missing, given twice, malformed or unsupported.
    """
    unknown, body = Unknown(request.solve_for), request.target
    budget_id, charge_delta = request.budget_id, getattr(body, "delta", None)
    pointer: tuple[str, ...] = ("budget_id",)
    if isinstance(body, BudgetGoal):
        if budget_id is not None:
            raise unprocessable("overdetermined", "the target names a budget already; leave this out", "budget_id")
        budget_id, pointer = body.budget_id, ("target", "budget_id")
        charge_delta = None if body.charge is None else body.charge.delta
    relation = request.neighboring_relation
    budget = None if budget_id is None else budgets.find(budget_id, relation, *pointer)
    if relation is None and budget is not None:
        request = request.model_copy(update={"neighboring_relation": budget.state.relation})
    goal = budget_target(budget, charge_delta) if isinstance(body, BudgetGoal) and budget is not None else None
    target = to_target(body, unknown, goal)
    is_drafted = request.algorithm is None or request.preset is not None
    spec = _spec(
        request,
        unknown,
        request.dataset_size,
        request.capacity,
        request.dimension,
        target,
        request.noise_multiplier,
        judge_published=request.judge_literal,
        drafted=is_drafted,
    )
    if is_drafted or request.algorithm is None:
        return replace(_drafted(request, spec, UNKNOWN_OBJECTIVE), budget=budget, charge_delta=charge_delta)
    with _placed():
        spec = registry.with_defaults(registry.find_algorithm(request.algorithm), spec)
    return Question(request.algorithm, spec, budget, charge_delta, request.dtype)


def _drafted(fields: AlgorithmFields, spec: Spec, facts: Objective) -> Question:
    with _placed():
        draft = Draft(fields.algorithm, spec, fields.preset, facts)
    return Question(draft.algorithm, draft.spec, dtype=fields.dtype, draft=draft)


def solve_within_limits(context: Context, question: Question) -> Calibration:
    """The numerics of a question; where they may take long, in a process with limits of time and memory.

    Intervals of sampled steps sometimes take many evaluations, and a thread that is at them cannot be stopped. Full,
    disjoint and shuffled batches take milliseconds; the paper's own calibration may be judged under sampled ones.

    Raises:
        Problem: as `solve`, and 422 ``too_much_work``.
    """
    with context.metrics.evaluation() as found:
        calibration = _solve_within_limits(context, question)
        found.evaluator = calibration.achieved.method
    return calibration


def is_brief(spec: Spec) -> bool:
    """Return whether its calibration has no sampled steps to compose, and so takes no longer than a thread may."""
    return spec.sampling in (FullBatch.kind, DisjointBatches.kind, ShuffledEpochs.kind)


def remedy_of(*samplings: str) -> str:
    """Suggest what to ask for instead of a calibration that took too long.

    >>> remedy_of("poisson")
    'where the server is busy, ask again; fewer steps are quicker'
    """
    if set(samplings) <= {Poisson.kind, FullBatch.kind}:
        return "where the server is busy, ask again; fewer steps are quicker"
    return "poisson batches are quicker, full batches quickest; where the server is busy, ask again"


def _solve_within_limits(context: Context, question: Question) -> Calibration:
    if is_brief(question.spec):
        with context.numerics:
            return solve(question)
    remedy, place = remedy_of(question.spec.sampling or ""), "sampling"
    if question.spec.correlation is not None:
        remedy, place = "take fewer steps, or give the number of bands if it is left open", "correlation"
    with _refusals(question.spec), too_much_work("the calibration", remedy, place):
        found = context.processes.run(question.work())
    return in_dtype(found, question.dtype)


def solve(question: Question) -> Calibration:
    """The numerics of a question; the caller sees to it that not too many run at once.

    Raises:
        Problem: 422 when the target is unreachable, or what is asked is unsupported.
    """
    with _refusals(question.spec):
        return in_dtype(question.work()(), question.dtype)


def in_dtype(calibration: Calibration, dtype: str | None) -> Calibration:
    """The calibration of the plan that a run carries out: in this numeric type, or in the one that suits the plan."""
    plan, reason = carried_out(calibration.plan, dtype)
    return replace(calibration, plan=plan, dtype_reason=reason)


def fits(question: Question, calibration: Calibration) -> bool | None:
    """Return whether the plan fits the budget that the request names; None if it names none.

    Raises:
        Problem: 422 when the budget's filter has no price for it.
    """
    return _in_budget(question, calibration, fits_in_budget)


def _in_budget(
    question: Question, calibration: Calibration, ask: Callable[[KnownBudget, Sequence[Event], float | None], Said]
) -> Said | None:
    if question.budget is None:
        return None
    try:
        return ask(question.budget, calibration.plan.events, question.charge_delta)
    except AccountingError as error:
        raise unprocessable(error.code, error.detail, "budget_id") from None


def _price_within_limits(context: Context, question: Question, calibration: Calibration) -> CostInBudgetBody | None:
    if is_brief(question.spec):
        with context.numerics:
            return _in_budget(question, calibration, cost_in_budget)

    def ask(*args: Any) -> CostInBudgetBody:
        return context.processes.run(cost_in_budget, *args)

    remedy = "ask without the budget, or for fewer steps"
    with too_much_work("the price of this plan", remedy, "budget_id"):
        return _in_budget(question, calibration, ask)


def describe(algorithm: Algorithm) -> AlgorithmBody:
    return AlgorithmBody(
        name=algorithm.name,
        summary=algorithm.summary,
        source=algorithm.source,
        update=algorithm.update,
        samplings=[scheme.kind for scheme in algorithm.samplings],
        neighboring_relations=[str(relation) for relation in algorithm.relations],
        gradient_bounds=[bound.kind for bound in algorithm.gradient_bounds],
        assumptions=[describe_assumption(item) for item in algorithm.assumptions],
        guarantee=algorithm.guarantee,
        gradient_bound_required=algorithm.gradient_bound_required,
        variants=list(algorithm.variants),
        correlates=algorithm.correlates,
        gradient_complexity=algorithm.gradient_complexity,
        verdict=algorithm.verdict,
        errata=list(algorithm.errata),
        models=list(EXECUTIONS[algorithm.name].models),
    )


def describe_assumption(item: Assumption) -> AssumptionBody:
    """A constant that an algorithm's theorem asks for, as the HTTP contract shows it."""
    return AssumptionBody(
        name=item.name,
        symbol=item.symbol,
        unit=str(item.units),
        meaning=item.meaning,
        lower=item.lower,
        upper=item.upper,
        required=item.required,
        default=item.default,
    )


def _spec(
    fields: AlgorithmFields,
    unknown: Unknown,
    dataset_size: int,
    capacity: int | None,
    dimension: int | None,
    target: Target | OpenEpsilon | OpenDelta,
    noise_multiplier: float | None,
    *,
    judge_published: bool,
    drafted: bool,
) -> Spec:
    with _placed():
        _check_noise(unknown, noise_multiplier)
        stages = _stages(fields)
        sampling = _sampling(fields, drafted=drafted)
        batch_size = _batch_size(fields, unknown, dataset_size, sampling)
        return Spec(
            dataset_size=dataset_size,
            target=target,
            capacity=capacity,
            unknown=unknown,
            batch_size=batch_size,
            iterations=_iterations(fields, unknown, dataset_size, batch_size),
            stages=stages,
            sampling=sampling,
            max_batch_size=None if fields.sampling is None else fields.sampling.max_batch_size,
            neighboring_relation=fields.neighboring_relation,
            gradient_bound=to_gradient_bound(fields.gradient_bound),
            domain=to_domain(fields.domain),
            penalty=to_penalty(fields.penalty),
            dimension=dimension,
            assumptions=fields.assumptions,
            step_size=fields.hyperparameters.step_size,
            step_size_schedule=_step_size_schedule(fields),
            averaged_share=fields.hyperparameters.averaged_share,
            momentum=fields.hyperparameters.momentum,
            correlation=_correlation(fields),
            noise_multiplier=noise_multiplier,
            variant=fields.variant,
            judge_published=judge_published,
        )


def _sampling(fields: AlgorithmFields, *, drafted: bool) -> str | None:
    """Return the kind of sampling if it is not chosen here: the request's, or the algorithm's own."""
    if fields.sampling is not None:
        return fields.sampling.kind
    if fields.algorithm is None:
        return None
    algorithm = registry.find_algorithm(fields.algorithm)
    if drafted and algorithm.step_rule is not None:
        return None
    return registry.default_sampling(algorithm, fields.neighboring_relation)


_PARENTS = {
    "charge": ("target",),
    "step_size": ("hyperparameters",),
    "averaged_share": ("hyperparameters",),
    "momentum": ("hyperparameters",),
    "step_size_schedule": ("hyperparameters",),
    "max_batch_size": ("sampling",),
    "stages": ("schedule",),
}


@contextmanager
def _refusals(spec: Spec) -> Iterator[None]:
    """The engine's refusals of a calibration as answers."""
    try:
        yield
    except AccountingError as error:
        raise _refusal(error, spec) from None


def _refusal(error: AccountingError, spec: Spec) -> Problem:
    """Point an engine's refusal at a field of the request. The engine itself speaks of events, which nobody wrote."""
    if isinstance(error, Unreachable):
        # An evaluation says which of its numbers leaves nothing to the training.
        return unprocessable(error.code, error.detail, *(error.pointer or ("target",)))
    if isinstance(error, NoCostInFilter):
        if isinstance(spec.target, BudgetTarget):
            return unprocessable(error.code, error.detail, "target", "budget_id")
        detail = f"nothing proves this target of the noise: {error.detail}"
        return unprocessable(error.code, detail, "target", "kind")
    if isinstance(error, Unsupported) and not error.pointer:
        return unprocessable(error.code, error.detail, "solve_for")
    return _at_its_place(error)


@contextmanager
def _placed() -> Iterator[None]:
    """Refusals of what a request says as answers."""
    try:
        yield
    except AccountingError as error:
        raise _at_its_place(error) from None


def _at_its_place(error: AccountingError) -> Problem:
    """Return the path in the request of a field that the calibrators name without its parents."""
    first = str(error.pointer[0]) if error.pointer else ""
    return from_accounting(error, *_PARENTS.get(first, ()))


def _check_noise(unknown: Unknown, noise_multiplier: float | None) -> None:
    if unknown is Unknown.NOISE_MULTIPLIER and noise_multiplier is not None:
        raise _overdetermined("noise_multiplier")
    if unknown is not Unknown.NOISE_MULTIPLIER and noise_multiplier is None:
        raise _missing("noise_multiplier", f"noise_multiplier is needed to solve for {unknown}")


def _stages(fields: AlgorithmFields) -> tuple[Stage, ...]:
    if fields.schedule is None:
        return ()
    if fields.epochs is not None:
        raise unprocessable("overdetermined", "every stage has its own number of steps; leave epochs out", "epochs")
    return tuple(Stage(**stage.model_dump()) for stage in fields.schedule.stages)


def _correlation(fields: AlgorithmFields) -> Correlation | None:
    if fields.correlation is None:
        return None
    with inside("correlation"):
        return Correlation(**fields.correlation.model_dump())


def _step_size_schedule(fields: AlgorithmFields) -> StepSizeSchedule | None:
    given = fields.hyperparameters.step_size_schedule
    if given is None:
        return None
    with inside("hyperparameters", "step_size_schedule"):
        return StepSizeSchedule(**given.model_dump())


def _batch_size(fields: AlgorithmFields, unknown: Unknown, dataset_size: int, sampling: str | None) -> int | None:
    full_batch = sampling == FullBatch.kind
    if unknown is Unknown.BATCH_SIZE:
        if fields.batch_size is not None:
            raise _overdetermined("batch_size")
        if full_batch:
            detail = "full_batch takes every record in every step, so there is no batch size to solve for; use poisson"
            raise unprocessable("unsupported", detail, "solve_for")
        return None
    if full_batch and fields.batch_size is None and fields.schedule is None:
        return dataset_size
    return fields.batch_size


def _iterations(fields: AlgorithmFields, unknown: Unknown, dataset_size: int, batch_size: int | None) -> int | None:
    if unknown is Unknown.ITERATIONS:
        for name in ("iterations", "epochs"):
            if getattr(fields, name) is not None:
                raise _overdetermined(name)
        return None
    if fields.iterations is not None and fields.epochs is not None:
        raise unprocessable("overdetermined", "give iterations or epochs, not both", "epochs")
    if fields.epochs is None:
        return fields.iterations
    if batch_size is None:
        detail = "how many steps an epoch has depends on the batch size, which is not given; give iterations instead"
        raise unprocessable("unsupported", detail, "epochs")
    return max(1, math.ceil(fields.epochs * dataset_size / batch_size))


def _overdetermined(name: str) -> Problem:
    return unprocessable("overdetermined", f"{name} is what is solved for; leave it out, or change solve_for", name)


def _missing(name: str, detail: str) -> Problem:
    return unprocessable("missing", detail, name)
