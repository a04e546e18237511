"""DP-BandMF: gradient steps whose noise is correlated over steps by a banded Toeplitz matrix, with momentum.

Source: Choquette-Choo et al. 2023 (arXiv 2306.08153), Algorithm 1 with Theorem 4.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, CorrelatedSteps
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import GradientSteps, Resumable, Step, Task


class Momentum(Resumable):
    """The point x, and the sum of noisy means that the momentum discounts in each step.

    Args:
        momentum: The momentum beta, in [0, 1).
        start: The start x_0, shape (d,), float64.

    Guarantees:
        - records_enter_through_noisy_sums_alone: x and m are functions of noisy sums and of the plan.
        - update_is_algorithm_1: m_t = beta m_(t-1) + g~_t / B and x_(t+1) = x_t - eta_t m_t, up to the clip's margin,
          then the penalty's prox and the domain's projection, if any.
    """

    kept = ("point", "_mean")

    def __init__(self, momentum: float, start: Array) -> None:
        self._momentum = momentum
        self.point, self._mean = start, 0.0 * start

    @property
    def query(self) -> Array:
        return self.point

    def advance(self, step: Step) -> None:
        """Take a step.

        Args:
            step: noisy_mean = g~_t / B, where g~ solves C g~ = C G + c sigma Z, with G the sums of clipped gradients at
                the points so far; eta_t = step_size.
        """
        self._mean = self._momentum * self._mean + step.noisy_mean
        self.point = step.project(step.prox(self.point - step.step_size * self._mean))


def make(task: Task) -> GradientSteps:
    """Return the trainer of a plan.

    Raises:
        InvalidValue: If its phases have different momenta.
    """
    momenta = {phase.momentum for phase in task.plan.phases if isinstance(phase, CorrelatedSteps)}
    if len(momenta) > 1:
        raise InvalidValue("all phases of a run must have the same momentum", pointer=("phases",))
    momentum = max(momenta, default=0.0)
    return GradientSteps(task, lambda start: Momentum(momentum, start), Clip, CorrelatedSteps)


EXECUTION = Execution(
    phase_type=CorrelatedSteps,
    gradient_bound=Clip,
    make=make,
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SUBTRACTED,
    requests={
        "correlated_noise": ExampleRequest(
            "Logistic regression on the bundled breast cancer data with correlated noise, the number of bands chosen",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "batch_size": 50,
                "iterations": 90,
                "sampling": "cyclic_poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.5},
                "correlation": {"bands": "auto"},
            },
        ),
        "fixed_order": ExampleRequest(
            "A small neural network where batches cannot be sampled: the same order in every epoch, with momentum",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "mlp", "hidden": [32]},
                "batch_size": 100,
                "iterations": 140,
                "sampling": "fixed_order_epochs",
                "neighboring_relation": "replace_special",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "hyperparameters": {"step_size": 0.1, "momentum": 0.9},
                "correlation": {"bands": 14},
            },
        ),
    },
)
