"""From what a run drew to what the transcriptions of the algorithms of Yang, Zhang, Chen & Liu release."""

from __future__ import annotations

import math
from collections.abc import Callable

from calibrators.geometry import Box, L2Penalty
from calibrators.plan import Normalize
from calibrators.release import LastIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_adam, dp_nadam, dp_nsgd, dp_sgd


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


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_sgd": yang_clipped,
    "dp_nsgd": yang_normalized,
    "dp_adam": yang_clipped_adam,
    "dp_nadam": yang_normalized_adam,
}
