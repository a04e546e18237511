"""Plans for tests of the trainer."""

from __future__ import annotations

from accounting.events import Event, FullBatch, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Normalize, Phase, Plan

BOUNDS: dict[str, Clip | Normalize] = {"dp_sgd": Clip(1.0), "dp_nsgd": Normalize(0.1)}


def phase_of(
    bound: Clip | Normalize,
    *,
    noise_multiplier: float = 1.0,
    probability: float | None = None,
    steps: int = 3,
    divisor: int = 4,
    step_size: float | None = 0.5,
) -> Phase:
    sampling = FullBatch() if probability is None else Poisson(probability)
    return Phase(Event(Gaussian(noise_multiplier), sampling, count=steps), bound, divisor, step_size)


def plan_of(algorithm: str, *phases: Phase, size: int = 8) -> Plan:
    return Plan(algorithm, size, NeighboringRelation.ADD_OR_REMOVE_ONE, phases)
