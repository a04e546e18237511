"""This module defines the Plan. Calibrators make a plan, the ledger charges it, and the trainer executes it. All of
them use the same object, so they cannot disagree.

A plan is a tuple of phases. A phase holds the privacy event of its steps and everything else the trainer needs to carry
them out: for noisy gradient steps, the trainer draws the batches from ``event.sampling``, scales the noise by
``event.mechanism.noise_multiplier`` and stops after ``event.count`` steps. The ledger charges the events of all phases.
Between processes, a plan travels as canonical JSON and is identified by the hash of those bytes.

The JSON leaves out fields that have their default value (no domain, no penalty, the last point is released, no
evaluation). So the bytes of a plan stay the same when a later version adds fields.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from accounting import ENGINE_VERSION
from accounting.canonical import Json, canonical_bytes, sha256_hex
from accounting.described import Described, Real, from_json
from accounting.errors import InvalidValue, one_of
from accounting.events import (
    CorrelatedGaussian,
    CyclicPoisson,
    Event,
    FixedOrderEpochs,
    Gaussian,
    event_from_json,
    prefix_of_events,
)
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer, read_real
from accounting.relations import NeighboringRelation
from calibrators.geometry import Domain, Penalty, domain_from_json, penalty_from_json
from calibrators.held_out import HeldOutEvaluation
from calibrators.phases import PHASES
from calibrators.phases.structured import Noise, StructuredPhase
from calibrators.release import LAST_ITERATE, Release, WeightedAverage, release_from_json

#: The most step sizes in a schedule.
MAX_SCHEDULE = 100_000
#: Coefficients of correlated noise must be whole multiples of 2 to the minus this number.
MAX_COEFFICIENT_BITS = 20
#: The numeric types in which a plan can be carried out. A plan without a type was made for the first one.
DTYPES = (FLOAT64, FLOAT32) = ("float64", "float32")


@dataclass(frozen=True, slots=True)
class Clip(Described):
    """Clip each record's gradient to an l2 norm.

    Attributes:
        max_grad_norm: The largest length. A longer gradient is scaled down to this length.
    """

    kind: ClassVar[str] = "clip"
    max_grad_norm: Annotated[float, Real(0.0, 1e12, "Clip threshold, in gradient units.", open_lower=True)]

    @property
    def contribution_bound(self) -> float:
        """The largest l2 norm of one record's contribution to the sum, in gradient units."""
        return self.max_grad_norm


@dataclass(frozen=True, slots=True)
class Normalize(Described):
    """Divide each record's gradient by (regularizer + its l2 norm).

    Attributes:
        regularizer: The number r. The contribution g / (r + |g|) is shorter than 1, so the contribution bound is 1 for
            every r. The noise must never be scaled by r (Yang et al. 2022, eq. (3)).
    """

    kind: ClassVar[str] = "normalize"
    regularizer: Annotated[float, Real(0.0, 1e12, "The number r, in gradient units. It never scales the noise.")]

    @property
    def contribution_bound(self) -> float:
        """The largest l2 norm of one record's contribution to the sum; a pure number."""
        return 1.0


GradientBound = Clip | Normalize

GRADIENT_BOUNDS: dict[str, type[GradientBound]] = {cls.kind: cls for cls in (Clip, Normalize)}


@dataclass(frozen=True, slots=True)
class BoundedSteps(ABC):
    """Equal noisy gradient steps. Each step draws a batch, bounds each record's gradient, sums the gradients, adds
    noise, divides the sum and updates the parameters.

    Attributes:
        event: The privacy event of the steps. The event's count is the number of steps.
        gradient_bound: The way in which one record's gradient is bounded before the sum.
        divisor: The public constant by which the noisy sum is divided (the nominal batch size).
        step_size: The step size: one number for all steps, or one number for each step. None in a plan that was made
            only to compute its privacy; no trainer accepts such a plan.
    """

    event: Event
    gradient_bound: GradientBound
    divisor: int
    step_size: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.check_event()
        object.__setattr__(self, "divisor", read_integer("divisor", self.divisor, 1, MAX_DATASET_SIZE))
        if isinstance(self.step_size, Sequence):
            if len(self.step_size) != self.steps or self.steps > MAX_SCHEDULE:
                raise InvalidValue(
                    f"a schedule must have one step size for each step, and at most {MAX_SCHEDULE} steps",
                    pointer=("step_size",),
                )
            object.__setattr__(self, "step_size", tuple(_step_size(value) for value in self.step_size))
        elif self.step_size is not None:
            object.__setattr__(self, "step_size", _step_size(self.step_size))

    @abstractmethod
    def check_event(self) -> None:
        """Refuse an event that does not fit these steps.

        Raises:
            InvalidValue: If the event does not have the mechanism or the batches of these steps.
        """

    @property
    @abstractmethod
    def noise_multiplier(self) -> float:
        """The standard deviation of the normal numbers that make up the noise, divided by the contribution bound."""

    @property
    def steps(self) -> int:
        """The number of steps that a trainer carries out."""
        return self.event.count

    @property
    def batch_size(self) -> int:
        """The nominal number of records that a step reads."""
        return self.divisor

    @property
    def is_executable(self) -> bool:
        return self.step_size is not None

    def step_size_at(self, index: int) -> float:
        """Return the step size of the step with this index within the phase."""
        assert self.step_size is not None, "an executable plan has step sizes"
        return self.step_size[index] if isinstance(self.step_size, tuple) else self.step_size

    @property
    def noise_stddev_on_sum(self) -> float:
        """The standard deviation per coordinate of the normal numbers in the noise on the sum of contributions, in the
        unit of contributions.
        """
        return self.noise_multiplier * self.gradient_bound.contribution_bound

    @property
    def noise_stddev_on_mean(self) -> float:
        """Return the standard deviation of the noise on the mean, after the division by the public divisor."""
        return self.noise_stddev_on_sum / self.divisor

    @property
    def smallest_bound(self) -> float:
        """The bound on a record's contribution, in the unit of contributions."""
        return self.gradient_bound.contribution_bound

    @property
    def smallest_noise(self) -> float:
        """The noise on a sum, divided by the contribution bound."""
        return self.noise_stddev_on_sum / self.gradient_bound.contribution_bound

    def smallest_change(self, radius: float) -> float | None:
        """Return None, because these steps sum gradients, not changes of gradients."""
        return None

    def noise(self, relation: NeighboringRelation) -> Noise:
        """Return the noise on a step's sum of contributions."""
        return Noise(
            stddev_on_sum=self.noise_stddev_on_sum,
            stddev_on_mean=self.noise_stddev_on_mean,
            l2_sensitivity=relation.sensitivity * self.gradient_bound.contribution_bound,
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "event": self.event.to_json(),
            "gradient_bound": self.gradient_bound.to_json(),
            "divisor": self.divisor,
            "step_size": self.step_size,
        }


@dataclass(frozen=True, slots=True)
class Phase(BoundedSteps):
    """Noisy gradient steps whose noise is drawn anew in every step."""

    def check_event(self) -> None:
        if not isinstance(self.event.mechanism, Gaussian):
            raise InvalidValue(
                "a phase of noisy gradient steps must have a gaussian event", pointer=("event", "mechanism")
            )

    @property
    def noise_multiplier(self) -> float:
        assert isinstance(self.event.mechanism, Gaussian), "check_event has refused other mechanisms"
        return self.event.mechanism.noise_multiplier


@dataclass(frozen=True, slots=True)
class CorrelatedSteps(BoundedSteps):
    """Noisy gradient steps whose noise is correlated: step t adds x_t = (z_t - sum over j >= 1 of c_j x_(t-j)) / c_0.

    The z_t are independent normal numbers, and `noise_stddev_on_sum` is their standard deviation. The c_j are the
    coefficients of the matrix C. The privacy analysis applies C to the sums of the steps and adds z, and a trainer
    computes exactly these numbers. So the coefficients must be whole multiples of a power of two. The more bits they
    have, the coarser the grid of sums and noise.

    Attributes:
        momentum: The momentum beta. Step t moves along m_t = beta m_(t-1) + mean_t, where mean_t is the noisy mean
            gradient.
    """

    kind: ClassVar[str] = "correlated_steps"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        BoundedSteps.__post_init__(self)
        below_one = math.nextafter(1.0, 0.0)
        object.__setattr__(self, "momentum", read_real("momentum", self.momentum, 0.0, below_one))

    def check_event(self) -> None:
        if not isinstance(self.event.mechanism, CorrelatedGaussian):
            raise InvalidValue(
                "steps with correlated noise must have a correlated_gaussian event", pointer=("event", "mechanism")
            )
        if not isinstance(self.event.sampling, CyclicPoisson | FixedOrderEpochs):
            raise InvalidValue(
                f"steps with correlated noise must have {CyclicPoisson.kind} or {FixedOrderEpochs.kind} "
                f"batches, not {self.event.sampling.kind}",
                pointer=("event", "sampling"),
            )
        for index, value in enumerate(self.coefficients):
            if value > 1.0 or not math.ldexp(value, MAX_COEFFICIENT_BITS).is_integer():
                raise InvalidValue(
                    f"coefficients must be multiples of 2^-{MAX_COEFFICIENT_BITS} and at most 1; got {value!r}",
                    pointer=("event", "mechanism", "coefficients", index),
                )

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients c_0, c_1, ... of C."""
        assert isinstance(self.event.mechanism, CorrelatedGaussian), "check_event has refused other mechanisms"
        return self.event.mechanism.coefficients

    @property
    def coefficient_bits(self) -> int:
        """The least k such that all coefficients are whole multiples of 2^-k."""
        return max(value.as_integer_ratio()[1].bit_length() - 1 for value in self.coefficients)

    @property
    def whole_coefficients(self) -> tuple[int, ...]:
        """The coefficients, divided by 2^-`coefficient_bits` so that they are whole numbers."""
        bits = self.coefficient_bits
        return tuple(int(math.ldexp(value, bits)) for value in self.coefficients)

    @property
    def noise_multiplier(self) -> float:
        assert isinstance(self.event.mechanism, CorrelatedGaussian), "check_event has refused other mechanisms"
        return self.event.mechanism.noise_multiplier

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind} | BoundedSteps.to_json(self) | {"momentum": self.momentum}


AnyPhase = Phase | CorrelatedSteps | StructuredPhase


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete description of a run. The same plan is charged and executed.

    Attributes:
        algorithm: The algorithm's name in the registries of calibrators and of trainers.
        dataset_size: The declared public number of records, never the actual count.
        neighboring_relation: The relation under which the events are accounted.
        phases: The steps, in order.
        domain: The set that contains every point; None means all of R^d.
        penalty: The penalty that is added to the mean loss; None for none.
        release: The point, or the average of points, that is released as the model.
        engine: The version of the accounting engine that solved for the noise.
        dtype: The numeric type of the stored rows, the logits and the partial sums: "float64" or "float32".
        evaluation: The evaluation of the model on held-out rows after the last step; None without one.
    """

    algorithm: str
    dataset_size: int
    neighboring_relation: NeighboringRelation
    phases: tuple[AnyPhase, ...]
    domain: Domain | None = None
    penalty: Penalty | None = None
    release: Release = LAST_ITERATE
    engine: str = ENGINE_VERSION
    dtype: str = FLOAT64
    evaluation: HeldOutEvaluation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset_size", read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE))
        if not self.phases:
            raise InvalidValue("a plan must have at least one phase", pointer=("phases",))
        if self.dtype not in DTYPES:
            raise InvalidValue(f"dtype must be {one_of(DTYPES)}, got {self.dtype!r}", pointer=("dtype",))
        if isinstance(self.release, WeightedAverage) and len(self.release.weights) != self.iterations:
            raise InvalidValue("a weighted average must have one weight for each step", pointer=("release", "weights"))

    @property
    def events(self) -> tuple[Event, ...]:
        """The privacy events of the whole plan, for a ledger to charge. The event of an evaluation comes last."""
        evaluation = () if self.evaluation is None else (self.evaluation.event,)
        return (*(phase.event for phase in self.phases), *evaluation)

    @property
    def iterations(self) -> int:
        """The number of steps that a trainer carries out."""
        return sum(phase.steps for phase in self.phases)

    def cost_of_prefix(self, steps: int) -> tuple[Event, ...]:
        """Return the events of the first ``steps`` steps. They cover everything that a run has released if it stops
        after these steps.

        A phase whose single event covers all its steps is charged as a whole from its first step on. The noise of an
        evaluation may be drawn only after the last step.

        Raises:
            InvalidValue: If ``steps`` is negative or more than the plan has.
        """
        left = read_integer("steps", steps, 0, min(self.iterations, MAX_COUNT))
        events: list[Event] = []
        for phase in self.phases:
            taken = min(left, phase.steps)
            if taken:
                counted = taken if phase.event.count == phase.steps else phase.event.count
                events += prefix_of_events([phase.event], counted)
            left -= taken
        return self.events if steps == self.iterations else tuple(events)

    @property
    def is_executable(self) -> bool:
        """Return whether every phase has all the numbers that a trainer needs."""
        return all(phase.is_executable for phase in self.phases)

    def to_json(self) -> dict[str, Json]:
        described: dict[str, Json] = {
            "algorithm": self.algorithm,
            "dataset_size": self.dataset_size,
            "neighboring_relation": str(self.neighboring_relation),
            "phases": [phase.to_json() for phase in self.phases],
            "engine": self.engine,
        }
        if self.domain is not None:
            described["domain"] = self.domain.to_json()
        if self.penalty is not None:
            described["penalty"] = self.penalty.to_json()
        if self.release != LAST_ITERATE:
            described["release"] = self.release.to_json()
        if self.dtype != FLOAT64:
            described["dtype"] = self.dtype
        if self.evaluation is not None:
            described["evaluation"] = self.evaluation.to_json()
        return described

    def canonical(self) -> bytes:
        """Return the canonical bytes of the plan. These bytes travel between processes, and the hash is computed from
        them.
        """
        return canonical_bytes(self.to_json())

    @property
    def plan_hash(self) -> str:
        """The SHA-256 of the canonical bytes, in hexadecimal. The reservation, the queue, the model file and the report
        all contain it.
        """
        return sha256_hex(self.canonical())


def plan_from_canonical(data: bytes, expected_hash: str) -> Plan:
    """Read a plan that came from another process.

    Guarantees: the returned plan has ``plan_hash == expected_hash`` and the same canonical bytes.

    Raises:
        InvalidValue: If the bytes have another hash, or are not the canonical bytes of a plan.
    """
    if sha256_hex(data) != expected_hash:
        raise InvalidValue(
            "the plan is refused, because its bytes do not have the expected hash", code="plan_hash_mismatch"
        )
    try:
        plan = _plan_from_json(json.loads(data))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidValue("these are not the canonical bytes of a plan", code="plan_hash_mismatch") from None
    if plan.canonical() != data:
        raise InvalidValue("these are not the canonical bytes of a plan", code="plan_hash_mismatch")
    return plan


def _plan_from_json(value: Mapping[str, Any]) -> Plan:
    return Plan(
        algorithm=value["algorithm"],
        dataset_size=int(value["dataset_size"]),
        neighboring_relation=NeighboringRelation(value["neighboring_relation"]),
        phases=tuple(_phase_from_json(phase) for phase in value["phases"]),
        domain=domain_from_json(value["domain"]) if "domain" in value else None,
        penalty=penalty_from_json(value["penalty"]) if "penalty" in value else None,
        release=release_from_json(value["release"]) if "release" in value else LAST_ITERATE,
        engine=value["engine"],
        dtype=value.get("dtype", FLOAT64),
        evaluation=HeldOutEvaluation.from_json(value["evaluation"]) if "evaluation" in value else None,
    )


def _phase_from_json(value: Mapping[str, Any]) -> AnyPhase:
    if "kind" in value and value["kind"] != CorrelatedSteps.kind:
        return PHASES[value["kind"]].from_json(value)
    event, bound = event_from_json(value["event"]), from_json(value["gradient_bound"], GRADIENT_BOUNDS)
    divisor, step_size = int(value["divisor"]), _step_size_from_json(value["step_size"])
    if "kind" in value:
        return CorrelatedSteps(event, bound, divisor, step_size, float(value["momentum"]))
    return Phase(event, bound, divisor, step_size)


def _step_size_from_json(value: Any) -> float | tuple[float, ...] | None:
    if isinstance(value, list):
        return tuple(float(item) for item in value)
    return None if value is None else float(value)


def _step_size(value: object) -> float:
    return read_real("step_size", value, 0.0, 1e12, open_lower=True)
