"""This module describes the stages of a training whose steps change. Each stage has its own batch size, noise and step
size.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer, read_real

#: The most stages of a training.
MAX_STAGES = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a training. All steps of a stage are equal.

    Attributes:
        iterations: The number of steps.
        batch_size: The nominal batch size, which is the public divisor of these steps.
        noise_factor: The noise of these steps, divided by the noise multiplier of the whole training; in [1e-3, 1e3].
        step_size: The step size of these steps; None takes the step size of the whole training.

    Raises:
        InvalidValue: If a number is outside its range.
    """

    iterations: int
    batch_size: int
    noise_factor: float = 1.0
    step_size: float | None = None

    def __post_init__(self) -> None:
        read_integer("iterations", self.iterations, 1, MAX_COUNT)
        read_integer("batch_size", self.batch_size, 1, MAX_DATASET_SIZE)
        read_real("noise_factor", self.noise_factor, 1e-3, 1e3)
        if self.step_size is not None:
            read_real("step_size", self.step_size, 0.0, 1e12, open_lower=True)
