"""Small runs and transcriptions of the algorithms of Yang, Zhang, Chen & Liu."""

from __future__ import annotations

import math
from collections.abc import Callable

from calibrators.geometry import Box, L2Penalty
from calibrators.plan import Clip, Normalize
from calibrators.release import LastIterate
from tests.conformance.trainers.subjects.a_run import Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import dp_adam, dp_nadam, dp_nsgd, dp_sgd


def yang_clipped(drawn: Drawn) -> Vector:
    assert isinstance(drawn.plan.release, LastIterate)
    phase, point = drawn.phase, drawn.start
    for batch, noise in zip(drawn.batches, drawn.noises, strict=True):
        [point] = dp_sgd.trajectory(
            point,
            drawn.gradient,
            [batch],
            [noise],
            eta=drawn.step_size,
            c=drawn.clip,
            sigma=phase.noise_stddev_on_sum / drawn.clip,
            B=phase.divisor,
        )
        point = drawn.after_ridge(point)
    return point


def yang_normalized(drawn: Drawn) -> Vector:
    assert isinstance(drawn.plan.release, LastIterate)
    phase, bound = drawn.phase, drawn.phase.gradient_bound
    assert isinstance(bound, Normalize)
    return dp_nsgd.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=drawn.step_size,
        r=bound.regularizer,
        sigma=phase.noise_stddev_on_sum,
        B=phase.divisor,
    )[-1]


def yang_clipped_adam(drawn: Drawn) -> Vector:
    phase = drawn.phase
    return _adam(drawn, dp_adam.trajectory, c=drawn.clip, sigma=phase.noise_stddev_on_sum / drawn.clip)


def yang_normalized_adam(drawn: Drawn) -> Vector:
    phase, bound = drawn.phase, drawn.phase.gradient_bound
    assert isinstance(bound, Normalize)
    return _adam(drawn, dp_nadam.trajectory, r=bound.regularizer, sigma=phase.noise_stddev_on_sum)


def _adam(drawn: Drawn, trajectory: Callable[..., list[Vector]], **given: float) -> Vector:
    penalty, domain = drawn.plan.penalty, drawn.plan.domain
    assert isinstance(drawn.plan.release, LastIterate)
    return trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=drawn.step_size,
        B=drawn.phase.divisor,
        ridge=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
        box=(domain.lower, domain.upper) if isinstance(domain, Box) else (-math.inf, math.inf),
        **given,
    )[-1]


SUBJECTS: dict[str, Subject] = {
    "dp_sgd": Subject(
        Run(
            spec(batch_size=6, iterations=7, gradient_bound=Clip(0.8), step_size=0.4),
            variants={"ridge": {"penalty": L2Penalty(0.3)}},
        ),
        yang_clipped,
    ),
    # A regularizer at which no gradient comes near norm 1, where the margin would act.
    "dp_nsgd": Subject(
        Run(spec(batch_size=6, iterations=7, gradient_bound=Normalize(5.0), step_size=0.4)), yang_normalized
    ),
    "dp_adam": Subject(
        Run(
            spec(batch_size=6, iterations=7, gradient_bound=Clip(0.8), step_size=0.1),
            variants={"ridge": {"penalty": L2Penalty(0.3)}, "box": {"domain": Box(-0.25, 0.2)}},
        ),
        yang_clipped_adam,
    ),
    "dp_nadam": Subject(
        Run(spec(batch_size=6, iterations=7, gradient_bound=Normalize(0.3), step_size=0.1)), yang_normalized_adam
    ),
}
