"""Losses and per-record gradients, one record and one class at a time, from the losses' definitions.

``x`` is the flat point: a linear model's matrix row by row, so that with an intercept ``features`` end with a 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def logistic_gradient(x: Vector, features: Vector, label: int) -> Vector:
    """Gradient of log(1 + e^z) - y z, with z = features . x."""
    z = float(features @ x)
    return (1.0 / (1.0 + math.exp(-z)) - label) * features


def softmax_gradient(x: Vector, features: Vector, label: int, classes: int) -> Vector:
    """Gradient of log sum_k e^{z_k} - z_y by the (m, K) matrix x."""
    z = features @ x.reshape(-1, classes)
    total = sum(math.exp(value) for value in z)
    columns = [(math.exp(z[k]) / total - (k == label)) * features for k in range(classes)]
    return np.stack(columns, axis=1).reshape(-1)


def regression_gradient(slope: Callable[[float], float], x: Vector, features: Vector, label: float) -> Vector:
    """Gradient of a loss of the error z - y, whose derivative is ``slope``."""
    return slope(float(features @ x) - label) * features


def huber_slope(error: float, t: float) -> float:
    return error if abs(error) <= t else math.copysign(t, error)


def quantile_slope(error: float, quantile: float) -> float:
    return 0.0 if error == 0.0 else (1.0 - quantile if error > 0.0 else -quantile)


def q_norm_slope(error: float, q: float) -> float:
    return 0.0 if error == 0.0 else math.copysign(q * abs(error) ** (q - 1.0), error)


def q_norm_hinge_gradient(x: Vector, features: Vector, label: int, q: float) -> Vector:
    """Gradient of max(0, 1 - y z)^q with y = -1 for class 0 and 1 for class 1."""
    y = 1.0 if label == 1 else -1.0
    shortfall = 1.0 - y * float(features @ x)
    return np.zeros_like(features) if shortfall <= 0.0 else -q * shortfall ** (q - 1.0) * y * features


def perceptron_gradient(
    x: Vector, features: Vector, label: int, widths: Sequence[int], activation: str = "relu"
) -> Vector:
    """Gradient of the cross-entropy, by the chain rule; widths from the inputs to the classes."""
    matrices, biases, at = [], [], 0
    for rows, columns in pairwise(widths):
        matrices.append(x[at : at + rows * columns].reshape(rows, columns))
        biases.append(x[at + rows * columns : at + (rows + 1) * columns])
        at += (rows + 1) * columns
    layers = [features]
    for number, (W, b) in enumerate(zip(matrices, biases, strict=True)):
        z = layers[-1] @ W + b
        if number < len(matrices) - 1:
            z = np.array([max(v, 0.0) if activation == "relu" else math.tanh(v) for v in z])
        layers.append(z)
    total = sum(math.exp(v) for v in layers[-1])
    delta = np.array([math.exp(v) / total - (k == label) for k, v in enumerate(layers[-1])])
    parts: list[Vector] = []
    for number in reversed(range(len(matrices))):
        parts = [np.outer(layers[number], delta).reshape(-1), delta, *parts]
        h = layers[number]
        slope = (h > 0.0).astype(float) if activation == "relu" else 1.0 - h * h
        delta = (matrices[number] @ delta) * slope
    return np.concatenate(parts)
