"""What a spec leaves open, solved by the accounting engine: the events of equal Gaussian steps that meet the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from accounting.events import Event, Gaussian, Poisson, Sampling
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.solve import (
    IntegerSolution,
    Solution,
    solve_batch_size,
    solve_count,
    solve_delta,
    solve_epsilon,
    solve_noise,
)
from accounting.targets import Target
from calibrators.spec import OpenDelta, OpenEpsilon, Spec


@dataclass(frozen=True, slots=True)
class GaussianSteps:
    """Equal Gaussian steps with nothing left open.

    Attributes:
        event: The steps.
        batch_size: Nominal batch size.
        value: Of what was solved for.
        achieved: The certified cost, in the target's own number; its upper end meets the target.
        next_achieved: For an integer, the cost of the next one, which does not.
    """

    event: Event
    batch_size: int
    value: float
    achieved: Answer
    next_achieved: Answer | None = None


@dataclass(frozen=True, slots=True)
class _Given:
    """All that the privacy of equal Gaussian steps depends on; None is the unknown."""

    noise_multiplier: float | None
    sampling: Sampling
    batch_size: int | None
    dataset_size: int
    iterations: int | None
    relation: NeighboringRelation
    target: Target | OpenEpsilon | OpenDelta

    def events(
        self, *, noise_multiplier: float | None = None, iterations: int | None = None, batch_size: int | None = None
    ) -> tuple[Event]:
        """The steps with the unknown filled in."""
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        count = self.iterations if iterations is None else iterations
        sampling = self.sampling if batch_size is None else Poisson(batch_size / self.dataset_size)
        assert noise is not None, "the noise is given or filled in"
        assert count is not None, "the number of steps is given or filled in"
        return (Event(Gaussian(noise), sampling, count),)


def solve_gaussian_steps(spec: Spec, samplings: tuple[type[Sampling], ...]) -> GaussianSteps:
    """The spec's steps, with what it leaves open solved for.

    Args:
        spec: What is given.
        samplings: Those that the algorithm supports.

    Guarantees:
        never_misses: the certified upper end at the returned value meets the target.
        integers_are_largest: one more iteration, or one more record in the batch, would miss it.

    Raises:
        Unsupported: the sampling is not available, or what is solved for does not change what the target limits.
        NoCostInFilter: a budget's filter has no proved cost for Gaussian steps.
        Unreachable: no value of the unknown meets the target, or every one does.
    """
    return _solve(
        _Given(
            noise_multiplier=spec.noise_multiplier,
            sampling=spec.sampling_of(spec.batch_size, samplings),
            batch_size=spec.batch_size,
            dataset_size=spec.dataset_size,
            iterations=spec.iterations,
            relation=spec.neighboring_relation,
            target=spec.target,
        )
    )


@lru_cache(maxsize=256)
def _solve(given: _Given) -> GaussianSteps:
    """Remembered by the exact numbers, so that a calibration and its run, or a sweep over utility, solve once."""
    relation, target = given.relation, given.target
    if isinstance(target, OpenEpsilon):
        return _steps(given, given.events(), solve_epsilon(given.events(), relation, target.delta))
    if isinstance(target, OpenDelta):
        return _steps(given, given.events(), solve_delta(given.events(), relation, target.epsilon))
    if given.noise_multiplier is None:
        noise = solve_noise(lambda value: given.events(noise_multiplier=value), relation, target)
        return _steps(given, given.events(noise_multiplier=noise.value), noise)
    if given.iterations is None:
        count = solve_count(lambda value: given.events(iterations=value), relation, target)
        return _steps(given, given.events(iterations=count.value), count)
    size = solve_batch_size(lambda value: given.events(batch_size=value), relation, target, given.dataset_size)
    return _steps(given, given.events(batch_size=size.value), size)


def _steps(given: _Given, events: tuple[Event], found: Solution | IntegerSolution) -> GaussianSteps:
    following = found.next_achieved if isinstance(found, IntegerSolution) else None
    batch_size = int(found.value) if given.batch_size is None else given.batch_size
    return GaussianSteps(events[0], batch_size, found.value, found.achieved, following)
