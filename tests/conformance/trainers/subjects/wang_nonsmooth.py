"""Small runs and transcriptions of the algorithms of Wang, Lei, Ying & Zhang."""

from __future__ import annotations

import numpy as np

from calibrators.geometry import L2Ball
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.plan import Clip
from calibrators.release import AverageIterate
from tests.conformance.trainers.subjects.a_run import FEATURES, Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import dp_sgd_gradient, dp_sgd_output


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


def wang_output(drawn: Drawn) -> Vector:
    """Rows are scaled down to where least squares has the plan's constants: gradients change by |x|^2 at most."""
    [phase], domain, [noise] = drawn.plan.phases, drawn.plan.domain, drawn.noises
    assert isinstance(phase, OutputPerturbation)
    assert phase.holder_exponent == 1.0
    # B^2 <= L, and B + B^2 R <= G.
    short = (np.sqrt(1.0 + 4.0 * phase.radius * phase.gradient_norm) - 1.0) / (2.0 * phase.radius)
    longest = (1.0 - 2.0**-7) * min(np.sqrt(phase.holder_constant), short)
    zero, axes = np.zeros(noise.size), np.eye(noise.size)

    def gradient(w: Vector, i: int) -> Vector:
        """Of (c x . w - y)^2 / 2; the gradient of the row as it is says what x x^T and y x are."""
        at_zero = drawn.gradient(zero, i)
        outer = np.stack([drawn.gradient(axis, i) - at_zero for axis in axes])
        scale = min(1.0, longest / float(np.sqrt(np.trace(outer))))
        found: Vector = scale**2 * (outer @ w) + scale * at_zero
        return found

    return dp_sgd_output.released(
        gradient,
        [batch[0] if batch else None for batch in drawn.batches],
        noise,
        eta=phase.step_size,
        sigma=phase.noise_stddev,
        R=domain.radius if isinstance(domain, L2Ball) else None,
    )


_SMOOTH = {"holder_exponent": 1.0, "holder_constant": 4.0, "gradient_at_zero": 2.0}


SUBJECTS: dict[str, Subject] = {
    "dp_sgd_output": Subject(
        Run(
            spec(iterations=12, step_size=0.2, assumptions=_SMOOTH | {"radius": 0.4}),
            variants={"all of space": {"assumptions": _SMOOTH | {"loss_at_zero": 0.5}, "step_size": 0.1}},
            noise_shapes=lambda phase: [(FEATURES,)],
        ),
        wang_output,
    ),
    "dp_sgd_gradient": Subject(
        Run(
            spec(
                batch_size=4,
                iterations=9,
                gradient_bound=Clip(0.8),
                step_size=0.5,
                assumptions={"radius": 0.4, "lipschitz": 0.8},
            )
        ),
        wang_projected,
    ),
}
