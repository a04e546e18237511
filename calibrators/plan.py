"""The Plan: made by a calibrator, charged by the ledger, executed by the trainer. One object, so they cannot disagree.

A plan is a tuple of phases. A phase holds the privacy event of its steps and everything else the trainer needs to
carry them out: the trainer draws its batches from ``event.sampling``, scales its noise by
``event.mechanism.noise_multiplier`` and stops after ``event.count`` steps. What is charged is the tuple of the same
events. Across processes a plan travels as canonical JSON and is known by the hash of those bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from accounting import ENGINE_VERSION
from accounting.canonical import Json, canonical_bytes, sha256_hex
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, event_from_json, prefix_of_events
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer, read_real
from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class Clip:
    """Scale each record's gradient down to l2 norm ``max_grad_norm`` where it is longer."""

    kind: ClassVar[str] = "clip"
    max_grad_norm: float

    def __post_init__(self) -> None:
        bound = read_real("max_grad_norm", self.max_grad_norm, 0.0, 1e12, open_lower=True)
        object.__setattr__(self, "max_grad_norm", bound)

    @property
    def contribution_bound(self) -> float:
        """Largest l2 norm of one record's contribution to the sum, in gradient units."""
        return self.max_grad_norm

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "max_grad_norm": self.max_grad_norm}


@dataclass(frozen=True, slots=True)
class Normalize:
    """Divide each record's gradient g by (regularizer + its l2 norm): the contribution g / (r + |g|) is shorter than 1.

    The contribution bound is 1 for every regularizer; noise must never be scaled by it (Yang et al. 2022, eq. (3)).
    """

    kind: ClassVar[str] = "normalize"
    regularizer: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "regularizer", read_real("regularizer", self.regularizer, 0.0, 1e12))

    @property
    def contribution_bound(self) -> float:
        """Largest l2 norm of one record's contribution to the sum; a pure number."""
        return 1.0

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "regularizer": self.regularizer}


GradientBound = Clip | Normalize


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that are alike, each: sample, bound each record's gradient, sum, add noise, divide, step.

    Attributes:
        event: The privacy event of the steps; its count is their number.
        gradient_bound: How one record's gradient is bounded before the sum.
        divisor: Public constant by which the noisy sum is divided (the nominal batch size).
        step_size: Factor of the update; None in a plan that was made for its privacy alone, which no trainer accepts.
    """

    event: Event
    gradient_bound: GradientBound
    divisor: int
    step_size: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.event.mechanism, Gaussian):
            raise InvalidValue("a phase of noisy gradient steps has a gaussian event", pointer=("event", "mechanism"))
        object.__setattr__(self, "divisor", read_integer("divisor", self.divisor, 1, MAX_DATASET_SIZE))
        if self.step_size is not None:
            step_size = read_real("step_size", self.step_size, 0.0, 1e12, open_lower=True)
            object.__setattr__(self, "step_size", step_size)

    @property
    def noise_stddev_on_sum(self) -> float:
        """Standard deviation per coordinate of the noise on the sum of contributions, in their unit."""
        assert isinstance(self.event.mechanism, Gaussian)
        return self.event.mechanism.noise_multiplier * self.gradient_bound.contribution_bound

    @property
    def noise_stddev_on_mean(self) -> float:
        """The same after the division by the public divisor."""
        return self.noise_stddev_on_sum / self.divisor

    def to_json(self) -> dict[str, Json]:
        return {
            "event": self.event.to_json(),
            "gradient_bound": self.gradient_bound.to_json(),
            "divisor": self.divisor,
            "step_size": self.step_size,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be charged and what will run.

    Attributes:
        algorithm: Name in the registry of calibrators and of trainers.
        dataset_size: The declared public number of records; never a realised count.
        neighboring_relation: The relation under which the events are to be read.
        phases: The steps, in order.
        engine: Version of the accounting engine that solved for the noise.
    """

    algorithm: str
    dataset_size: int
    neighboring_relation: NeighboringRelation
    phases: tuple[Phase, ...]
    engine: str = ENGINE_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset_size", read_integer("dataset_size", self.dataset_size, 1, MAX_DATASET_SIZE))
        if not self.phases:
            raise InvalidValue("a plan has at least one phase", pointer=("phases",))

    @property
    def events(self) -> tuple[Event, ...]:
        """The privacy events of the whole plan: what a ledger charges."""
        return tuple(phase.event for phase in self.phases)

    @property
    def iterations(self) -> int:
        return sum(phase.event.count for phase in self.phases)

    def cost_of_prefix(self, steps: int) -> tuple[Event, ...]:
        """The events of the first ``steps`` steps: what a run that stopped there has released.

        Raises:
            InvalidValue: ``steps`` is negative or more than the plan has.
        """
        return prefix_of_events(self.events, read_integer("steps", steps, 0, min(self.iterations, MAX_COUNT)))

    @property
    def is_executable(self) -> bool:
        """Whether every phase has a step size."""
        return all(phase.step_size is not None for phase in self.phases)

    def to_json(self) -> dict[str, Json]:
        return {
            "algorithm": self.algorithm,
            "dataset_size": self.dataset_size,
            "neighboring_relation": str(self.neighboring_relation),
            "phases": [phase.to_json() for phase in self.phases],
            "engine": self.engine,
        }

    def canonical(self) -> bytes:
        """The bytes that travel between processes and that the hash is of."""
        return canonical_bytes(self.to_json())

    @property
    def plan_hash(self) -> str:
        """SHA-256 of the canonical bytes, hexadecimal. Reservation, queue, model file and report carry it."""
        return sha256_hex(self.canonical())


def plan_from_canonical(data: bytes, expected_hash: str) -> Plan:
    """Read a plan that came from another process.

    Guarantees: the returned plan has ``plan_hash == expected_hash`` and the same canonical bytes.

    Raises:
        InvalidValue: the bytes have another hash, or are not the canonical bytes of a plan.
    """
    if sha256_hex(data) != expected_hash:
        raise InvalidValue("the plan's bytes do not have the expected hash; it is refused", code="plan_hash_mismatch")
    try:
        plan = _plan_from_json(json.loads(data))
    except (KeyError, TypeError, ValueError):
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
        engine=value["engine"],
    )


def _phase_from_json(value: Mapping[str, Any]) -> Phase:
    bound, step_size = value["gradient_bound"], value["step_size"]
    return Phase(
        event=event_from_json(value["event"]),
        gradient_bound=(
            Clip(float(bound["max_grad_norm"]))
            if bound["kind"] == Clip.kind
            else Normalize(float(bound["regularizer"]))
        ),
        divisor=int(value["divisor"]),
        step_size=None if step_size is None else float(step_size),
    )
