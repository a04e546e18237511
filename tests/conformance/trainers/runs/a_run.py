"""A small run of an algorithm: what the conformance suite of trainers carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrators.spec import OpenEpsilon, Spec, Unknown

#: Every declared record is there.
ROWS, FEATURES = 24, 4


@dataclass(frozen=True, slots=True)
class Run:
    """A few steps on a few records.

    Attributes:
        spec: With given noise; sampling and relation left out.
        variants: Changes that bring out other forms of the algorithm, by a word for each.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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
