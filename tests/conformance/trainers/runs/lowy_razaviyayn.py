"""Small runs of the algorithms of Lowy & Razaviyayn."""

from __future__ import annotations

from calibrators.geometry import L2Penalty
from calibrators.plan import Clip
from tests.conformance.trainers.runs.a_run import Run, spec

RUNS: dict[str, Run] = {
    "clipped_sgd_strongly_convex": Run(
        spec(
            iterations=5,
            gradient_bound=Clip(0.8),
            penalty=L2Penalty(0.3),
            assumptions={
                "smoothness": 2.0,
                "strong_convexity": 0.5,
                "diameter": 1.0,
                "moment_order": 4.0,
                "moment_bound": 1.5,
            },
        )
    ),
}
