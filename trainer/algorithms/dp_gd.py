"""DP-GD: clip every record's gradient, average over all records, add noise, step.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 4.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return x - eta ((1/n) sum_i min(1, G/|g_i|) g_i + sigma Z).

    A penalty and a domain, which the paper's algorithm does not have, act on the new point: first the prox, then the
    projection.

    Args:
        point: The point x, shape (d,).
        step: noisy_mean = (1/n) sum_i min(1, G/|g_i|) g_i + sigma Z, with all g_i at x; eta = step_size.

    Returns:
        The next point, shape (d,). The plan says which of the points is released.

    Guarantees:
        - update_is_algorithm_4: equal to the paper's if no gradient is longer than G, up to the clip's margin.
        - one_record_moves_the_mean_by_at_most_the_bound: which is G/n, or 2 G/n if a record is replaced.
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
        "gradient_descent": ExampleRequest(
            "DP-GD: logistic regression on all records in every step, with an l2 penalty, in float64",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 50,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "penalty": {"kind": "l2", "strength": 0.01},
                "assumptions": {"pl_constant": 0.01},
                "hyperparameters": {"step_size": 0.5},
                "dtype": "float64",
            },
        )
    },
)
