"""Clipped noisy proximal SGD, one pass: clip each record's gradient, average, add noise, step, prox, project.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithms 8 and 9.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return prox_{eta f1}(w - eta (1/s (sum_i min(1, C/|g_i|) g_i + z C Z))), f1 the penalty on the domain.

    Args:
        point: The point w, shape (d,).
        step: noisy_mean = 1/s (sum_i min(1, C/|g_i|) g_i + z C Z), with the g_i at w, of the loss without the penalty;
            eta = step_size, penalty and domain.

    Returns:
        The next point, shape (d,). The last one is released.

    Guarantees:
        - update_is_algorithm_8: equal to the paper's, up to the clip's margin.
        - one_record_moves_the_sum_by_at_most_the_bound: which is C, or 2 C if a record is replaced.
    """
    return step.project(step.prox(point - step.step_size * step.noisy_mean))


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=gradient_steps(update, Clip),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "proximal": ExampleRequest(
            "Clipped proximal SGD in one pass: sparse logistic regression by an l1 penalty",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 8,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 2.0},
                "target": {"kind": "zcdp", "rho": 2},
                "penalty": {"kind": "l1", "strength": 0.01},
                "assumptions": {"pl_constant": 0.01},
                "hyperparameters": {"step_size": 0.5},
            },
        )
    },
)
