"""Small runs of the algorithms of Wang, Lei, Ying & Zhang."""

from __future__ import annotations

from calibrators.plan import Clip
from tests.conformance.trainers.runs.a_run import Run, spec

RUNS: dict[str, Run] = {
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
