"""Frank-Wolfe over the l1 ball towards a stationary point: a recursive gradient estimate, a random iterate released.

Source: Bassily, Guzman & Menart 2021, in one round of one step size, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). The steps are those of `trainer.recursive_gradients`.
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
        "stationary_frank_wolfe": ExampleRequest(
            "Frank-Wolfe towards a stationary point in an l1 ball; a random iterate is released",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 10,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {"radius": 2},
            },
        )
    },
)
