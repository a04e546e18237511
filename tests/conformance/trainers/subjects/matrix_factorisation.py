"""Small runs and transcriptions of the algorithms with correlated noise."""

from __future__ import annotations

import numpy as np

from calibrators.correlation import Correlation
from calibrators.plan import Clip, CorrelatedSteps
from calibrators.release import LastIterate
from calibrators.step_sizes import Course, StepSizeSchedule
from tests.app.runs.promises.laws import logistic
from tests.app.runs.promises.promise import Promise
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
            variants={
                "momentum": {"momentum": 0.5},
                "cooldown": {"momentum": 0.5, "step_size_schedule": StepSizeSchedule(Course.COSINE, 0.7, 0.1)},
            },
        ),
        correlated,
        Promise(
            logistic(np.array([2.0, -1.0])),
            1000,
            {
                "sampling": "fixed_order_epochs",
                "batch_size": 100,
                "iterations": 50,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "zcdp", "rho": 1},
                "hyperparameters": {"step_size": 0.05},
                "correlation": {"bands": 4},
            },
            unbounded="no theorem speaks of what it attains: its errors are those of sums of gradients",
        ),
    ),
}
