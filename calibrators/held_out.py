"""This module describes the evaluation of a released model on held-out rows. The evaluation is part of the plan, so its
cost is known before any noise is drawn.

The evaluation is not one of the plan's phases, so code that carries out phases does not handle it. It releases one
vector with Gaussian noise (`trainer.held_out`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounting.canonical import Json
from accounting.described import Real
from accounting.events import Event, Gaussian

#: The range of an evaluation's noise multiplier. Larger noise would need too many digits on the grid of numbers that
#: `trainer.held_out` uses.
EVALUATION_NOISE = Real(0.01, 4096.0, "Noise on each coordinate over the bound on a row's contribution.")


@dataclass(frozen=True, slots=True)
class HeldOutEvaluation:
    """One noisy vector of sums over held-out rows, from which every metric is computed.

    Attributes:
        noise_multiplier: The standard deviation of the noise on each coordinate, divided by the bound on a row's
            contribution.

    Raises:
        InvalidValue: If the number is outside its range.

    >>> HeldOutEvaluation(8.0).event.count
    1
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", EVALUATION_NOISE.read("noise_multiplier", self.noise_multiplier))

    @property
    def event(self) -> Event:
        """Return the charged event: a Gaussian mechanism on all records, whether they are held out or not."""
        return Event(Gaussian(self.noise_multiplier))

    def to_json(self) -> dict[str, Json]:
        return {"noise_multiplier": self.noise_multiplier}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HeldOutEvaluation:
        """Read an evaluation from the output of `to_json`. Numbers may also be canonical strings."""
        return cls(float(value["noise_multiplier"]))
