"""From what a run drew to what the transcriptions of the algorithms of Bassily, Guzmán, Menart & Nandi release."""

from __future__ import annotations

import numpy as np

from calibrators.geometry import L1Ball
from calibrators.phases import TreePhase
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import tree_sfw_l1


def trees(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, TreePhase)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    path = tree_sfw_l1.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.order,
        lambda scores, tree: int(np.argmin(scores - phase.noise_scales[tree - 1] * next(noises))),
        T=phase.num_trees,
        b=phase.records_per_tree,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - drawn.margin),
        L1=phase.smoothness * (1.0 - drawn.margin),
    )
    return path[-1][1]


TRANSCRIPTIONS: dict[str, Transcription] = {
    "tree_sfw_l1": trees,
}
