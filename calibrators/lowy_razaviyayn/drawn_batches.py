r"""How far the mean oracle is from the mean in each step of a pass: batches that are cut, and batches that are drawn.

**Batches that are drawn (add or remove one record).** Each of n records draws one of R batches, independently; the
sum is divided by $s = \lfloor n/R \rfloor$. Given what earlier steps have read, $R_t \sim \mathrm{Bin}(n, f)$ records
are left before step $t = 0..R-1$, $f = (R - t)/R$, each of which is in batch t with probability $1/(R - t)$. So the
oracle's mean is $(1 + \alpha_t)$ times that of a clipped record, with
$\mathbb{E}\alpha_t^2 = \big(\frac{n}{R s} - 1\big)^2 + \frac{n (1 - f)}{f R^2 s^2}$. Hence its root mean square bias is
at most $B + \min(r_2, C) \sqrt{\mathbb{E} \alpha_t^2}$ (Minkowski), and the records' part of $\Sigma^2$ is
$\frac{n}{R s} \min(r_2, C)^2 / s$.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle

Vector = npt.NDArray[np.float64]


def constant_errors(oracle: MeanOracle, rounds: int) -> tuple[Vector, float]:
    """Of batches that are cut: the sharp bias in every step, and the sharp variance."""
    return np.full(rounds, oracle.sharp_bias), oracle.sharp_variance


def errors_of_drawn_batches(oracle: MeanOracle, rounds: int, records: int) -> tuple[Vector, float]:
    """The same where each record draws its batch, and sums are divided by the oracle's s.

    Returns:
        A bound on the root mean square bias of each step, shape (rounds,), in gradient units, and one on the variance
        of every step, in squared gradient units.
    """
    size = oracle.batch_size
    left = np.arange(rounds, 0, -1) / rounds
    load = records / (rounds * size)
    deviation = np.sqrt((load - 1.0) ** 2 + load * (1.0 - left) / (left * rounds * size))
    bias: Vector = oracle.sharp_bias + math.sqrt(oracle.clipped_second_moment) * deviation
    variance = oracle.dimension * oracle.noise_variance + load * oracle.clipped_second_moment / size
    return bias, variance
