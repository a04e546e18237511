"""Small runs of the algorithms of Wang, Lei, Ying & Zhang."""

from __future__ import annotations

from calibrators.plan import Clip
from tests.conformance.trainers.runs.a_run import FEATURES, Run, spec

_SMOOTH = {"holder_exponent": 1.0, "holder_constant": 4.0, "gradient_at_zero": 2.0}

RUNS: dict[str, Run] = {
    "dp_sgd_output": Run(
        spec(iterations=12, step_size=0.2, assumptions=_SMOOTH | {"radius": 0.4}),
        variants={"all of space": {"assumptions": _SMOOTH | {"loss_at_zero": 0.5}, "step_size": 0.1}},
        noise_shapes=lambda phase: [(FEATURES,)],
    ),
    "dp_sgd_gradient": Run(
        spec(
            batch_size=4,
            iterations=9,
            gradient_bound=Clip(0.8),
            step_size=0.5,
            assumptions={"radius": 0.4, "lipschitz": 0.8},
        )
    ),
}
