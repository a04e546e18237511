"""This module solves for the open quantity of a spec with the accounting engine. The result is an event of equal steps
that meets the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from accounting.errors import InvalidValue, Unsupported
from accounting.events import (
    Blocks,
    DisjointBatches,
    Event,
    FullBatch,
    Gaussian,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, MIN_NOISE_MULTIPLIER
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
from calibrators.as_published import AsPublished
from calibrators.geometry import Domain, Penalty
from calibrators.matrix_factorisation.strategy import Workload, evaluated, optimal
from calibrators.plan import AnyPhase, Plan
from calibrators.provenance import Provenance
from calibrators.release import LAST_ITERATE, Release
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown

#: Limits for the advice to use correlated noise instead of shuffled epochs: the number of bands that it considers, and
#: the most steps for which it is given.
_BANDS_OF_ADVICE, _STEPS_OF_ADVICE = 16, 100_000
#: A function from noise multiplier, number of steps and batch size to the event of all steps. It must be hashable,
#: because solutions are cached.
EventOf = Callable[[float, int, int], Event]


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps in which nothing is left open.

    Attributes:
        event: The steps.
        noise_multiplier: The noise on the sum, divided by the contribution bound.
        batch_size: The nominal batch size.
        value: The value of the quantity that was solved for.
        achieved: The certified cost, in the number that the target limits. Its upper bound meets the target.
        next_achieved: If an integer was solved for, the cost of the next integer, which does not meet the target.
    """

    event: Event
    noise_multiplier: float
    batch_size: int
    value: float
    achieved: Answer
    next_achieved: Answer | None = None


@dataclass(frozen=True, slots=True)
class GaussianSteps:
    """A function that makes the event of Gaussian steps under a kind of sampling. The sampling's parameters follow from
    the public sizes.

    An epoch of allocated or shuffled batches has enough steps that its batches are, on average, no larger than
    requested. The same holds for blocks. All steps together are cut into blocks.

    Attributes:
        sampling: The kind of sampling.
        dataset_size: The declared number of records.
        relation: The neighbouring relation. It decides how disjoint batches are cut: by position if neighbours have the
            same positions; otherwise each record draws its own batch. It also decides what is counted in truncated
            batches: records, or slots if the number of records is private.
        max_batch_size: The largest size of truncated batches. A random subset of this size is kept from a larger batch.
        slots: For truncated batches, the largest possible number of records.

    >>> GaussianSteps("poisson", 100, NeighboringRelation.REPLACE_ONE)(2.0, 5, 10).sampling.sampling_probability
    0.1
    """

    sampling: str
    dataset_size: int
    relation: NeighboringRelation
    max_batch_size: int | None = None
    slots: int | None = None

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        return Event(Gaussian(noise_multiplier), self._sampling(batch_size, iterations), iterations)

    def _sampling(self, batch_size: int, iterations: int) -> Sampling:
        found: Sampling
        match self.sampling:
            case Poisson.kind:
                found = Poisson(batch_size / self.dataset_size)
            case TruncatedPoisson.kind:
                found = self._truncated(batch_size / self.dataset_size)
            case WithoutReplacement.kind:
                found = WithoutReplacement(batch_size, self.dataset_size)
            case RandomAllocation.kind:
                found = RandomAllocation(self._steps_per_epoch(batch_size), participations=1)
            case Blocks.kind:
                found = Blocks(iterations, max(1, iterations * batch_size // self.dataset_size))
            case ShuffledEpochs.kind:
                found = ShuffledEpochs(self._steps_per_epoch(batch_size))
            case DisjointBatches.kind:
                alone = self.relation is NeighboringRelation.ADD_OR_REMOVE_ONE
                found = DisjointBatches("independent" if alone else "by_position")
            case _:
                found = self._full_batch(batch_size)
        return found

    def _truncated(self, share: float) -> TruncatedPoisson:
        assert self.max_batch_size is not None, "solve_gaussian_steps has checked max_batch_size"
        if self.relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            assert self.slots is not None, "as above"
            return TruncatedPoisson(share, self.max_batch_size, self.slots, truncation="random_slots")
        return TruncatedPoisson(share, self.max_batch_size, self.dataset_size, truncation="random")

    def _full_batch(self, batch_size: int) -> FullBatch:
        if batch_size != self.dataset_size:
            raise InvalidValue(
                f"full_batch takes every record in every step: batch_size must be {self.dataset_size}",
                pointer=("batch_size",),
            )
        return FullBatch()

    def _steps_per_epoch(self, batch_size: int) -> int:
        steps = -(-self.dataset_size // batch_size)
        if steps > MAX_COUNT:
            raise InvalidValue(
                f"with batch_size {batch_size}, an epoch has {steps} steps, but at most {MAX_COUNT:.0e} are "
                f"allowed: batch_size must be at least {-(-self.dataset_size // MAX_COUNT)}",
                pointer=("batch_size",),
            )
        return steps


def one_mechanism(noise_multiplier: float, _iterations: int, _batch_size: int) -> Event:
    """Return a whole run as one Gaussian mechanism, for steps whose total cost does not depend on their number."""
    return Event(Gaussian(noise_multiplier))


@dataclass(frozen=True, slots=True)
class _Question:
    """Everything on which the privacy of the steps depends. The field that is None is solved for."""

    event_of: EventOf
    unknown: Unknown
    dataset_size: int
    relation: NeighboringRelation
    target: Target | OpenEpsilon | OpenDelta
    noise_multiplier: float | None
    iterations: int | None
    batch_size: int | None
    largest_batch: int
    least_noise: float

    def events(
        self, *, noise_multiplier: float | None = None, iterations: int | None = None, batch_size: int | None = None
    ) -> tuple[Event]:
        """Return the event of the steps, with a value for the unknown quantity."""
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        steps = self.iterations if iterations is None else iterations
        size = self.batch_size if batch_size is None else batch_size
        assert noise is not None, "the noise is given or filled in"
        assert steps is not None, "the number of steps is given or filled in"
        assert size is not None, "the batch size is given or filled in"
        return (self.event_of(noise, steps, size),)


def calibration_of(
    algorithm: str,
    spec: Spec,
    steps: Steps,
    phase: AnyPhase,
    *,
    noise_scales: tuple[float, ...] | None = None,
    domain: Domain | None = None,
    penalty: Penalty | None = None,
    release: Release = LAST_ITERATE,
    hyperparameters: Iterable[Provenance],
    utility: Iterable[Provenance],
    missing: tuple[str, ...] = (),
    warnings: Iterable[str] = (),
    as_published: AsPublished | None,
) -> Calibration:
    """Return the answer whose plan is one phase of the solved steps.

    Args:
        algorithm: The name of the algorithm.
        spec: The spec that was asked for.
        steps: The steps, in which nothing is left open.
        phase: The phase that is carried out.
        noise_scales: The noise scales, which are the answer if the noise is solved for and the phase has its own
            scales. With None, the answer is the noise multiplier.
        domain, penalty, release: The plan's domain, penalty and release.
        hyperparameters, utility, missing, as_published: As in `Calibration`.
        warnings: Warnings in addition to those of the accounting engine.
    """
    return Calibration(
        plan=Plan(
            algorithm, spec.dataset_size, spec.relation, (phase,), domain=domain, penalty=penalty, release=release
        ),
        unknown=spec.unknown,
        value=noise_scales if noise_scales is not None and spec.unknown is Unknown.NOISE_MULTIPLIER else steps.value,
        achieved=steps.achieved,
        next_achieved=steps.next_achieved,
        hyperparameters=tuple(hyperparameters),
        utility=tuple(utility),
        missing_assumptions=missing,
        warnings=(*steps.achieved.warnings, *_of_schedule(steps.event), *warnings),
        as_published=as_published,
    )


def _of_schedule(event: Event) -> tuple[str, ...]:
    if not isinstance(event.sampling, ShuffledEpochs):
        return ()
    return (
        "Shuffled epochs are charged without amplification: every epoch costs as much as one full batch. With "
        "random_allocation, every record is also read once per epoch, and the same noise costs less.",
        *_in_a_fixed_order(event.count, event.sampling.steps_per_epoch),
    )


def _in_a_fixed_order(steps: int, steps_per_epoch: int) -> tuple[str, ...]:
    """Return a sentence about the gain from noise that is correlated over steps, for loaders that cannot sample.

    With shuffled epochs and with a fixed order, a record takes part in one step of each epoch. If there are at most as
    many bands as steps in an epoch, these steps cost the same with correlated noise.
    """
    bands = min(_BANDS_OF_ADVICE, steps_per_epoch)
    if steps <= steps_per_epoch or bands == 1 or steps > _STEPS_OF_ADVICE:
        return ()
    workload = Workload(steps)
    less = 1.0 - optimal(workload, bands).mean / evaluated(workload, (1.0,))[0]
    return (
        "If your loader cannot sample, dp_bandmf with fixed_order_epochs may be better. It takes the batches "
        f"in the same order in every epoch and correlates the noise over {bands} steps. The sums of gradients "
        f"then have {100.0 * less:.0f} % less error at the same cost.",
    )


def gaussian_event(spec: Spec) -> GaussianSteps:
    """Return the function that makes the event of a spec's Gaussian steps."""
    assert spec.sampling is not None, "the registry fills in the algorithm's own sampling"
    return GaussianSteps(spec.sampling, spec.dataset_size, spec.relation, spec.max_batch_size, spec.slots)


def solve_gaussian_steps(spec: Spec) -> Steps:
    """Return the spec's Gaussian steps. The quantity that the spec leaves open is solved for.

    Full batches need no batch size. One pass over disjoint batches needs the batch size or the number of steps.

    Raises:
        As `solve_steps`, and:
        InvalidValue: If the batch size, the largest one of truncated batches or the number of steps is missing, a full
            batch has another size, or disjoint batches need more records than there are.
        Unsupported: If the batch size of full, disjoint or truncated batches is solved for, or the number of disjoint
            batches.
    """
    if spec.sampling == DisjointBatches.kind:
        spec = _one_pass(spec)
    if spec.sampling == Blocks.kind and spec.unknown is Unknown.ITERATIONS:
        raise Unsupported(
            "with the same number of blocks, more steps cost less, so there is no largest number of steps to "
            "solve for; give iterations, or use random_allocation",
            pointer=("solve_for",),
        )
    if spec.sampling == TruncatedPoisson.kind:
        spec.need("max_batch_size", "the largest batch size; a random subset of this size is kept from a larger batch")
        if spec.unknown is Unknown.BATCH_SIZE:
            raise Unsupported(
                "there is no proof that larger truncated batches cost more, so the largest batch that meets "
                "the target cannot be found; give batch_size, or use poisson",
                pointer=("solve_for",),
            )
    batch_size = spec.batch_size
    if spec.unknown is Unknown.BATCH_SIZE:
        if spec.sampling == FullBatch.kind:
            raise _nothing_to_solve_for(spec, "batch size")
    elif batch_size is None:
        full = spec.sampling == FullBatch.kind
        batch_size = spec.dataset_size if full else spec.need("batch_size", "the expected number of records in a step")
    if spec.unknown is not Unknown.ITERATIONS:
        spec.need("iterations", "the number of steps (or give epochs)")
    return solve_steps(spec, gaussian_event(spec), iterations=spec.iterations, batch_size=batch_size)


def _one_pass(spec: Spec) -> Spec:
    """Return the spec of disjoint batches with its batch size and number of steps filled in. The batches use no more
    records than there are.
    """
    if spec.unknown in (Unknown.BATCH_SIZE, Unknown.ITERATIONS):
        raise _nothing_to_solve_for(spec, "batch size" if spec.unknown is Unknown.BATCH_SIZE else "number of steps")
    size, steps, records = spec.batch_size, spec.iterations, spec.dataset_size
    if steps is None:
        size = spec.need(
            "batch_size", "give the size of the disjoint batches, or give iterations, which is their number"
        )
        return replace(spec, iterations=records // size)
    if size is None:
        if steps > records:
            raise InvalidValue(
                f"iterations must be at most {records}: there are {records} records, and disjoint batches need "
                "at least one each",
                pointer=("iterations",),
            )
        return replace(spec, batch_size=records // steps)
    check_one_pass(size, steps, records)
    return spec


def check_one_pass(size: int, steps: int, records: int) -> None:
    """Refuse disjoint batches that need more records than there are.

    Raises:
        InvalidValue: If there are too few records. The pointer is the number of steps.
    """
    if size * steps > records:
        raise InvalidValue(
            f"iterations must be at most {records // size}: {steps} disjoint batches of {size} need "
            f"{size * steps} records, but dataset_size is {records}",
            pointer=("iterations",),
        )


def _nothing_to_solve_for(spec: Spec, what: str) -> Unsupported:
    return Unsupported(
        f"with {spec.sampling} sampling there is no {what} to solve for, because the cost does not depend on "
        "it; use poisson, without_replacement or random_allocation",
        pointer=("solve_for",),
    )


def solve_steps(
    spec: Spec,
    event_of: EventOf,
    *,
    iterations: int | None,
    batch_size: int | None,
    largest_batch: int | None = None,
    least_noise: float = MIN_NOISE_MULTIPLIER,
) -> Steps:
    """Return equal steps, and solve for the quantity that the spec leaves open.

    Args:
        spec: The given spec.
        event_of: The event of the steps; hashable, since solutions are remembered by it.
        iterations, batch_size: The sizes of the steps, which the algorithm chooses if the spec leaves them open. None
            for a size that is solved for.
        largest_batch: The largest batch for which there are events; None is all records.
        least_noise: The smallest noise multiplier at which there are events.

    Guarantees:
        never_misses: the certified upper bound on the cost at the returned value meets the target.
        integers_are_largest: one more iteration, or one more record in the batch, would miss the target.

    Raises:
        Unsupported: If the unknown does not change the cost that the target limits.
        NoCostInFilter: If a budget's filter has no proved cost for such steps.
        Unreachable: If no value of the unknown meets the target, or every one does.
    """
    asked = _Question(
        event_of,
        spec.unknown,
        spec.dataset_size,
        spec.relation,
        spec.target,
        spec.noise_multiplier,
        iterations,
        batch_size,
        spec.dataset_size if largest_batch is None else largest_batch,
        least_noise,
    )
    with pointed_at_sampling():
        return _solve(asked)


@contextmanager
def pointed_at_sampling() -> Iterator[None]:
    """Make refusals point at the sampling or the noise in the request. Without this, they would point into events,
    which the user did not write.
    """
    try:
        yield
    except Unsupported as error:
        if "sampling" in error.pointer:
            error.pointer = ("sampling",)
        raise
    except InvalidValue as error:
        if "noise_multiplier" in error.pointer:
            error.pointer = ("noise_multiplier",)
        raise


@lru_cache(maxsize=256)
def _solve(asked: _Question) -> Steps:
    """Solve for the steps. Answers are cached: a calibration and its run, or a sweep over utility, solve only once."""
    relation, target = asked.relation, asked.target
    if isinstance(target, OpenEpsilon):
        return _steps(asked, asked.events(), solve_epsilon(asked.events(), relation, target.delta))
    if isinstance(target, OpenDelta):
        return _steps(asked, asked.events(), solve_delta(asked.events(), relation, target.epsilon))
    if asked.unknown is Unknown.NOISE_MULTIPLIER:
        noise = solve_noise(
            lambda value: asked.events(noise_multiplier=value), relation, target, least=asked.least_noise
        )
        return _steps(asked, asked.events(noise_multiplier=noise.value), noise, noise_multiplier=noise.value)
    if asked.unknown is Unknown.ITERATIONS:
        count = solve_count(lambda value: asked.events(iterations=value), relation, target)
        return _steps(asked, asked.events(iterations=count.value), count)
    size = solve_batch_size(lambda value: asked.events(batch_size=value), relation, target, asked.largest_batch)
    return _steps(asked, asked.events(batch_size=size.value), size)


def _steps(
    asked: _Question,
    events: tuple[Event],
    found: Solution | IntegerSolution,
    *,
    noise_multiplier: float | None = None,
) -> Steps:
    noise = asked.noise_multiplier if noise_multiplier is None else noise_multiplier
    assert noise is not None, "the noise was given, or solved for"
    return Steps(
        event=events[0],
        noise_multiplier=noise,
        batch_size=int(found.value) if asked.batch_size is None else asked.batch_size,
        value=found.value,
        achieved=found.achieved,
        next_achieved=found.next_achieved if isinstance(found, IntegerSolution) else None,
    )
