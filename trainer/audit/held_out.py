"""A canary in the held-out part: an attack on one row by an evaluation's noisy vector.

The attacker chooses the evaluated parameters, as anybody who trains a model may do, and also the canary. The choice
makes the canary add the longest vector that the bound on a row's contribution allows. Each trial draws a new vector
with `trainer.held_out.noisy_sums`, as any run does. The attacker sees the whole vector, because every metric is
computed from it.
"""

from __future__ import annotations

import numpy as np

from accounting.relations import NeighboringRelation
from calibrators.held_out import HeldOutEvaluation
from trainer import models
from trainer.audit.scores import Floats
from trainer.held_out import GRAIN, Layout, layout_of, noise_stddev, noisy_sums, sums_in_grains
from trainer.models import Model, Parameters
from trainer.streams import random_streams

#: The design of an audit that attacks the evaluation, beside the designs for training.
HELD_OUT = "held_out"
#: The layout of a vector whose model is not known: two classes, with probabilities.
TWO_CLASSES = Layout(2, has_probabilities=True)
#: The number of slots of a trial: one for the canary, and an empty one.
_CAPACITY = 2
#: The logit of the predicted class. It is so large that the probability of every other class is 0 in floating point.
_LOGIT = 60.0


class EvaluationAttack:
    """The best test between a canary that is held out and one that is not, on one noisy vector.

    Attributes:
        evaluation: The evaluation of the plan.
        relation: Without the canary there is no row; under ``replace_one`` another row is in its place.
        layout: The layout of the vector.

    Guarantees:
        - the_canary_attains_the_bound: it adds a vector of length C, up to rounding.
        - the_vector_is_that_of_a_run: rows, slots, sums and noise are those of `noisy_sums`.

    >>> attack = EvaluationAttack(HeldOutEvaluation(0.05), NeighboringRelation.ADD_OR_REMOVE_ONE, TWO_CLASSES)
    >>> attack.score(member=True, seed=1) > 0 > attack.score(member=False, seed=1)
    True
    """

    def __init__(self, evaluation: HeldOutEvaluation, relation: NeighboringRelation, layout: Layout) -> None:
        self._evaluation, self._relation = evaluation, relation
        self._model, self._parameters = _model_with(layout)
        self._stddev = noise_stddev(evaluation, layout_of(self._model, self._parameters))
        with_it, without = (self._expected(member) for member in (True, False))
        self._direction, self._middle = with_it - without, (with_it + without) / 2.0

    def score(self, *, member: bool, seed: int | None) -> float:
        """Draw one vector; return ln of its density with the canary over that without.

        The noise is a rounded normal number on a grid of steps below 1e-4 of its standard deviation. So its density is
        a normal one up to a factor within 1e-7 of 1, and the ratio is the best test (Neyman & Pearson).

        Args:
            member: Whether the canary is held out.
            seed: The seed of the slots and the noise; None draws from the operating system.
        """
        features, labels = self._rows(member)
        streams = random_streams(seed)
        seen = noisy_sums(self._evaluation, self._model, self._parameters, features, labels, _CAPACITY, streams)
        return float((seen - self._middle) @ self._direction) / self._stddev**2

    def _expected(self, member: bool) -> Floats:
        """Return the sums without noise, which the attacker knows beforehand, since they hold only the attacker's
        row."""
        features, labels = self._rows(member)
        layout = layout_of(self._model, self._parameters)
        return GRAIN * sums_in_grains(
            layout, self._model, self._parameters, features, labels, _CAPACITY, random_streams(0)
        )

    def _rows(self, member: bool) -> tuple[Floats, Floats]:
        """Return features and labels of the held-out row: a canary is predicted wrongly, the row in its place
        correctly."""
        classes = self._model.num_classes
        if member:
            return np.ones((1, 1)), np.array([1.0 if classes else -1.0])
        if self._relation is NeighboringRelation.REPLACE_ONE:
            return (-np.ones((1, 1)), np.array([classes - 1.0])) if classes else (np.ones((1, 1)), np.ones(1))
        return np.zeros((0, 1)), np.zeros(0)


def _model_with(layout: Layout) -> tuple[Model, Parameters]:
    """Return a model of one feature, whose vector has the layout.

    The model is certain that a feature of 1 has class 0, and a feature of -1 the last class. For numbers, it predicts
    the feature.
    """
    if not layout.num_classes:
        return _built({"kind": "linear_regression"}, np.ones(1))
    logits = np.zeros(layout.num_classes)
    logits[[0, -1]] = _LOGIT, -_LOGIT
    if layout.has_probabilities:
        return _built({"kind": "softmax_regression", "num_classes": layout.num_classes}, logits)
    assert layout.num_classes == 2, "only a model of two classes can predict classes without probabilities"
    return _built({"kind": "q_norm_hinge", "q": 1.5}, logits[-1:])


def _built(options: dict[str, object], weights: Floats) -> tuple[Model, Parameters]:
    model = models.build(1, fit_intercept=False, **options)  # type: ignore[arg-type]
    return model, model.parameters(weights)
