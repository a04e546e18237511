"""Per-record gradients, one record and one class at a time, from the losses' definitions."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def logistic_gradient(
    x: npt.NDArray[np.float64], features: npt.NDArray[np.float64], label: int
) -> npt.NDArray[np.float64]:
    """Gradient of log(1 + e^z) - y z by the (p, 1) matrix x, with z = features . x."""
    z = float(features @ x[:, 0])
    return ((1.0 / (1.0 + math.exp(-z)) - label) * features)[:, None]


def softmax_gradient(
    x: npt.NDArray[np.float64], features: npt.NDArray[np.float64], label: int
) -> npt.NDArray[np.float64]:
    """Gradient of log sum_k e^{z_k} - z_y by the (p, K) matrix x."""
    z = features @ x
    total = sum(math.exp(value) for value in z)
    columns = [(math.exp(z[k]) / total - (k == label)) * features for k in range(x.shape[1])]
    return np.stack(columns, axis=1)
