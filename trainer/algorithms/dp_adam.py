"""DP-Adam: clip each record's gradient, sum, add noise, divide by a public constant, take Adam's step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), Appendix D with eq. (2).
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.adam import Adam
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import GradientSteps, Task


def make(task: Task) -> GradientSteps:
    """Return the trainer of a plan: Adam on g~ = (1/B) (sum_i min(1, c/|g_i|) g_i + c sigma Z)."""
    return GradientSteps(task, lambda start: Adam(task.plan.domain, start), Clip)


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=make,
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SEPARATE,
    requests={
        "adam": ExampleRequest(
            "DP-Adam on a small neural network",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "mlp", "hidden": [64]},
                "batch_size": 256,
                "iterations": 200,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.01},
            },
        )
    },
)
