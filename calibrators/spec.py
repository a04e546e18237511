"""What a calibrator is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import FullBatch, Poisson, Sampling
from accounting.intervals import Answer
from accounting.numbers import (
    MAX_COUNT,
    MAX_DATASET_SIZE,
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    read_integer,
    read_real,
)
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.plan import GradientBound, Plan
from calibrators.provenance import Provenance

MAX_DIMENSION = 10**10


class Unknown(StrEnum):
    """What a calibration solves for, by its name in the HTTP contract."""

    NOISE_MULTIPLIER = "noise_multiplier"
    ITERATIONS = "iterations"
    BATCH_SIZE = "batch_size"
    EPSILON = "epsilon"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class OpenEpsilon:
    """The target whose epsilon is the unknown: whatever is certified at this delta."""

    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", read_real("delta", self.delta, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class OpenDelta:
    """The target whose delta is the unknown: whatever is certified at this epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, 1e9))


@dataclass(frozen=True, slots=True)
class Spec:
    """The description of a private algorithm, as a caller gives it; one thing of it is left open and solved for.

    Attributes:
        dataset_size: Declared public number of records.
        batch_size: Nominal batch size; the public divisor of every noisy sum. None: the largest that meets the target.
        iterations: Number of steps. None: the most that meet the target.
        sampling: Kind of sampling; its parameters follow from the public sizes.
        gradient_bound: How one record's gradient is bounded.
        target: What the run's privacy loss is held under, or the half of (epsilon, delta) that is given.
        dimension: Number of parameters; utility needs it, privacy does not.
        assumptions: Constants of the problem by their names in the HTTP contract.
        step_size: The caller's own step size; None asks the theorem for one.
        noise_multiplier: Noise on the sum over the contribution bound. None: the least that meets the target.

    Raises:
        InvalidValue: a number outside its range; nothing is left open (``overdetermined``), or more than one thing
            (``missing``).
    """

    dataset_size: int
    batch_size: int | None
    iterations: int | None
    sampling: str
    neighboring_relation: NeighboringRelation
    gradient_bound: GradientBound
    target: Target | OpenEpsilon | OpenDelta
    dimension: int | None = None
    assumptions: Mapping[str, float] = field(default_factory=dict)
    step_size: float | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE)
        if self.batch_size is not None:
            read_integer("batch_size", self.batch_size, 1, MAX_DATASET_SIZE)
            if self.batch_size > self.dataset_size:
                raise InvalidValue(
                    f"batch_size {self.batch_size} is larger than dataset_size {self.dataset_size}",
                    pointer=("batch_size",),
                )
        if self.iterations is not None:
            read_integer("iterations", self.iterations, 1, MAX_COUNT)
        if self.dimension is not None:
            read_integer("dimension", self.dimension, 1, MAX_DIMENSION)
        if self.noise_multiplier is not None:
            read_real("noise_multiplier", self.noise_multiplier, MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER)
        self._check_what_is_open()

    @property
    def unknown(self) -> Unknown:
        """What is left open."""
        return self._open()[0]

    def _open(self) -> list[Unknown]:
        is_open = {
            Unknown.NOISE_MULTIPLIER: self.noise_multiplier is None,
            Unknown.ITERATIONS: self.iterations is None,
            Unknown.BATCH_SIZE: self.batch_size is None,
            Unknown.EPSILON: isinstance(self.target, OpenEpsilon),
            Unknown.DELTA: isinstance(self.target, OpenDelta),
        }
        return [unknown for unknown, value in is_open.items() if value]

    def _check_what_is_open(self) -> None:
        unknowns = self._open()
        if not unknowns:
            raise InvalidValue(
                f"nothing is left to solve for: leave out one of {one_of([str(unknown) for unknown in Unknown])}",
                code="overdetermined",
                pointer=("noise_multiplier",),
            )
        if len(unknowns) > 1:
            raise InvalidValue(
                f"one thing is solved for, and {' and '.join(unknowns)} are all left out: give all but one",
                code="missing",
                pointer=(str(unknowns[0]),),
            )

    def sampling_of(self, batch_size: int | None, supported: tuple[type[Sampling], ...]) -> Sampling:
        """The sampling with the parameters that the public sizes and this batch size imply.

        Raises:
            Unsupported: the algorithm has no such sampling (the detail names those it has), or full batches are asked
                for with the batch size as the unknown.
            InvalidValue: full batches of a size other than the data set's.
        """
        check_sampling(self.sampling, supported)
        if self.sampling == Poisson.kind:
            return Poisson((batch_size or 1) / self.dataset_size)
        if batch_size is None:
            raise Unsupported(
                "full_batch takes every record in every step, so there is no batch size to solve for; use poisson",
                pointer=("sampling",),
            )
        if batch_size != self.dataset_size:
            raise InvalidValue(
                f"full_batch takes every record in every step: batch_size must be {self.dataset_size}",
                pointer=("batch_size",),
            )
        return FullBatch()


def check_sampling(kind: str, supported: tuple[type[Sampling], ...]) -> None:
    """Refuse a sampling under which the algorithm's events are not accounted, naming those under which they are."""
    kinds = [scheme.kind for scheme in supported]
    if kind not in kinds:
        raise Unsupported(
            f"this algorithm is not available with the sampling {kind!r}; use {one_of(kinds)}",
            code="unsupported_sampling",
            pointer=("sampling",),
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibrator's answer.

    Attributes:
        plan: What a ledger charges and a trainer executes.
        unknown: What was solved for.
        value: Its value.
        achieved: Certified cost of the plan's events in the target's own number: epsilon at delta, rho, mu, advantage,
            true positive rate, or the share of what remains of the budget.
        next_achieved: For an integer, the certified cost of the next one, which misses the target; else None.
        hyperparameters: Recommended numbers, each with its theorem.
        utility: Bounds on what the run achieves, each with its theorem.
        missing_assumptions: Names that the theorem's numbers would need.
        warnings: Sentences a reader must see beside the numbers.
    """

    plan: Plan
    unknown: Unknown
    value: float
    achieved: Answer
    next_achieved: Answer | None
    hyperparameters: tuple[Provenance, ...]
    utility: tuple[Provenance, ...]
    missing_assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def read_assumption(assumptions: Mapping[str, float], name: str, lower: float, upper: float, **options: bool) -> float:
    """One named constant in its range; the error points at it inside ``assumptions``."""
    try:
        return read_real(name, assumptions[name], lower, upper, **options)
    except InvalidValue as error:
        raise error.inside("assumptions") from None
