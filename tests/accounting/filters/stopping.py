"""What an analyst gains who stops a series of equal Gaussian steps when its privacy loss looks best."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def attained_delta(steps: int, variance: float, epsilon_of: Callable[[int], float]) -> tuple[float, float]:
    """Under the best stopping rule, and without stopping: E (1 - e^(epsilon_of(k) - L_k))_+ over the loss L_k.

    The loss of the first k steps is a normal random walk of the drift ``variance`` / 2 and this variance per step. By
    backward induction on a grid; good to two thousandths.
    """
    size, width = 2048, 80.0
    loss = (np.arange(size) - size // 2) * (width / size)
    frequency = 2.0 * math.pi * np.fft.rfftfreq(size, width / size)
    step = np.exp(1j * frequency * variance / 2 - 0.5 * frequency**2 * variance)
    value, at_the_end = np.zeros(size), np.zeros(size)
    for done in range(steps, 0, -1):
        stopped = np.maximum(0.0, -np.expm1(epsilon_of(done) - loss))
        value = np.maximum(value, stopped)
        at_the_end = stopped if done == steps else at_the_end
        value, at_the_end = (np.fft.irfft(np.fft.rfft(each) * step, size) for each in (value, at_the_end))
    return float(value[size // 2]), float(at_the_end[size // 2])
