"""This module takes steps of SGD without privacy, in ordinary NumPy or CuPy code. A private step has to do at least
this work.

Batches have exactly the given size and are drawn with replacement by the library's own generator. A step takes the mean
gradient, without norms and without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from benchmarks.gpu import device
from benchmarks.trainer.pace import Pace
from benchmarks.trainer.work import CLASSES, FEATURES, HIDDEN, LINEAR_FEATURES, STEP_SIZE, Features, Labels, Task

Parameters = list[Any]


def prepare(_side: str, task: Task) -> Callable[[Features, Labels, Pace], None]:
    """Return a function that trains on data until it is told to stop."""
    library = device.cupy()

    def train(features: Features, labels: Labels, pace: Pace) -> None:
        pace.settle = library.cuda.Device().synchronize
        inputs, classes = library.asarray(features), library.asarray(labels)
        take_step = linear_step if task.model == "linear" else step
        parameters = initial(library, task.model)
        pace()
        while not pace.over:
            rows = library.random.randint(0, inputs.shape[0], task.batch_size)
            take_step(library, parameters, inputs[rows], classes[rows])
            pace()

    return train


def initial(xp: Any, model: str) -> Parameters:
    """Return the first weights and biases of each layer: zeros for one layer, small random numbers for two layers."""
    if model == "linear":
        return [xp.zeros((LINEAR_FEATURES, 1), dtype=xp.float32), xp.zeros(1, dtype=xp.float32)]
    if model == "softmax":
        return [xp.zeros((FEATURES, CLASSES), dtype=xp.float32), xp.zeros(CLASSES, dtype=xp.float32)]
    sizes = (FEATURES, HIDDEN, CLASSES)
    parameters: Parameters = []
    for inputs, outputs in pairwise(sizes):
        parameters.append((xp.random.standard_normal((inputs, outputs)) / inputs**0.5).astype(xp.float32))
        parameters.append(xp.zeros(outputs, dtype=xp.float32))
    return parameters


def linear_step(xp: Any, parameters: Parameters, inputs: Any, labels: Any) -> None:
    """Change the parameters in place, by the mean gradient of half the squared error; labels are clipped to [-1, 1]."""
    weights, bias = parameters
    deltas = inputs @ weights + bias - xp.clip(labels, -1, 1).astype(xp.float32)[:, None]
    deltas /= labels.shape[0]
    weights -= STEP_SIZE * (inputs.T @ deltas)
    bias -= STEP_SIZE * deltas.sum(axis=0)


def step(xp: Any, parameters: Parameters, inputs: Any, labels: Any) -> None:
    """Change the parameters in place, by the mean gradient of softmax cross-entropy over the batch."""
    activations = [inputs]
    for layer in range(0, len(parameters) - 2, 2):
        activations.append(xp.maximum(activations[-1] @ parameters[layer] + parameters[layer + 1], 0.0))
    logits = activations[-1] @ parameters[-2] + parameters[-1]
    exponentials = xp.exp(logits - logits.max(axis=1, keepdims=True))
    deltas = exponentials / exponentials.sum(axis=1, keepdims=True)
    deltas[xp.arange(labels.shape[0]), labels] -= 1.0
    deltas /= labels.shape[0]
    for layer in range(len(parameters) - 2, -1, -2):
        activation = activations[layer // 2]
        before = (deltas @ parameters[layer].T) * (activation > 0.0) if layer else None
        parameters[layer] -= STEP_SIZE * (activation.T @ deltas)
        parameters[layer + 1] -= STEP_SIZE * deltas.sum(axis=0)
        deltas = before
