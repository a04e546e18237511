r"""Noisy Frank-Wolfe over an l_p ball for smooth losses that need not be convex: estimates with momentum.

Source: Bassily, Guzman & Menart 2021, in a single phase, with constants of our own (`calibrators.bassily_guzman`).
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.phases.gradient_estimates import EstimatePhase
from trainer.arrays import Array
from trainer.execution import LINEAR_MODELS, Execution, check_lipschitz
from trainer.frank_wolfe import EstimateFrankWolfe, Fresh
from trainer.loop import State, Task, Trainer


def make(task: Task) -> Trainer:
    """Return the trainer of a plan."""
    return EstimateFrankWolfe(task, {"momentum": Momentum})


class Momentum:
    """Estimates d_t = (1 - eta)(d_(t-1) + mean change) + eta (mean gradient) + noise, with both means over the same
    fresh records.

    Guarantees:
        - a_fresh_part_moves_by_what_was_charged: between neighbours by at most s / m times (1 - eta) min(2 L_0, L_1 eta
          M) + eta L_0 in the l_q norm.
    """

    def __init__(self, phase: EstimatePhase) -> None:
        self._step_size = phase.step_size
        self._estimate: Array = None

    def start(self, estimate: Array) -> None:
        self._estimate = estimate

    def advance(self, step: int, fresh: Fresh) -> Array:
        eta = self._step_size
        added = fresh.noised(fresh.total(change=1.0 - eta, gradient=eta))
        self._estimate = (1.0 - eta) * self._estimate + added
        return self._estimate

    def state(self) -> State:
        return {} if self._estimate is None else {"estimate": self._estimate}

    def restore(self, state: State) -> None:
        self._estimate = state.get("estimate")


EXECUTION = Execution(
    phase_type=EstimatePhase,
    make=make,
    check=check_lipschitz,
    models=LINEAR_MODELS,
    requests={
        "frank_wolfe_momentum": ExampleRequest(
            "Noisy Frank-Wolfe with momentum, in one pass over the digits; a random point is released",
            {
                "dataset_id": "ds_digits",
                "model": {"kind": "softmax_regression"},
                "iterations": 8,
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
                "assumptions": {"norm_order": 1.5, "radius": 4},
            },
        )
    },
)
