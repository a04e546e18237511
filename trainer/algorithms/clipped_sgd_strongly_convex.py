"""Clipped noisy SGD, one pass: clip each record's gradient, average, add noise, step, project.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithms 6 and 7.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps
from trainer.penalties import gradient


def update(point: Array, step: Step) -> Array:
    """Return Pi_W(w - eta (1/s (sum_i min(1, C/|g_i|) g_i + z C Z) + lambda w)).

    Args:
        point: The point w, shape (d,).
        step: noisy_mean = 1/s (sum_i min(1, C/|g_i|) g_i + z C Z), with the g_i at w; eta = step_size, W = domain;
            lambda of the penalty, whose gradient is not clipped.

    Returns:
        The next point, shape (d,). The weighted mean of these points is released.

    Guarantees:
        - update_is_algorithm_6: equal to the paper's, up to the clip's margin.
        - one_record_moves_the_sum_by_at_most_the_bound: which is C, or 2 C if a record is replaced.
    """
    return step.project(point - step.step_size * (step.noisy_mean + gradient(step.penalty, point)))


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=gradient_steps(update, Clip),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "strongly_convex": ExampleRequest(
            "Noisy clipped SGD in one pass over the digits, made strongly convex by an l2 penalty",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "softmax_regression"},
                "iterations": 5,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "zcdp", "rho": 2},
                "penalty": {"kind": "l2", "strength": 1.0},
                "assumptions": {"strong_convexity": 1.0, "smoothness": 33.5, "diameter": 4},
            },
        )
    },
)
