"""Small runs and transcriptions of the algorithms with correlated noise."""

from __future__ import annotations

from calibrators.correlation import Correlation
from calibrators.plan import Clip, CorrelatedSteps
from calibrators.release import LastIterate
from tests.conformance.trainers.subjects.a_run import Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import dp_bandmf


def correlated(drawn: Drawn) -> Vector:
    [phase] = drawn.plan.phases
    assert isinstance(phase, CorrelatedSteps)
    assert isinstance(drawn.plan.release, LastIterate)
    return dp_bandmf.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        coefficients=phase.coefficients,
        eta=[phase.step_size_at(t) for t in range(phase.steps)],
        beta=phase.momentum,
        c=drawn.clip,
        sigma=phase.noise_stddev_on_sum,
        B=phase.divisor,
    )[-1]


SUBJECTS: dict[str, Subject] = {
    "dp_bandmf": Subject(
        Run(
            spec(
                batch_size=6,
                iterations=7,
                gradient_bound=Clip(0.8),
                step_size=0.3,
                correlation=Correlation(bands=3),
            ),
            variants={"momentum": {"momentum": 0.5}},
        ),
        correlated,
    ),
}
