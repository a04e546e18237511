"""DP-SVRG++: the steps of DP-SVRG in epochs that double, each from where the last one ended.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 2, with clipping, which guarantees the Lipschitz constant.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from trainer.algorithms.dp_svrg import Svrg
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Execution, check_max_grad_norm


class SvrgPlusPlus(Svrg):
    """SVRG in which each epoch starts from the last point. The plan gives the number of steps of each epoch.

    Guarantees:
        - the_point_goes_on: an epoch's mean becomes the snapshot, and its last point is the start of the next epoch.
    """

    def _start_of_epoch(self) -> Array:
        return self._point


EXECUTION = Execution(
    phase_type=VarianceReducedEpochs,
    make=SvrgPlusPlus,
    check=check_max_grad_norm,
    models=PREDICTORS,
    requests={
        "variance_reduced_doubling": ExampleRequest(
            "DP-SVRG++: logistic regression in epochs that double",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 4,
                "batch_size": 100,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "assumptions": {"inner_iterations": 2, "initial_distance": 5},
                "hyperparameters": {"step_size": 0.2},
            },
        )
    },
)
