"""Small runs of the algorithms of Wang, Ye & Xu."""

from __future__ import annotations

from calibrators.geometry import L1Ball, L2Penalty
from calibrators.plan import Clip
from tests.conformance.trainers.runs.a_run import Run, spec

RUNS: dict[str, Run] = {
    "dp_gd": Run(
        spec(
            iterations=6,
            gradient_bound=Clip(0.8),
            step_size=0.3,
            assumptions={"smoothness": 2.0, "initial_gap": 1.0, "pl_constant": 0.1},
        ),
        variants={
            "any smooth loss": {"assumptions": {"smoothness": 2.0, "initial_gap": 1.0}},
            "ridge": {"penalty": L2Penalty(0.3)},
        },
    ),
    "dp_svrg": Run(
        spec(
            batch_size=6,
            iterations=2,
            gradient_bound=Clip(0.8),
            step_size=0.2,
            assumptions={"inner_iterations": 4.0},
        ),
        variants={"ridge": {"penalty": L2Penalty(0.3)}},
    ),
    "dp_svrg_pp": Run(
        spec(
            batch_size=6,
            iterations=2,
            gradient_bound=Clip(0.8),
            step_size=0.2,
            assumptions={"inner_iterations": 2.0},
        ),
        variants={"ridge": {"penalty": L2Penalty(0.3)}},
    ),
    "dp_accmd": Run(
        spec(iterations=6, gradient_bound=Clip(0.8), assumptions={"smoothness": 2.0, "radius": 0.3}),
        variants={"l1 ball": {"domain": L1Ball(0.6), "assumptions": {"smoothness": 2.0}}},
    ),
}
