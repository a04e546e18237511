"""This module takes private DP-SGD steps on a GPU, as a worker with EPSILOND_DEVICE=cuda does."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.trainer import ours
from benchmarks.trainer.pace import Pace
from benchmarks.trainer.work import Features, Labels, Task
from trainer.devices import cuda_device


def prepare(side: str, task: Task) -> Callable[[Features, Labels, Pace], None]:
    """Return a function that trains on data until it is told to stop."""
    device, on_arrays = cuda_device(), ours.prepare(side, task)

    def train(features: Features, labels: Labels, pace: Pace) -> None:
        pace.settle = device.settle
        on_arrays(device.holding(features), device.holding(labels), pace)

    return train
