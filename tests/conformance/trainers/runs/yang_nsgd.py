"""Small runs of the algorithms of Yang, Zhang, Chen & Liu."""

from __future__ import annotations

from calibrators.geometry import Box, L2Penalty
from calibrators.plan import Clip, Normalize
from tests.conformance.trainers.runs.a_run import Run, spec

RUNS: dict[str, Run] = {
    "dp_sgd": Run(
        spec(batch_size=6, iterations=7, gradient_bound=Clip(0.8), step_size=0.4),
        variants={"ridge": {"penalty": L2Penalty(0.3)}},
    ),
    # A regularizer at which no gradient comes near norm 1, where the margin would act.
    "dp_nsgd": Run(spec(batch_size=6, iterations=7, gradient_bound=Normalize(5.0), step_size=0.4)),
    "dp_adam": Run(
        spec(batch_size=6, iterations=7, gradient_bound=Clip(0.8), step_size=0.1),
        variants={"ridge": {"penalty": L2Penalty(0.3)}, "box": {"domain": Box(-0.25, 0.2)}},
    ),
    "dp_nadam": Run(spec(batch_size=6, iterations=7, gradient_bound=Normalize(0.3), step_size=0.1)),
}
