"""A perceptron's synthetic rows: the teacher is the best, and its size is what is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.errors import InvalidValue
from trainer.losses import Softmax
from trainer.simulation.taught import TaughtRows, taught_rows


def rows(dimension: int = 12 * 8 + 8 + 9 * 3, radius: float | None = None) -> TaughtRows:
    return taught_rows(dimension, 3, (8,), "tanh", radius, 2.0, np.random.default_rng(1))


def test_labels_have_the_teachers_probabilities() -> None:
    """So that no function has less risk: of every class as many as the teacher says, in every tenth of the rows."""
    law = rows()
    features, labels = law.draw(60_000, np.random.default_rng(2))
    assert features.shape == (60_000, 12)
    assert np.abs(features).max() <= 1.0
    said = Softmax(3).probabilities(law.model.decision_function(law.teacher, features))
    assert said.std(axis=0).min() > 0.1, "rows differ"
    for label in range(3):
        order = np.argsort(said[:, label])
        for tenth in np.split(order, 10):
            share = said[tenth, label].mean()
            assert abs(np.mean(labels[tenth] == label) - share) < 5.0 * (share * (1.0 - share) / len(tenth)) ** 0.5


def test_the_teacher_is_the_best_and_knowing_nothing_is_worse() -> None:
    law = rows()
    fresh = law.draw(20_000, np.random.default_rng(3))
    assert law.excess(law.teacher, *fresh) == 0.0
    start = law.before_training(*fresh)
    half = {name: 0.5 * values for name, values in law.teacher.items()}
    assert 0.0 < law.excess(half, *fresh) < start
    nothing = {name: 0.0 * values for name, values in law.teacher.items()}
    assert law.excess(nothing, *fresh) == pytest.approx(start)


def test_the_teacher_lies_within_the_radius() -> None:
    def norm(law: TaughtRows) -> float:
        return float(np.sqrt(sum(np.sum(values**2) for values in law.teacher.values())))

    assert norm(rows()) > 1.5
    assert norm(rows(radius=1.5)) == pytest.approx(1.5)


def test_parameters_that_make_no_perceptron_are_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidValue, match="35 parameters and 8 more for each feature") as refused:
        rows(dimension=100)
    assert refused.value.pointer == ("dimension",)
    assert "99 or 107 are possible" in refused.value.detail
    assert rows(dimension=99).model.num_parameters == 99
    with pytest.raises(InvalidValue, match="43 or 51 are possible"):
        rows(dimension=12)
