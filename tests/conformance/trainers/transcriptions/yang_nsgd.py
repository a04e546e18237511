"""From what a run drew to what the transcriptions of the algorithms of Yang, Zhang, Chen & Liu release."""

from __future__ import annotations

from calibrators.plan import Normalize
from calibrators.release import LastIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_nsgd, dp_sgd


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


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_sgd": yang_clipped,
    "dp_nsgd": yang_normalized,
}
