"""DP-NAdam: normalise each record's gradient, sum, add noise, divide by a public constant, take Adam's step.

The N is for normalised, not for Nesterov; the noise is not scaled by r.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), Appendix D with eq. (3).
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Normalize, Phase
from trainer.adam import Adam
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import GradientSteps, Task


def make(task: Task) -> GradientSteps:
    """Return the trainer of a plan: Adam on g~ = (1/B) (sum_i g_i/(r + |g_i|) + sigma Z)."""
    return GradientSteps(task, lambda start: Adam(task.plan.domain, start), Normalize)


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Normalize,
    make=make,
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SEPARATE,
    requests={
        "normalised_adam": ExampleRequest(
            "DP-NAdam (normalised Adam): softmax regression on the digits",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "softmax_regression"},
                "batch_size": 256,
                "iterations": 200,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "normalize", "regularizer": 0.1},
                "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.02},
            },
        )
    },
)
