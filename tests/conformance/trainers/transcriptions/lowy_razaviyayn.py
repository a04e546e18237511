"""From what a run drew to what the transcriptions of the algorithms of Lowy & Razaviyayn release."""

from __future__ import annotations

from calibrators.geometry import L2Ball, L2Penalty
from calibrators.release import WeightedAverage
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import clipped_sgd_strongly_convex


def lowy_one_pass(drawn: Drawn) -> Vector:
    phase, domain, penalty, release = drawn.phase, drawn.plan.domain, drawn.plan.penalty, drawn.plan.release
    assert isinstance(domain, L2Ball)
    assert isinstance(release, WeightedAverage)
    _, average = clipped_sgd_strongly_convex.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        etas=[phase.step_size_at(index) for index in range(phase.steps)],
        zetas=release.weights,
        C=drawn.clip,
        s=phase.divisor,
        sigma=phase.noise_stddev_on_mean,
        radius=domain.radius,
        penalty=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
    )
    return average


TRANSCRIPTIONS: dict[str, Transcription] = {
    "clipped_sgd_strongly_convex": lowy_one_pass,
}
