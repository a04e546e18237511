"""Specs: the inputs of the calibrators, made from the fields of a request."""

from __future__ import annotations

import math

from accounting.errors import inside
from accounting.events import FullBatch
from accounting.targets import Target
from app.algorithms.geometry import to_domain, to_gradient_bound, to_penalty
from app.algorithms.refusals import placed
from app.algorithms.schemas import (
    AlgorithmFields,
)
from app.problems import Problem, unprocessable
from calibrators import registry
from calibrators.correlation import Correlation
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.stages import Stage
from calibrators.step_sizes import StepSizeSchedule


def spec_of(
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
    with placed():
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
    """Return the kind of sampling that the request names, or else the algorithm's default. None if a draft chooses it
    later."""
    if fields.sampling is not None:
        return fields.sampling.kind
    if fields.algorithm is None:
        return None
    algorithm = registry.find_algorithm(fields.algorithm)
    if drafted and algorithm.step_rule is not None:
        return None
    return registry.default_sampling(algorithm, fields.neighboring_relation)


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
        detail = (
            "the number of steps in an epoch depends on the batch size, which is not given; give iterations instead"
        )
        raise unprocessable("unsupported", detail, "epochs")
    return max(1, math.ceil(fields.epochs * dataset_size / batch_size))


def _overdetermined(name: str) -> Problem:
    return unprocessable("overdetermined", f"solve_for names {name}: leave {name} out, or change solve_for", name)


def _missing(name: str, detail: str) -> Problem:
    return unprocessable("missing", detail, name)
