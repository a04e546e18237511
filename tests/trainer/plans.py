"""Plans for tests of the trainer."""

from __future__ import annotations

from accounting.events import CorrelatedGaussian, CyclicPoisson, Event, FullBatch, Gaussian, Poisson, Sampling
from accounting.relations import NeighboringRelation
from calibrators.plan import AnyPhase, Clip, CorrelatedSteps, Normalize, Phase, Plan

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


def correlated_of(
    *coefficients: float,
    noise_multiplier: float = 1.0,
    sampling: Sampling | None = None,
    steps: int = 7,
    divisor: int = 4,
    step_size: float | tuple[float, ...] = 0.5,
    momentum: float = 0.5,
) -> CorrelatedSteps:
    """Steps whose noise has these coefficients, by default in cycles of as many groups, of which half are drawn."""
    drawn = CyclicPoisson(0.5, len(coefficients), "independent") if sampling is None else sampling
    event = Event(CorrelatedGaussian(noise_multiplier, coefficients), drawn, count=steps)
    return CorrelatedSteps(event, Clip(1.0), divisor, step_size, momentum)


def plan_of(algorithm: str, *phases: AnyPhase, size: int = 8) -> Plan:
    return Plan(algorithm, size, NeighboringRelation.ADD_OR_REMOVE_ONE, phases)
