"""Phases of plans by their kinds. Noisy gradient steps that are alike have none: they are `calibrators.plan.Phase`."""

from calibrators.phases.structured import StructuredPhase
from calibrators.phases.vertex_trees import TreePhase

__all__ = ["PHASES", "StructuredPhase", "TreePhase"]

PHASES: dict[str, type[StructuredPhase]] = {phase.kind: phase for phase in (TreePhase,)}
