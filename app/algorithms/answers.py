"""The answer of `/v1/calibrate`, made from a calibration."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from accounting.convention import convention
from accounting.schedule_warnings import weak_guarantee
from accounting.targets import ApproximateDpTarget, GroupDpTarget
from app.algorithms.budget_costs import CostInBudgetBody
from app.algorithms.calibrate import (
    AlternativeBandsBody,
    BatchSizeSolution,
    CalibrateAnswer,
    DeltaSolution,
    EpsilonSolution,
    IterationsSolution,
    NextBody,
    NoiseMultiplierSolution,
    NoiseScaleSolution,
    SolutionBody,
)
from app.algorithms.plans import as_published_body, batch_size_of, noise_body, plan_body
from app.algorithms.schemas import DtypeName
from app.algorithms.targets import achieved_body
from app.privacy.account import CertificatesBody
from app.wire.answers import ChoiceBody, ConventionBody, ProvenanceBody
from app.wire.events import EventSchema
from calibrators.registry import ALGORITHMS
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown


def calibrate_answer(
    spec: Spec, calibration: Calibration, cost: CostInBudgetBody | None, certificates: CertificatesBody | None
) -> CalibrateAnswer:
    """Return the calibration in its HTTP form."""
    plan = calibration.plan
    return CalibrateAnswer(
        solution=solution_body(calibration),
        achieved=achieved_body(spec.target, calibration.achieved),
        next=_next(spec, calibration),
        noise=noise_body(plan),
        hyperparameters=[ProvenanceBody.of(item) for item in calibration.hyperparameters],
        utility=[ProvenanceBody.of(item) for item in calibration.utility],
        choices=[ChoiceBody.of(choice) for choice in calibration.choices],
        theorem_note=calibration.theorem_note,
        alternatives=[AlternativeBandsBody(**asdict(each)) for each in calibration.alternatives],
        plan=plan_body(plan),
        events=[EventSchema.of(event) for event in plan.events],
        dtype=cast(DtypeName, plan.dtype),
        dtype_reason=calibration.dtype_reason,
        plan_hash=plan.plan_hash,
        cost_in_budget=cost,
        literal=as_published_body(calibration.as_published),
        missing_assumptions=list(calibration.missing_assumptions),
        convention=ConventionBody.model_validate(convention(plan.neighboring_relation, plan.events)),
        certificates=certificates,
        citations=[ALGORITHMS[plan.algorithm].source],
        warnings=[*_weaknesses(spec, calibration), *calibration.warnings],
    )


def _weaknesses(spec: Spec, calibration: Calibration) -> list[str]:
    """Return warnings if the achieved epsilon and delta promise hardly any privacy."""
    target, upper = spec.target, calibration.achieved.value.upper
    match target:
        case ApproximateDpTarget() | GroupDpTarget() | OpenEpsilon():
            epsilon, delta = upper, target.delta
        case OpenDelta():
            epsilon, delta = target.epsilon, upper
        case _:
            return []
    return weak_guarantee(epsilon=epsilon, delta=delta, records=calibration.plan.dataset_size)


def solution_body(calibration: Calibration) -> SolutionBody:
    """Return the solved value under its name in the HTTP interface."""
    plan, value = calibration.plan, calibration.value
    if isinstance(value, tuple):
        return NoiseScaleSolution(noise_scale=list(value))
    batch_size = batch_size_of(plan)
    match calibration.unknown:
        case Unknown.NOISE_MULTIPLIER:
            return NoiseMultiplierSolution(noise_multiplier=value)
        case Unknown.ITERATIONS:
            return IterationsSolution(iterations=int(value), epochs=value * batch_size / plan.dataset_size)
        case Unknown.BATCH_SIZE:
            return BatchSizeSolution(batch_size=int(value), sampling_probability=batch_size / plan.dataset_size)
        case Unknown.EPSILON:
            return EpsilonSolution(epsilon=value)
    return DeltaSolution(delta=value)


def _next(spec: Spec, calibration: Calibration) -> NextBody | None:
    achieved, value = calibration.next_achieved, calibration.value
    if achieved is None or isinstance(value, tuple):
        return None
    return NextBody(value=int(value) + 1, achieved=achieved_body(spec.target, achieved))
