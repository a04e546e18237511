"""DP-SGD with gradient perturbation: draw one record (or a batch), add noise to its gradient (or the mean), step,
project.

Source: Wang, Lei, Ying & Zhang 2022 (arXiv 2101.08925), Algorithm 2.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return Proj_W(w - eta (g + sigma Z)), g = (1/b) sum_i min(1, G/|g_i|) g_i.

    Args:
        point: The point w, shape (d,).
        step: noisy_mean = g + sigma Z, with the g_i at w (the paper's batch is one record); eta = step_size,
            W = domain. The algorithm has no penalty.

    Returns:
        The next point, shape (d,), in W. As the plan says, the mean of the starting points of the steps is released.

    Guarantees:
        - update_is_algorithm_2: equal to the paper's if no gradient is longer than G, up to the clip's margin.
        - one_record_moves_the_mean_by_at_most_the_bound: which is G/b, or 2 G/b if a record is replaced.
    """
    assert step.penalty is None, "dp_sgd_gradient takes no penalty: leave it out"
    return step.project(point - step.step_size * step.noisy_mean)


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=gradient_steps(update, Clip),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "q_norm_hinge": ExampleRequest(
            "DP-SGD-Gradient for a support vector machine with a 1.5-norm hinge, in a ball",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "q_norm_hinge", "q": 1.5},
                "iterations": 1000,
                "batch_size": 10,
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "assumptions": {"radius": 1, "failure_probability": 0.05},
            },
        )
    },
)
