"""This module draws synthetic rows for a perceptron. Another perceptron of the same shape, the teacher, draws their
labels.

Features are uniform in [-1, 1]. Labels have the teacher's probabilities, so no function of the features has less risk
than these probabilities. Declared bounds on gradients are not used: the gradients of a perceptron have no bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.models import MultilayerPerceptron, Parameters
from trainer.simulation.populations import FloatArray, LabelledRows, drawn_labels

#: The standard deviation of a teacher's logits, and the number of rows on which it is measured.
_LOGIT, _MEASURED_ON = 2.0, 1000


@dataclass(frozen=True)
class TaughtRows:
    """Rows for a perceptron, labelled by another perceptron of the same shape.

    Attributes:
        model: The trained model.
        teacher: The model that gives the labels their probabilities.
        unit: The unit of `excess`, in words.
    """

    model: MultilayerPerceptron
    teacher: Parameters
    unit: ClassVar[str] = LabelledRows.unit

    def draw(self, records: int, random: np.random.Generator) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """Draw features of shape (records, p) in [-1, 1], and classes of shape (records,)."""
        rows = 2.0 * random.random((records, self.model.num_features)) - 1.0
        return rows, drawn_labels(self.model.loss, self.model.decision_function(self.teacher, rows), random)

    def excess(self, parameters: Parameters, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the mean loss of fresh rows, less the teacher's mean loss."""
        logits = self.model.decision_function(parameters, features)
        return self._mean_loss(logits, labels) - self._of_teacher(features, labels)

    def before_training(self, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the excess of equal probabilities, since the starting point is drawn anew for each run."""
        logits = np.zeros((len(features), self.model.num_classes))
        return self._mean_loss(logits, labels) - self._of_teacher(features, labels)

    def _of_teacher(self, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        return self._mean_loss(self.model.decision_function(self.teacher, features), labels)

    def _mean_loss(self, logits: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        return float(np.mean(self.model.loss.values(np, logits, labels)))


def taught_rows(
    dimension: int,
    classes: int,
    hidden: Sequence[int],
    activation: str,
    radius: float | None,
    norm_order: float,
    random: np.random.Generator,
) -> TaughtRows:
    """Return the law of rows for a perceptron that has this many parameters.

    Args:
        dimension: Number of parameters.
        classes, hidden, activation: The perceptron's classes, width and activation.
        radius: The teacher's parameters have no larger norm; None means no bound.
        norm_order: The order p of that norm.
        random: The generator that draws the teacher.

    Raises:
        InvalidValue: If no number of features has this many parameters, or if the width or the activation does not
            exist.
    """
    least = MultilayerPerceptron(1, classes, tuple(hidden), activation)
    features, rest = divmod(dimension - least.num_parameters + hidden[0], hidden[0])
    if rest or features < 1:
        nearest = least.num_parameters + hidden[0] * max(0, features - 1)
        raise InvalidValue(
            f"this perceptron has {least.num_parameters - hidden[0]} parameters and {hidden[0]} more for each "
            f"feature, so it cannot have {dimension}: {nearest} or {nearest + hidden[0]} are possible",
            pointer=("dimension",),
        )
    model = MultilayerPerceptron(features, classes, tuple(hidden), activation)
    point = np.concatenate(
        [
            np.concatenate([random.standard_normal(rows * columns) * math.sqrt(2.0 / rows), np.zeros(columns)])
            for rows, columns in model.shapes
        ]
    )
    rows, columns = model.shapes[-1]
    logits = model.decision_function(model.parameters(point), 2.0 * random.random((_MEASURED_ON, features)) - 1.0)
    point[-(rows + 1) * columns :] *= _LOGIT / float(np.std(logits))
    norm = float(np.sum(np.abs(point) ** norm_order) ** (1.0 / norm_order))
    point *= 1.0 if radius is None else min(1.0, radius / norm)
    return TaughtRows(model, model.parameters(point))
