"""The clipped noisy mean of all records, as one step of size 1 for the loss |w - x|^2 / 2 from 0.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 1.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import MEANS, READS_ONCE, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return w - (1/n) (sum_i min(1, C/|g_i|) g_i + z C Z); with g_i = -x_i at w = 0 that is the mean of clipped
    records.

    Args:
        point: The point w, shape (d,).
        step: noisy_mean = (1/n) (sum_i min(1, C/|g_i|) g_i + z C Z), with all g_i at w; a step size of 1.

    Returns:
        The released mean, shape (d,).

    Guarantees:
        - update_is_algorithm_1: equal to the paper's, up to the clip's margin and the sign of Z.
        - one_record_moves_the_sum_by_at_most_the_bound: which is C, or 2 C if a record is replaced.
    """
    return point - step.step_size * step.noisy_mean


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=gradient_steps(update, Clip),
    check=check_gradient_steps,
    models=MEANS,
    float64_because=READS_ONCE,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "mean": ExampleRequest(
            "The clipped noisy mean of all features, scaled by their declared bounds",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "mean"},
                "gradient_bound": {"kind": "clip", "max_grad_norm": 4.0},
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
            },
        )
    },
)
