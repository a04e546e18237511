"""Small runs of the algorithms of Bassily, Guzmán, Menart & Nandi."""

from __future__ import annotations

from tests.conformance.trainers.runs.a_run import Run, spec

RUNS: dict[str, Run] = {
    "tree_sfw_l1": Run(
        spec(
            dataset_size=60,
            iterations=2,
            assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
        )
    ),
}
