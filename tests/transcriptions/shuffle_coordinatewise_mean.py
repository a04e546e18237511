"""ShuffleMeanOracle2 (Algorithm 13) of Lowy & Razaviyayn 2023, coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tests.transcriptions.shuffle_vector_mean import p_1d, rounded_up

Vector = npt.NDArray[np.float64]


def shuffle_mean_oracle_2(
    groups: Sequence[Sequence[Vector]],
    uniforms: Sequence[Vector],
    noise_ones: Sequence[Sequence[int]],
    *,
    tau: float,
    kept: float,
    g: int,
    bits: int,
) -> Vector:
    """The median of the groups' means; coordinates are clamped to [-kept, kept], a margin within [-tau, tau]."""
    nu = np.zeros(groups[0][0].size)
    for j in range(nu.size):
        means = []
        for group, drawn, ones in zip(groups, uniforms, noise_ones, strict=True):
            shifted = [min(max(float(x[j]), -kept), kept) + tau for x in group]
            up = rounded_up(shifted, drawn[:, j], g / (2.0 * tau))
            total = p_1d(shifted, tau=2.0 * tau, g=g, b=bits, p=0.5, up=up, noise_ones=int(ones[j]))
            means.append(total / len(group) - tau)
        nu[j] = sorted(means)[(len(means) + 1) // 2 - 1]
    return nu
