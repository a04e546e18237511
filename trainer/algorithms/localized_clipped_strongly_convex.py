"""Localised noisy clipped subgradient steps for strongly convex losses: one localised run after the other.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 4 run by run on ever more records, Theorem 18.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.phases.localized_phases import LocalizedPhase
from trainer.algorithms.localized_clipped_subgradient import LocalizedSubgradient, check_request
from trainer.execution import PREDICTORS, Execution


class LocalizedReduction(LocalizedSubgradient):
    """A run starts where the previous one ended, as a block does, so the blocks of all runs follow one another.

    The plan has their radii and step sizes, which increase again where a run begins.
    """


EXECUTION = Execution(
    phase_type=LocalizedPhase,
    make=LocalizedReduction,
    check=check_request,
    models=PREDICTORS,
    requests={
        "localized_strongly_convex": ExampleRequest(
            "Localised clipped subgradients run after run, strongly convex by an l2 penalty",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "zcdp", "rho": 4},
                "penalty": {"kind": "l2", "strength": 0.02},
                "assumptions": {"diameter": 8},
                "hyperparameters": {"step_size": 4},
            },
        )
    },
)
