"""Use cases of calibration: solve a request within limits of time and memory, and price the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from accounting.errors import AccountingError
from accounting.events import DisjointBatches, Event, FullBatch, Poisson, ShuffledEpochs
from accounting.targets import ApproximateDpTarget, GroupDpTarget, Target
from app.algorithms.answers import calibrate_answer
from app.algorithms.budget_costs import (
    BudgetReader,
    CostInBudgetBody,
    KnownBudget,
    cost_in_budget,
    fits_in_budget,
)
from app.algorithms.calibrate import CalibrateAnswer, CalibrateRequest
from app.algorithms.questions import Question, drafted, read
from app.algorithms.refusals import refusals
from app.algorithms.specs import spec_of
from app.algorithms.targets import AlgorithmChoice, to_target
from app.auth.principal import Principal
from app.context import Context
from app.kit.process_pool import too_much_work
from app.privacy.certificates import certificates
from app.problems import unprocessable
from calibrators.evaluated import EvaluatedRun
from calibrators.presets import Objective
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown
from trainer.numeric_types import carried_out

Said = TypeVar("Said")


class Evaluation(Protocol):
    """The settings of a run's evaluation on held-out rows."""

    @property
    def noise_multiplier(self) -> float | None: ...


def calibrate(
    context: Context,
    choice: AlgorithmChoice,
    dataset_size: int,
    capacity: int,
    dimension: int | None,
    facts: Objective,
    evaluation: Evaluation | None = None,
) -> Calibration:
    """Choose the options that a run leaves out, and solve for its noise.

    Args:
        context: The process's context.
        choice: The algorithm, the options and the target of the run.
        dataset_size: Declared number of records.
        capacity: Slots of the data set.
        dimension: Number of parameters.
        facts: The public facts about the objective.
        evaluation: The evaluation on held-out rows, which costs a part of the target; None if there is none.

    Raises:
        Problem: 422 with a pointer to the field that is malformed, unsupported or unreachable.
    """
    target = to_target(choice.target, Unknown.NOISE_MULTIPLIER, None)
    spec = spec_of(
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
    question = drafted(choice, spec, facts)
    if evaluation is not None:
        evaluated = EvaluatedRun(choice.algorithm, spec, choice.preset, facts, evaluation.noise_multiplier)
        question = replace(question, draft=evaluated)
    return solve_within_limits(context, question)


def answer(context: Context, request: CalibrateRequest, principal: Principal) -> CalibrateAnswer:
    """Solve a request for the quantity that it leaves out.

    Raises:
        Problem: 422 with a pointer to the field that is malformed, unsupported or unreachable.
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
    """Return whether no certificate is missing. A less busy server may find a missing certificate later."""
    found = answer.certificates
    return found is None or None not in (found.upper, found.lower)


def _certified_field(request: CalibrateRequest, target: Target | OpenEpsilon | OpenDelta) -> tuple[str, float, int]:
    """Return the name of the given parameter ("epsilon" or "delta"), its value, and the group size. Certificates bound
    the other parameter.

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
        "a certificate states an epsilon at a delta above 0: use an approximate_dp target instead of "
        f"{request.target.kind}, or leave certificate out",
        "certificate",
    )


def solve_within_limits(context: Context, question: Question) -> Calibration:
    """Solve a question. If this may take long, it is done in a process with limits of time and memory.

    Intervals of sampled steps sometimes take many evaluations, and a thread that computes them cannot be stopped. Full,
    disjoint and shuffled batches take milliseconds.

    Raises:
        Problem: as `solve`, and 422 ``too_much_work``.
    """
    with context.metrics.evaluation() as found:
        calibration = _solve_within_limits(context, question)
        found.evaluator = calibration.achieved.method
    return calibration


def _solve_within_limits(context: Context, question: Question) -> Calibration:
    if is_brief(question.spec):
        with context.numerics:
            return solve(question)
    remedy, place = remedy_of(question.spec.sampling or ""), "sampling"
    if question.spec.correlation is not None:
        remedy, place = "take fewer steps, or give the number of bands if it is left open", "correlation"
    with refusals(question.spec), too_much_work("the calibration", remedy, place):
        found = context.processes.run(question.work())
    return in_dtype(found, question.dtype)


def is_brief(spec: Spec) -> bool:
    """Return whether the calibration has no sampled steps to compose. Then it is quick enough for a thread."""
    return spec.sampling in (FullBatch.kind, DisjointBatches.kind, ShuffledEpochs.kind)


def remedy_of(*samplings: str) -> str:
    """Suggest what to ask for instead of a calibration that took too long.

    >>> remedy_of("poisson")
    'where the server is busy, ask again; fewer steps are quicker'
    """
    if set(samplings) <= {Poisson.kind, FullBatch.kind}:
        return "where the server is busy, ask again; fewer steps are quicker"
    return "poisson batches are quicker, full batches quickest; where the server is busy, ask again"


def solve(question: Question) -> Calibration:
    """Solve a question in this thread. The caller limits how many threads do so at once.

    Raises:
        Problem: 422 when the target is unreachable, or what is asked is unsupported.
    """
    with refusals(question.spec):
        return in_dtype(question.work()(), question.dtype)


def in_dtype(calibration: Calibration, dtype: str | None) -> Calibration:
    """Return the calibration with its plan in this numeric type. None chooses the type that suits the plan."""
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
