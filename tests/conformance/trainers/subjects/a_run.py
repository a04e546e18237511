"""A small run of an algorithm: what the conformance suite of trainers carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrators.plan import AnyPhase
from calibrators.spec import OpenEpsilon, Spec, Unknown

#: Every declared record is there.
ROWS, FEATURES = 24, 4


def a_vector_for_each_step(phase: AnyPhase) -> Sequence[tuple[int, ...]]:
    return [(FEATURES,)] * phase.steps


@dataclass(frozen=True, slots=True)
class Run:
    """A few steps on a few records.

    Attributes:
        spec: With given noise; sampling and relation left out.
        variants: Changes that bring out other forms of the algorithm, by a word for each.
        noise_shapes: What a phase draws of its noise, in order: a shape for each draw.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    noise_shapes: Callable[[AnyPhase], Sequence[tuple[int, ...]]] = a_vector_for_each_step


def spec(**given: Any) -> Spec:
    """Whatever these steps cost: the noise is given."""
    usual = {
        "dataset_size": ROWS,
        "target": OpenEpsilon(1e-5),
        "unknown": Unknown.EPSILON,
        "noise_multiplier": 0.7,
        "dimension": FEATURES,
    }
    return Spec(**(usual | given))
