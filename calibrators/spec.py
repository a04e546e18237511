"""What a calibrator is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import FullBatch, Poisson, Sampling
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, read_integer, read_real
from accounting.relations import NeighboringRelation
from calibrators.plan import MAX_DATASET_SIZE, GradientBound, Plan
from calibrators.provenance import Provenance

MAX_DIMENSION = 10**10


@dataclass(frozen=True, slots=True)
class ApproximateDpTarget:
    """(epsilon, delta)-differential privacy of the whole run."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", read_real("epsilon", self.epsilon, 0.0, 1e6, open_lower=True))
        object.__setattr__(self, "delta", read_real("delta", self.delta, 1e-30, 0.5))


@dataclass(frozen=True, slots=True)
class Spec:
    """The description of a private algorithm, as a caller gives it.

    Attributes:
        dataset_size: Declared public number of records.
        batch_size: Nominal batch size; the public divisor of every noisy sum.
        iterations: Number of steps.
        sampling: Kind of sampling; its parameters follow from the public sizes.
        gradient_bound: How one record's gradient is bounded.
        dimension: Number of parameters; utility needs it, privacy does not.
        assumptions: Constants of the problem by their names in the HTTP contract.
        step_size: The caller's own step size; None asks the theorem for one.
    """

    dataset_size: int
    batch_size: int
    iterations: int
    sampling: str
    neighboring_relation: NeighboringRelation
    gradient_bound: GradientBound
    target: ApproximateDpTarget
    dimension: int | None = None
    assumptions: Mapping[str, float] = field(default_factory=dict)
    step_size: float | None = None

    def __post_init__(self) -> None:
        read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE)
        read_integer("batch_size", self.batch_size, 1, MAX_DATASET_SIZE)
        read_integer("iterations", self.iterations, 1, MAX_COUNT)
        if self.dimension is not None:
            read_integer("dimension", self.dimension, 1, MAX_DIMENSION)
        if self.batch_size > self.dataset_size:
            raise InvalidValue(
                f"batch_size {self.batch_size} is larger than dataset_size {self.dataset_size}", pointer=("batch_size",)
            )

    def resolve_sampling(self, supported: tuple[type[Sampling], ...]) -> Sampling:
        """The sampling with the parameters that the public sizes imply.

        Raises:
            Unsupported: the algorithm has no such sampling; the detail names those it has.
            InvalidValue: full batches of a size other than the data set's.
        """
        check_sampling(self.sampling, supported)
        if self.sampling == Poisson.kind:
            return Poisson(self.batch_size / self.dataset_size)
        if self.batch_size != self.dataset_size:
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
        achieved: Certified epsilon of the plan's events at the target's delta.
        hyperparameters: Recommended numbers, each with its theorem.
        utility: Bounds on what the run achieves, each with its theorem.
        missing_assumptions: Names that the theorem's numbers would need.
        warnings: Sentences a reader must see beside the numbers.
    """

    plan: Plan
    achieved: Answer
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
