"""From what a run drew to what the transcriptions of the algorithms of Wang, Ye & Xu release."""

from __future__ import annotations

from calibrators.release import RandomIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_gd


def wang_full(drawn: Drawn) -> Vector:
    phase, release = drawn.phase, drawn.plan.release
    path = [drawn.start]
    for noise in drawn.noises:
        _, point = dp_gd.trajectory(
            path[-1],
            drawn.gradient,
            [noise],
            n=drawn.plan.dataset_size,
            eta=drawn.step_size,
            G=drawn.clip,
            sigma=phase.noise_stddev_on_mean,
        )
        path.append(drawn.after_ridge(point))
    return dp_gd.released(path, drawn.chosen if isinstance(release, RandomIterate) else None)


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_gd": wang_full,
}
