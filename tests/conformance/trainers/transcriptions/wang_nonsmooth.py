"""From what a run drew to what the transcriptions of the algorithms of Wang, Lei, Ying & Zhang release."""

from __future__ import annotations

from calibrators.geometry import L2Ball
from calibrators.release import AverageIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_sgd_gradient


def wang_projected(drawn: Drawn) -> Vector:
    phase, domain = drawn.phase, drawn.plan.domain
    assert isinstance(drawn.plan.release, AverageIterate)
    assert isinstance(domain, L2Ball)
    _, average = dp_sgd_gradient.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=drawn.step_size,
        G=drawn.clip,
        sigma=phase.noise_stddev_on_mean,
        b=phase.divisor,
        R=domain.radius,
    )
    return average


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_sgd_gradient": wang_projected,
}
