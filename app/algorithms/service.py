"""From a request to a Calibration and from a Calibration to an answer."""

from __future__ import annotations

import math

from accounting.convention import convention
from accounting.errors import AccountingError
from accounting.events import FullBatch
from app.algorithms.schemas import (
    AchievedBody,
    AlgorithmBody,
    AlgorithmChoice,
    AssumptionBody,
    CalibrateAnswer,
    ClipBody,
    GradientBoundBody,
    NoiseBody,
    PlanBody,
    SolutionBody,
)
from app.kit.context import Context
from app.privacy.answers import ConventionBody, IntervalBody, ProvenanceBody, error_budget
from app.privacy.schemas import EventSchema
from app.problems import Problem, from_accounting, unprocessable
from calibrators.algorithm import Algorithm
from calibrators.plan import Clip, GradientBound, Normalize, Plan
from calibrators.registry import ALGORITHMS, find_algorithm
from calibrators.spec import ApproximateDpTarget, Calibration, Spec, check_sampling
from trainer.models import MODELS


def calibrate(context: Context, choice: AlgorithmChoice, dataset_size: int, dimension: int | None) -> Calibration:
    """Solve the choice for its noise.

    Raises:
        Problem: 422 that points at what is malformed, unsupported or unreachable.
    """
    try:
        algorithm = find_algorithm(choice.algorithm)
        check_sampling(choice.sampling.kind, algorithm.samplings)
        _check_bound(algorithm, choice.gradient_bound)
        spec = Spec(
            dataset_size=dataset_size,
            batch_size=_batch_size(choice, dataset_size),
            iterations=_iterations(choice, dataset_size),
            sampling=choice.sampling.kind,
            neighboring_relation=choice.neighboring_relation,
            gradient_bound=_gradient_bound(choice.gradient_bound),
            target=ApproximateDpTarget(choice.target.epsilon, choice.target.delta),
            dimension=dimension,
            assumptions=choice.assumptions,
            step_size=choice.hyperparameters.step_size,
        )
        with context.numerics:
            return algorithm.calibrate(spec)
    except AccountingError as error:
        raise from_accounting(error) from None


def describe(algorithm: Algorithm) -> AlgorithmBody:
    return AlgorithmBody(
        name=algorithm.name,
        summary=algorithm.summary,
        source=algorithm.source,
        update=algorithm.update,
        samplings=[scheme.kind for scheme in algorithm.samplings],
        neighboring_relations=[str(relation) for relation in algorithm.relations],
        gradient_bounds=[bound.kind for bound in algorithm.gradient_bounds],
        assumptions=[
            AssumptionBody(name=item.name, symbol=item.symbol, unit=item.unit, meaning=item.meaning)
            for item in algorithm.assumptions
        ],
        guarantee=algorithm.guarantee,
        gradient_complexity=algorithm.gradient_complexity,
        errata=list(algorithm.errata),
        models=list(MODELS),
    )


def answer(calibration: Calibration, delta: float) -> CalibrateAnswer:
    """The calibration as the HTTP contract writes it."""
    plan = calibration.plan
    first = plan.phases[0]
    bound = first.gradient_bound.contribution_bound
    return CalibrateAnswer(
        solution=SolutionBody(noise_multiplier=first.noise_stddev_on_sum / bound),
        achieved=AchievedBody(
            epsilon=IntervalBody.of(calibration.achieved.value),
            delta=delta,
            method=calibration.achieved.method,
            error_budget=error_budget(calibration.achieved),
        ),
        noise=noise_body(plan),
        hyperparameters=[ProvenanceBody.of(item) for item in calibration.hyperparameters],
        utility=[ProvenanceBody.of(item) for item in calibration.utility],
        plan=plan_body(plan),
        events=[EventSchema.of(event) for event in plan.events],
        plan_hash=plan.plan_hash,
        missing_assumptions=list(calibration.missing_assumptions),
        convention=ConventionBody.model_validate(convention(plan.neighboring_relation, plan.events)),
        citations=[ALGORITHMS[plan.algorithm].source],
        warnings=list(calibration.warnings),
    )


def noise_body(plan: Plan) -> NoiseBody:
    """The noise of the plan's first phase."""
    first = plan.phases[0]
    return NoiseBody(
        stddev_on_sum=first.noise_stddev_on_sum,
        stddev_on_mean=first.noise_stddev_on_mean,
        l2_sensitivity=plan.neighboring_relation.sensitivity * first.gradient_bound.contribution_bound,
    )


def plan_body(plan: Plan) -> PlanBody:
    return PlanBody.model_validate(plan.to_json())


def _check_bound(algorithm: Algorithm, bound: GradientBoundBody) -> None:
    kinds = [cls.kind for cls in algorithm.gradient_bounds]
    if bound.kind not in kinds:
        raise unprocessable(
            "unsupported_gradient_bound",
            f"{algorithm.name} takes gradient_bound.kind {' or '.join(kinds)}, not {bound.kind}",
            "gradient_bound",
            "kind",
        )


def _gradient_bound(body: GradientBoundBody) -> GradientBound:
    return Clip(body.max_grad_norm) if isinstance(body, ClipBody) else Normalize(body.regularizer)


def _batch_size(choice: AlgorithmChoice, dataset_size: int) -> int:
    if choice.batch_size is not None:
        return choice.batch_size
    if choice.sampling.kind == FullBatch.kind:
        return dataset_size
    raise _missing("batch_size", "batch_size is needed: the expected number of records in a step")


def _iterations(choice: AlgorithmChoice, dataset_size: int) -> int:
    if choice.iterations is not None and choice.epochs is not None:
        raise unprocessable("overdetermined", "give iterations or epochs, not both", "epochs")
    if choice.iterations is not None:
        return choice.iterations
    if choice.epochs is None:
        raise _missing("iterations", "iterations (or epochs) is needed: the number of steps")
    return max(1, math.ceil(choice.epochs * dataset_size / _batch_size(choice, dataset_size)))


def _missing(name: str, detail: str) -> Problem:
    return unprocessable("missing", detail, name)
