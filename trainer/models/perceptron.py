"""Multilayer perceptrons have dense layers with an activation between them, and the cross-entropy of the softmax as
loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, one_of
from accounting.numbers import read_integer
from trainer.arrays import TINY, Array, Namespace, cleared, dtype_name, flushed, silent
from trainer.gradients import Layer, OuterProducts
from trainer.keystream import Keystream
from trainer.losses import Loss, Softmax, Weighted
from trainer.models.model import MAX_FEATURES, Model, Parameters, public_rows
from trainer.records import Block

ACTIVATIONS = ("relu", "tanh")
MAX_HIDDEN_LAYERS = 4
MAX_WIDTH = 4096


@dataclass(frozen=True)
class MultilayerPerceptron(Model):
    """A multilayer perceptron. Its parameters are each layer's matrix, row by row, followed by the layer's bias.

    Attributes:
        inputs: The number p of inputs.
        classes: The number of classes, which is the number of logits of the last layer.
        hidden: Widths of the hidden layers.
        activation: "relu" or "tanh".
        class_weights: Public weights of the classes; empty if all weigh the same.

    >>> MultilayerPerceptron(784, 10, hidden=(256,)).num_parameters
    203530
    """

    kind: ClassVar[str] = "mlp"
    fit_intercept: ClassVar[bool] = True
    inputs: int
    classes: int
    hidden: tuple[int, ...] = (256,)
    activation: str = "relu"
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", read_integer("num_features", self.inputs, 1, MAX_FEATURES))
        object.__setattr__(self, "classes", Softmax(self.classes).num_classes)
        hidden = tuple(read_integer("hidden", width, 1, MAX_WIDTH) for width in self.hidden)
        if not 1 <= len(hidden) <= MAX_HIDDEN_LAYERS:
            raise InvalidValue(f"hidden must be a list of 1 to {MAX_HIDDEN_LAYERS} widths", pointer=("hidden",))
        object.__setattr__(self, "hidden", hidden)
        if self.activation not in ACTIVATIONS:
            raise InvalidValue(f"activation must be {one_of(ACTIVATIONS)}", pointer=("activation",))
        _ = self.loss  # refuses invalid weights

    @property
    def loss(self) -> Loss:
        """The cross-entropy, weighted by classes if weights are given."""
        loss = Softmax(self.classes)
        return Weighted(loss, self.class_weights) if self.class_weights else loss

    @property
    def num_features(self) -> int:
        return self.inputs

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shapes of the layers' matrices, inputs first."""
        widths = (self.inputs, *self.hidden, self.classes)
        return tuple(pairwise(widths))

    @property
    def num_parameters(self) -> int:
        return sum((rows + 1) * columns for rows, columns in self.shapes)

    def initial(self, stream: Keystream) -> npt.NDArray[np.float64]:
        """Return normal weights of variance 2 / inputs before a relu and 1 / inputs elsewhere, and biases of zero."""
        generator = stream.generator()
        parts = []
        for index, (rows, columns) in enumerate(self.shapes):
            gain = 2.0 if self.activation == "relu" and index < len(self.hidden) else 1.0
            parts += [math.sqrt(gain / rows) * generator.standard_normal(rows * columns), np.zeros(columns)]
        return np.concatenate(parts)

    def gradients(self, point: Array, block: Block) -> OuterProducts:
        xp, matrices = block.xp, self._matrices(block.xp, point)
        inputs = self._forward(matrices, block)
        deltas = _kept(xp, self.loss.residuals(xp, inputs.pop(), block.labels))
        layers: list[Layer] = []
        for index in reversed(range(len(matrices))):
            squares = block.squares if index == 0 else None
            layers.insert(0, Layer(inputs[index], deltas, has_bias=True, input_squares=squares))
            if index:
                deltas = deltas @ matrices[index][0].T
                deltas = self._behind(xp, inputs[index], deltas)
        return OuterProducts(xp, tuple(layers))

    def losses(self, point: Array, block: Block) -> Array:
        logits = self._forward(self._matrices(block.xp, point), block)[-1]
        return self.loss.values(block.xp, logits, block.labels)

    def record_weights(self, block: Block) -> Array | None:
        loss = self.loss
        return loss.of_records(block.xp, block.labels) if isinstance(loss, Weighted) else None

    def _matrices(self, xp: Namespace, point: Array) -> list[tuple[Array, Array]]:
        """Return each layer's matrix and bias."""
        found, start = [], 0
        for rows, columns in self.shapes:
            split, stop = start + rows * columns, start + (rows + 1) * columns
            found.append((xp.reshape(point[start:split], (rows, columns)), point[split:stop]))
            start = stop
        return found

    def _forward(self, matrices: list[tuple[Array, Array]], block: Block) -> list[Array]:
        """Return each layer's inputs, and the logits."""
        xp, values = block.xp, [block.features]
        for index, (matrix, bias) in enumerate(matrices):
            outputs = values[-1] @ matrix
            outputs += bias
            values.append(self._kept_activations(xp, outputs) if index < len(self.hidden) else outputs)
        return values

    def _kept_activations(self, xp: Namespace, outputs: Array) -> Array:
        """Return the activations that the next layer multiplies, with zeros for numbers that would make products
        subnormal."""
        if self.activation == "tanh":
            return _kept(xp, xp.tanh(outputs))
        return cleared(xp, outputs, outputs < TINY[dtype_name(outputs)])  # NaN is kept

    def _activated(self, xp: Namespace, outputs: Array) -> Array:
        if self.activation == "tanh":
            return xp.tanh(outputs)
        return xp.maximum(outputs, xp.zeros((), dtype=outputs.dtype))

    def _behind(self, xp: Namespace, activated: Array, deltas: Array) -> Array:
        """Return the deltas times the activation's derivative, which follows from the activation; tiny numbers become
        zero as in `_kept`."""
        if self.activation == "tanh":
            return _kept(xp, deltas * (1.0 - activated * activated))
        return cleared(xp, deltas, (xp.abs(deltas) < TINY[dtype_name(deltas)]) | (activated <= 0.0))

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the arrays "weights_1", "bias_1" and so on, from the first layer to the last."""
        named: dict[str, npt.NDArray[np.float64]] = {}
        for number, (matrix, bias) in enumerate(self._matrices(np, point), start=1):
            named |= {f"weights_{number}": np.array(matrix), f"bias_{number}": np.array(bias)}
        return named

    def decision_function(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the logits of public rows: shape (n, p) to (n, classes). A row with a non-finite feature is read as
        zeros.

        Raises:
            InvalidValue: If the features are not of shape (n, p).
        """
        rows = public_rows(features, self.inputs)
        with silent():
            for number in range(1, len(self.shapes) + 1):
                rows = rows @ parameters[f"weights_{number}"] + parameters[f"bias_{number}"]
                if number <= len(self.hidden):
                    rows = self._activated(np, rows)
        return rows

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        return np.asarray(np.argmax(self.decision_function(parameters, features), axis=1))

    def probabilities(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        with silent():
            return Softmax(self.classes).probabilities(self.decision_function(parameters, features))


def _kept(xp: Namespace, factors: Array) -> Array:
    """Return the factors of the next product, with zeros for numbers that would make the product subnormal."""
    return flushed(xp, factors, TINY[dtype_name(factors)])
