"""This module defines the spec that a calibrator is given, and the calibration that it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from accounting.errors import InvalidValue, Unsupported
from accounting.events import TruncatedPoisson
from accounting.intervals import Answer
from accounting.numbers import (
    MAX_COUNT,
    MAX_DATASET_SIZE,
    MAX_DIMENSION,
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    read_integer,
    read_real,
)
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.as_published import AsPublished
from calibrators.choices import Choice
from calibrators.correlation import Alternative, Correlation
from calibrators.geometry import Domain, Penalty
from calibrators.plan import MAX_SCHEDULE, Clip, GradientBound, Plan
from calibrators.provenance import Provenance
from calibrators.release import LAST_ITERATE, Release, average_of_last
from calibrators.stages import MAX_STAGES, Stage
from calibrators.step_sizes import StepSizeSchedule


class Unknown(StrEnum):
    """The quantity that a calibration solves for. The values are the names in the HTTP contract."""

    NOISE_MULTIPLIER = "noise_multiplier"
    """The least noise that meets the target."""
    ITERATIONS = "iterations"
    """The most steps that meet the target with the given noise."""
    BATCH_SIZE = "batch_size"
    """The largest batch that meets the target with the given noise."""
    EPSILON = "epsilon"
    """The epsilon that the given noise certifies at the target's delta."""
    DELTA = "delta"
    """The delta that the given noise certifies at the target's epsilon."""


@dataclass(frozen=True, slots=True)
class OpenEpsilon:
    """A target whose epsilon is solved for: the epsilon that is certified at this delta."""

    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", read_real("delta", self.delta, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class OpenDelta:
    """A target whose delta is solved for: the delta that is certified at this epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, 1e9))


def default_capacity(declared_size: int) -> int:
    """Return the default number of slots for a data set. It is larger than the declared size by an eighth, and by at
    least 8.

    The owner may be wrong about the size by a few records. For a small data set, an eighth would leave no room for
    them.

    >>> default_capacity(60_000), default_capacity(1)
    (67500, 9)
    """
    return declared_size + max(-(-declared_size // 8), 8)


@dataclass(frozen=True, slots=True)
class Spec:
    """A caller's description of a private algorithm. One quantity is left open, and the calibration solves for it.

    A field that is None may be left to the algorithm, which then uses its own sampling, relation, gradient bound, batch
    size or number of steps. An algorithm that cannot choose a size refuses the spec with `need`.

    Attributes:
        dataset_size: The declared public number of records.
        target: The limit on the run's privacy loss, or the one of epsilon and delta that is given.
        unknown: The quantity to solve for. The field of this quantity is None.
        batch_size: The nominal batch size, which is the public divisor of every noisy sum.
        iterations: The number of steps.
        stages: The stages of a training whose steps change. With stages, ``batch_size`` and ``iterations`` are None.
        sampling: The kind of sampling. Its other parameters follow from the public sizes.
        max_batch_size: The most records in a truncated batch; only for truncated Poisson sampling.
        capacity: The public number of slots of the data set, which is the most records that it may have. None takes the
            default.
        neighboring_relation: The difference between neighbouring data sets.
        gradient_bound: The way in which one record's gradient is bounded.
        domain: The set that contains the parameters.
        penalty: The penalty that is added to the loss.
        dimension: The number of parameters. Bounds on the utility need it; privacy does not.
        assumptions: Constants of the problem by their names in the HTTP contract.
        step_size: The caller's own step size; None asks the theorem for one.
        step_size_schedule: The change of step sizes over the run, if the algorithm supports it; None keeps them
            constant.
        averaged_share: The share of the steps at the end of the run whose points are averaged, if the algorithm has a
            `step_rule`. None releases the last point.
        momentum: The momentum, if the algorithm supports it; None means no momentum.
        correlation: The correlation of the noise of successive steps, if the algorithm supports it.
        noise_multiplier: The noise on the sum, divided by the contribution bound. It is given if another quantity is
            solved for.
        variant: The form of the algorithm; None means its first form.
        judge_published: Whether the accounting engine judges the noise that the paper prints. This takes another
            calibration.

    Raises:
        InvalidValue: If a number is outside its range; if the quantity that is solved for is also given
            (``overdetermined``); or if the noise is neither given nor solved for (``missing``).
        Unsupported: If a number of steps or a batch size is solved for, although the spec has stages.
    """

    dataset_size: int
    target: Target | OpenEpsilon | OpenDelta
    unknown: Unknown = Unknown.NOISE_MULTIPLIER
    batch_size: int | None = None
    iterations: int | None = None
    stages: tuple[Stage, ...] = ()
    sampling: str | None = None
    max_batch_size: int | None = None
    capacity: int | None = None
    neighboring_relation: NeighboringRelation | None = None
    gradient_bound: GradientBound | None = None
    domain: Domain | None = None
    penalty: Penalty | None = None
    dimension: int | None = None
    assumptions: Mapping[str, float] = field(default_factory=dict)
    step_size: float | None = None
    step_size_schedule: StepSizeSchedule | None = None
    averaged_share: float | None = None
    momentum: float | None = None
    correlation: Correlation | None = None
    noise_multiplier: float | None = None
    variant: str | None = None
    judge_published: bool = True

    def __post_init__(self) -> None:
        read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE)
        if self.capacity is not None:
            read_integer("capacity", self.capacity, self.dataset_size, MAX_DATASET_SIZE)
        if self.batch_size is not None:
            read_integer("batch_size", self.batch_size, 1, MAX_DATASET_SIZE)
            if self.batch_size > self.dataset_size:
                raise InvalidValue(
                    f"batch_size must be at most dataset_size, {self.dataset_size}, got {self.batch_size}",
                    pointer=("batch_size",),
                )
        self._check_largest_batch()
        if self.stages:
            self._check_stages()
        if self.iterations is not None:
            read_integer("iterations", self.iterations, 1, MAX_COUNT)
        if self.dimension is not None:
            read_integer("dimension", self.dimension, 1, MAX_DIMENSION)
        if self.averaged_share is not None:
            read_real("averaged_share", self.averaged_share, 0.0, 1.0, open_lower=True)
        if self.momentum is not None:
            read_real("momentum", self.momentum, 0.0, math.nextafter(1.0, 0.0))
        if self.noise_multiplier is not None:
            read_real("noise_multiplier", self.noise_multiplier, MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER)
        self._check_what_is_open()

    def need(self, name: str, why: str = "this algorithm has no default for it") -> int:
        """Return the size with this name, such as ``batch_size``.

        Raises:
            InvalidValue: If the size was left out (``missing``).
        """
        value: int | None = getattr(self, name)
        if value is None:
            raise InvalidValue(f"{name} is needed: {why}", code="missing", pointer=(name,))
        return value

    def release_of(self, steps: int) -> Release:
        """Return the point that is released after this many steps, for algorithms whose theorem does not determine it.

        Raises:
            InvalidValue: If points are averaged over more steps than a plan may have weights for.
        """
        if self.averaged_share is None:
            return LAST_ITERATE
        if steps > MAX_SCHEDULE:
            raise InvalidValue(
                f"averaged_share needs at most {MAX_SCHEDULE} steps, and there are {steps}: take fewer steps, "
                "or leave averaged_share out",
                pointer=("averaged_share",),
            )
        return average_of_last(math.ceil(self.averaged_share * steps), steps)

    @property
    def slots(self) -> int:
        """The number of slots: the capacity if it is given, otherwise the default."""
        return self.capacity or min(default_capacity(self.dataset_size), MAX_DATASET_SIZE)

    @property
    def relation(self) -> NeighboringRelation:
        """The neighbouring relation. The registry has filled in the algorithm's default by then."""
        assert self.neighboring_relation is not None, "the registry fills in the algorithm's own relation"
        return self.neighboring_relation

    @property
    def clip(self) -> Clip:
        """The gradient bound as a clip threshold, for algorithms that take no other kind of bound."""
        assert isinstance(self.gradient_bound, Clip), "the registry has checked the gradient bound"
        return self.gradient_bound

    def _check_largest_batch(self) -> None:
        if self.max_batch_size is not None:
            read_integer("max_batch_size", self.max_batch_size, 1, MAX_DATASET_SIZE)
            if self.sampling != TruncatedPoisson.kind:
                raise InvalidValue(
                    f"max_batch_size is only for {TruncatedPoisson.kind} sampling; leave it out, or use that sampling",
                    pointer=("max_batch_size",),
                )

    def _check_stages(self) -> None:
        if len(self.stages) > MAX_STAGES:
            raise InvalidValue(
                f"the number of stages must be at most {MAX_STAGES}, got {len(self.stages)}", pointer=("stages",)
            )
        for name in ("batch_size", "iterations"):
            if getattr(self, name) is not None:
                raise InvalidValue(
                    f"{name} cannot be given together with stages, because every stage has its own; leave out "
                    "one of the two",
                    code="overdetermined",
                    pointer=(name,),
                )
            if self.unknown == name:
                raise Unsupported(
                    f"{name} cannot be solved for with stages, because every stage has its own; solve for "
                    "noise_multiplier, epsilon or delta",
                    pointer=("solve_for",),
                )

    def _check_what_is_open(self) -> None:
        open_target = {OpenEpsilon: Unknown.EPSILON, OpenDelta: Unknown.DELTA}.get(type(self.target))
        solved_in_target = self.unknown in (Unknown.EPSILON, Unknown.DELTA)
        if (solved_in_target or open_target is not None) and self.unknown is not open_target:
            raise InvalidValue(
                f"solve_for is {self.unknown}, but the target leaves {open_target or 'nothing'} open; the "
                "target must leave open what is solved for",
                code="overdetermined" if open_target is None else "missing",
                pointer=("target",),
            )
        if not solved_in_target and getattr(self, self.unknown) is not None:
            raise InvalidValue(
                f"{self.unknown} is given and also solved for; leave it out, or solve for something else",
                code="overdetermined",
                pointer=(str(self.unknown),),
            )
        if self.unknown is not Unknown.NOISE_MULTIPLIER and self.noise_multiplier is None:
            raise InvalidValue(
                f"noise_multiplier is needed to solve for {self.unknown}",
                code="missing",
                pointer=("noise_multiplier",),
            )


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibrator's answer.

    Attributes:
        plan: The plan. A ledger charges it, and a trainer executes it.
        unknown: The quantity that was solved for.
        value: The value of that quantity. It is a tuple of numbers if the algorithm's noise has several scales.
        achieved: The certified cost of the plan's events in the target's own number: epsilon at delta, rho, mu,
            advantage, true positive rate, or the share of the budget's remaining room.
        next_achieved: If an integer was solved for, the certified cost of the next integer, which misses the target;
            otherwise None.
        hyperparameters: The recommended numbers, each with its theorem.
        utility: Bounds on the result of the run, each with its theorem.
        missing_assumptions: The names of assumptions that the theorem's numbers would need.
        warnings: Sentences that must be shown together with the numbers.
        as_published: The paper's own calibration, with a verdict if the spec asks for one. None if the paper has no
            calibration for this target.
        dtype_reason: The reason why the plan is carried out in float64 although nobody asked for it; otherwise None.
        alternatives: The plan's number of bands and other numbers of bands, if correlated noise is solved for.
        choices: The values that the request left out and that were chosen for it.
        derived: The constants of the theorem that follow from declared bounds.
        theorem_note: Sentences about the numbers of this plan that the theorem chose or would have chosen. None if
            everything was given.
    """

    plan: Plan
    unknown: Unknown
    value: float | tuple[float, ...]
    achieved: Answer
    next_achieved: Answer | None
    hyperparameters: tuple[Provenance, ...]
    utility: tuple[Provenance, ...]
    missing_assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    as_published: AsPublished | None = None
    dtype_reason: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    choices: tuple[Choice, ...] = ()
    derived: Mapping[str, float] = field(default_factory=dict)
    theorem_note: str | None = None
