"""From what a run drew to what the transcriptions of the algorithms of Wang, Lei, Ying & Zhang release."""

from __future__ import annotations

import numpy as np

from calibrators.geometry import L2Ball
from calibrators.phases import OutputPerturbation
from calibrators.release import AverageIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_sgd_gradient, dp_sgd_output


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


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_sgd_output": wang_output,
    "dp_sgd_gradient": wang_projected,
}
