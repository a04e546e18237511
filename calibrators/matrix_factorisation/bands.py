"""This module solves for the open quantity of a spec with correlated noise, and chooses the number of bands.

The coefficients have a norm of at most 1, and the engine solves with a norm of exactly 1. So the noise, and the number
of steps or records that it allows, do not depend on the rounding of coefficients. The answer is then certified for the
plan's own event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import CorrelatedGaussian, CyclicPoisson, Event, FixedOrderEpochs, Sampling
from accounting.events.correlated_gaussian import MOST_LISTED
from accounting.numbers import MAX_COUNT, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.correlation import Alternative, Correlation
from calibrators.matrix_factorisation.strategy import Strategy, Workload, optimal
from calibrators.noise import Steps, solve_steps
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.step_sizes import StepSizeSchedule

#: If a run has at most this many cycles, the number of cycles changes much from one tried number of bands to the next,
#: so more numbers of bands are tried.
_FEW_CYCLES = 32
#: If the largest allowed number of bands is the best, this number is doubled so many times to show the gain from more
#: bands.
_DOUBLINGS_BEYOND = 2
#: The bytes per parameter and band: for each band except the first, a run keeps a vector of earlier noise in numbers of
#: 32 bits.
_BYTES_PER_BAND = 4


@dataclass(frozen=True, slots=True)
class BandedEvent:
    """A function that makes the event of steps with correlated noise. Its parameters follow from the public sizes.

    Attributes:
        sampling: The kind of sampling.
        dataset_size: The declared number of records.
        relation: The neighbouring relation. It decides how groups are made: by position if any record may replace a
            record; otherwise each record draws its own group.
        bands: The number b of bands, and the number of groups.
        momentum, correlation: The momentum of the workload, and the objective.
        is_exact: Whether the event has the plan's own coefficients, whose norm is at most 1; otherwise it has a single
            coefficient of 1.
        schedule: The schedule of the workload's step sizes; None if they are equal.

    >>> steps = BandedEvent("cyclic_poisson", 1000, NeighboringRelation.REPLACE_ONE, 4, 0.0, Correlation(), False)
    >>> steps(2.0, 100, 10).sampling
    CyclicPoisson(sampling_probability=0.04, cycle_length=4, assignment='by_position')
    """

    sampling: str
    dataset_size: int
    relation: NeighboringRelation
    bands: int
    momentum: float
    correlation: Correlation
    is_exact: bool
    schedule: StepSizeSchedule | None = None

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        coefficients = self.strategy(iterations).coefficients if self.is_exact else (1.0,)
        return Event(CorrelatedGaussian(noise_multiplier, coefficients), self._sampling(batch_size), iterations)

    def strategy(self, iterations: int) -> Strategy:
        """Return the matrix for this many steps. It has at most as many bands as there are steps."""
        shares = None if self.schedule is None or self.schedule.is_constant else self.schedule.shares(iterations)
        workload = Workload(iterations, self.momentum, shares)
        return optimal(workload, min(self.bands, iterations), self.correlation.objective)

    def _sampling(self, batch_size: int) -> Sampling:
        if self.sampling == FixedOrderEpochs.kind:
            return FixedOrderEpochs(steps_per_epoch(self.dataset_size, batch_size))
        by_position = self.relation is NeighboringRelation.REPLACE_ONE
        share = self.bands * batch_size / self.dataset_size
        return CyclicPoisson(share, self.bands, "by_position" if by_position else "independent")

    def least_noise(self, iterations: int, batch_size: int) -> float:
        """Return the smallest noise multiplier for which the engine accounts such steps, enlarged by a billionth."""
        event = self(MAX_NOISE_MULTIPLIER, iterations, batch_size)
        assert isinstance(event.mechanism, CorrelatedGaussian), "this class makes events with this mechanism"
        return event.mechanism.least_noise(event.sampling, event.count)

    @property
    def largest_batch(self) -> int:
        """The largest batch size for this number of bands."""
        if self.sampling == FixedOrderEpochs.kind:
            return self.dataset_size if self.bands == 1 else (self.dataset_size - 1) // (self.bands - 1)
        return self.dataset_size // self.bands


def steps_per_epoch(dataset_size: int, batch_size: int) -> int:
    """Return the number of batches in one pass over all records. The last batch may be smaller."""
    return -(-dataset_size // batch_size)


def most_bands(spec: Spec) -> int:
    """Return the most bands that the sizes of a spec allow. With b bands, two steps of the same record must be at least
    b steps apart.

    Args:
        spec: A spec whose batch size and number of steps are given or solved for.
    """
    most = spec.dataset_size if spec.iterations is None else min(spec.iterations, spec.dataset_size)
    if spec.batch_size is None:
        return most
    if spec.sampling == FixedOrderEpochs.kind:
        return min(most, steps_per_epoch(spec.dataset_size, spec.batch_size))
    return min(most, spec.dataset_size // spec.batch_size)


@dataclass(frozen=True, slots=True)
class Solved:
    """Steps with nothing left open, their matrix, and the alternatives to their number of bands.

    Attributes:
        steps: The steps of the plan.
        strategy: The coefficients and the errors of the matrix.
        bands: The number of bands that was asked for or chosen, which is the number of groups of cyclic batches.
        alternatives: All numbers of bands that were tried, in this order, if the noise is solved for.
    """

    steps: Steps
    strategy: Strategy
    bands: int
    alternatives: tuple[Alternative, ...]


def solve(spec: Spec) -> Solved:
    """Solve for the quantity that a spec leaves open, and choose the number of bands if it is open.

    Guarantees:
        - never_misses: the certified upper bound on the cost of the plan's event meets the target.
        - integers_are_largest: one more step, or one more record in the batch, would miss the target.
        - the_best_is_chosen: no alternative with the spec's sampling that ``max_bands`` allows has less error. Among
          alternatives with equal error, the one with the fewest bands is chosen.

    Raises:
        InvalidValue: If a size is missing, or there are more bands than batches in a cycle or steps.
        Unsupported: If both the number of bands and a quantity other than the noise are left open.
        Unreachable, NoCostInFilter: As `calibrators.noise.solve_steps` does.
    """
    assert spec.correlation is not None, "the registry fills in the correlation"
    if spec.unknown is not Unknown.BATCH_SIZE:
        spec.need("batch_size", "the expected number of records in a step")
    if spec.unknown is not Unknown.ITERATIONS:
        spec.need("iterations", "the number of steps (or give epochs)")
    bands = spec.correlation.bands
    if spec.unknown is Unknown.NOISE_MULTIPLIER:
        _check_sizes(spec)
        return _chosen(spec)
    if bands is None:
        raise Unsupported(
            "the number of bands can be chosen only if the noise is solved for: give correlation.bands, or "
            "solve for noise_multiplier",
            pointer=("solve_for",),
        )
    _check_sizes(spec)
    steps, strategy = _solved_with(spec, bands)
    return Solved(steps, strategy, bands, ())


def _check_sizes(spec: Spec) -> None:
    """Refuse more bands than the sizes allow, and epochs with more steps than an event can count."""
    assert spec.correlation is not None, "as was checked"
    bands, most = spec.correlation.bands, most_bands(spec)
    if spec.sampling == FixedOrderEpochs.kind and spec.batch_size is not None:
        batches = steps_per_epoch(spec.dataset_size, spec.batch_size)
        if batches > MAX_COUNT:
            raise InvalidValue(
                f"with batch_size {spec.batch_size}, an epoch has {batches} steps, but at most {MAX_COUNT:.0e} "
                "are allowed; use a larger batch_size",
                pointer=("batch_size",),
            )
    if bands is None or bands <= most:
        return
    if spec.iterations is not None and bands > spec.iterations:
        raise InvalidValue(
            f"correlation.bands is {bands}, but must be at most the number of steps: use at most "
            f"{spec.iterations} bands, or more iterations",
            pointer=("correlation", "bands"),
        )
    what = "steps in an epoch" if spec.sampling == FixedOrderEpochs.kind else "groups that fill a batch"
    raise InvalidValue(
        f"with {bands} bands, the steps of a record must be at least {bands} apart, but {spec.dataset_size} "
        f"records in batches of {spec.batch_size or 1} have only {most} {what}: use at most {most} bands, or "
        "smaller batches",
        pointer=("correlation", "bands"),
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    spec: Spec
    bands: int
    steps: Steps
    strategy: Strategy

    @property
    def error(self) -> float:
        assert self.spec.correlation is not None, "as was checked"
        return self.steps.noise_multiplier * self.strategy.at(self.spec.correlation.objective)


def _chosen(spec: Spec) -> Solved:
    """Solve for the noise with each number of bands, under both kinds of sampling. Choose the best number of bands for
    the spec's sampling.
    """
    assert spec.correlation is not None, "as was checked"
    given = spec.correlation.bands
    own = _solved_for_all(spec, _candidates(spec))
    best = min((each for each in own if given in (None, each.bands)), key=lambda each: each.error)
    if given is None and -(-best.steps.event.count // best.bands) <= _FEW_CYCLES:
        more = set(_between(best.bands, best.steps.event.count, min(spec.correlation.max_bands, most_bands(spec))))
        own += _solved_for_all(spec, sorted(more - {each.bands for each in own}))
        best = min(own, key=lambda each: each.error)
    found = sorted(own, key=lambda each: each.bands)
    if given is None:
        found += _beyond(spec, best, found[-1])
    for other in _with_the_other_sampling(spec):
        with suppress(AccountingError):
            found += _solved_for_all(other, _candidates(other))
    sampled = (each.error for each in found if each.spec.sampling == CyclicPoisson.kind and each.bands == 1)
    alone = next(sampled, None)
    alternatives = tuple(
        Alternative(
            sampling=str(each.spec.sampling),
            bands=each.bands,
            noise_multiplier=each.steps.noise_multiplier,
            error=each.error,
            ratio=None if alone is None else each.error / alone,
            memory=None if spec.dimension is None else memory_of(each.bands, spec.dimension),
            is_chosen=each is best,
            is_allowed=each.bands <= spec.correlation.max_bands,
        )
        for each in found
    )
    return Solved(best.steps, best.strategy, best.bands, alternatives)


def _beyond(spec: Spec, best: _Candidate, largest: _Candidate) -> list[_Candidate]:
    """Try more bands than ``max_bands`` as long as the error falls, if the best number found so far is the largest
    allowed one.
    """
    assert spec.correlation is not None, "as was checked"
    found, most = [largest], min(most_bands(spec), MOST_LISTED)
    if best is not largest or 2 * largest.bands <= spec.correlation.max_bands:
        return []
    for _ in range(_DOUBLINGS_BEYOND):
        bands = min(2 * found[-1].bands, most)
        if bands <= max(found[-1].bands, spec.correlation.max_bands):
            break
        try:
            more = _Candidate(spec, bands, *_solved_with(spec, bands))
        except AccountingError:
            break
        if more.error >= found[-1].error:
            break
        found.append(more)
    return found[1:]


def _solved_for_all(spec: Spec, candidates: Iterable[int]) -> list[_Candidate]:
    """Return the solved numbers of bands. The search stops at the first number for which no noise meets the target,
    because more bands need more noise.

    Raises:
        AccountingError: If the first number of bands is refused.
    """
    found: list[_Candidate] = []
    for bands in candidates:
        try:
            found.append(_Candidate(spec, bands, *_solved_with(spec, bands)))
        except AccountingError:
            if found:
                break
            raise
    return found


def _between(bands: int, steps: int, most: int) -> Iterator[int]:
    """Yield numbers of bands near a given number. For each number of cycles, yield only the smallest number of bands,
    because more bands would only raise the sampling probability.
    """
    for quarters in (3, 5, 6, 7):
        cycles = -(-4 * steps // (quarters * bands))
        smallest = -(-steps // cycles)
        if smallest <= most:
            yield smallest


def memory_of(bands: int, dimension: int) -> int:
    """Return the number of bytes that a run keeps for the noise of earlier steps, as whole numbers of 32 bits."""
    return _BYTES_PER_BAND * (bands - 1) * dimension


def _candidates(spec: Spec) -> Iterator[int]:
    """Yield 1, 2, 4, ... up to the number that the spec allows. If the spec gives a number, yield this number and then
    1 for comparison.
    """
    assert spec.correlation is not None, "as was checked"
    most = most_bands(spec)
    if spec.correlation.bands is not None:
        yield from dict.fromkeys((min(spec.correlation.bands, most), 1))
        return
    bands, most = 1, min(spec.correlation.max_bands, most)
    while bands <= most:
        yield bands
        bands *= 2
    if spec.sampling == FixedOrderEpochs.kind and bands < 2 * most:
        yield most  # in a fixed order, more bands need no more noise


def _with_the_other_sampling(spec: Spec) -> tuple[Spec, ...]:
    """Return the spec with the other kind of sampling. None if this sampling is not accounted under the spec's
    relation.
    """
    if spec.sampling == FixedOrderEpochs.kind:
        return (replace(spec, sampling=CyclicPoisson.kind),)
    if spec.relation in FixedOrderEpochs.relations:
        return (replace(spec, sampling=FixedOrderEpochs.kind),)
    return ()


def _solved_with(spec: Spec, bands: int) -> tuple[Steps, Strategy]:
    """Solve for the open quantity with a given number of bands. The cost is certified for the plan's own event."""
    assert spec.sampling is not None, "the registry fills in the algorithm's own sampling"
    assert spec.correlation is not None, "as was checked"
    momentum = 0.0 if spec.momentum is None else spec.momentum
    exact = BandedEvent(
        spec.sampling,
        spec.dataset_size,
        spec.relation,
        bands,
        momentum,
        spec.correlation,
        is_exact=True,
        schedule=spec.step_size_schedule,
    )
    steps = None
    if exact.sampling == CyclicPoisson.kind and not isinstance(spec.target, OpenEpsilon | OpenDelta):
        steps = _certified(spec, spec.target, _solved_for(spec, replace(exact, is_exact=False)), exact)
    if steps is None:
        steps = _solved_for(spec, exact)
    return steps, exact.strategy(steps.event.count)


def _solved_for(spec: Spec, event_of: BandedEvent) -> Steps:
    least = MIN_NOISE_MULTIPLIER
    if spec.unknown is Unknown.NOISE_MULTIPLIER:
        assert spec.iterations is not None, "as was checked"
        assert spec.batch_size is not None, "as was checked"
        least = event_of.least_noise(spec.iterations, spec.batch_size)
    return solve_steps(
        spec,
        event_of,
        iterations=spec.iterations,
        batch_size=spec.batch_size,
        largest_batch=event_of.largest_batch,
        least_noise=least,
    )


def _certified(spec: Spec, target: Target, steps: Steps, event_of: BandedEvent) -> Steps | None:
    """Return the steps with the plan's own event and its certified cost. They were solved for with a coefficient norm
    of 1.

    Returns:
        None if the steps cannot be used. There are two cases. The norm of the plan's coefficients is slightly below 1,
        so one more step or record may also meet the target. Or the certified upper bound, which barely met the target,
        exceeds it because of rounding.
    """
    count, size = steps.event.count, steps.batch_size
    event = event_of(steps.noise_multiplier, count, size)
    achieved = target.assess((event,), spec.relation)
    if achieved.value.upper > target.limit:
        return None
    following = None
    if steps.next_achieved is not None:
        more = (count, size + 1) if spec.unknown is Unknown.BATCH_SIZE else (count + 1, size)
        following = target.assess((event_of(steps.noise_multiplier, *more),), spec.relation)
        if following.value.upper <= target.limit:
            return None
    return replace(steps, event=event, achieved=achieved, next_achieved=following)
