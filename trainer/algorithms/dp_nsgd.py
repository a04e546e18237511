"""DP-NSGD: normalise each record's gradient, sum, add noise, divide by a public constant, step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), eq. (3), Algorithm 1.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Normalize, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import Step, gradient_steps


def update(point: Array, step: Step) -> Array:
    """Return x - (eta/B) (sum_i g_i/(r + |g_i|) + sigma Z), then the penalty's prox and the domain's projection, if
    any.

    The noise is not scaled by r: a normalised gradient may be as long as 1 for every r.

    Args:
        point: The point x, shape (d,), float64.
        step: noisy_sum = sum_i g_i/(r + |g_i|) + sigma Z, with the g_i at x; eta = step_size, B = divisor.

    Returns:
        The next point, shape (d,), float64.

    Guarantees:
        - update_is_equation_3: equal to the paper's, except for contributions within the margin of norm 1.
        - one_record_moves_the_sum_by_at_most_the_bound: which is 1, or 2 if a record is replaced.
    """
    change = step.noisy_sum
    change *= -step.step_size / step.divisor
    change += point
    return step.project(step.prox(change))


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Normalize,
    make=gradient_steps(update, Normalize),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "digits": ExampleRequest(
            "Softmax regression on the bundled digits, DP-NSGD; the step size comes from the theorem",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "softmax_regression"},
                "batch_size": 256,
                "iterations": 400,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
            },
        )
    },
)
