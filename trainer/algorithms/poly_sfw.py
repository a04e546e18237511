"""Stochastic Frank-Wolfe over the l1 ball: each record corrects a gradient estimate, report-noisy-max in every step.

Source: Bassily, Guzman & Nandi 2021, Algorithm 1, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). The steps are those of `trainer.recursive_gradients`; the last point is released.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.phases.recursive_selections import RecursiveSelections
from trainer.execution import LINEAR_MODELS, Execution
from trainer.recursive_gradients import RecursiveFrankWolfe, check_rounding

EXECUTION = Execution(
    phase_type=RecursiveSelections,
    make=RecursiveFrankWolfe,
    check=check_rounding,
    models=LINEAR_MODELS,
    requests={
        "recursive_frank_wolfe": ExampleRequest(
            "Frank-Wolfe in one pass with a recursive gradient estimate, in an l1 ball",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 20,
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "assumptions": {"radius": 2},
            },
        )
    },
)
