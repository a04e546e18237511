"""DP-SGD: clip each record's gradient, sum, add noise, divide by a public constant, step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), eq. (2).
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return x - (eta/B) (sum_i min(1, c/|g_i|) g_i + c sigma Z), then the penalty's prox and the domain's projection,
    if any.

    Args:
        point: The point x, shape (d,), float64.
        step: noisy_sum = sum_i min(1, c/|g_i|) g_i + c sigma Z, with the g_i at x; eta = step_size, B = divisor.

    Returns:
        The next point, shape (d,), float64.

    Guarantees:
        - update_is_equation_2: equal to the paper's, up to the clip's margin.
        - one_record_moves_the_sum_by_at_most_the_bound: which is c, or 2 c if a record is replaced.
    """
    change = step.noisy_sum
    change *= -step.step_size / step.divisor
    change += point
    return step.project(step.prox(change))


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=gradient_steps(update, Clip),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "breast_cancer": ExampleRequest(
            "Logistic regression on the bundled breast cancer data, DP-SGD with a chosen step size",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "batch_size": 100,
                "iterations": 200,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.5},
                "seed": 1,
            },
        ),
        "multilayer_perceptron": ExampleRequest(
            "DP-SGD on a small neural network",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "mlp", "hidden": [64]},
                "batch_size": 256,
                "iterations": 200,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "hyperparameters": {"step_size": 1.0},
            },
        ),
    },
)
