"""Models by their per-record gradients: the function sees a fixed number of rows, and memory is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from calibrators.plan import Clip
from tests.trainer.models.blocks import block_of, rows_of
from tests.trainer.plans import phase_of, plan_of
from trainer.models import PerRecordModel, logistic_regression
from trainer.run import run


def logistic_rows(point: Any, features: Any, labels: Any) -> Any:
    slopes = 1.0 / (1.0 + np.exp(-(features @ point))) - labels
    return slopes[:, None] * features


def test_the_function_is_called_with_as_many_rows_whatever_is_in_the_slots() -> None:
    """How many rows there are shows in no call: slots are read, and slots that are empty are rows of zeros."""
    seen: list[list[int]] = []

    def watched(point: Any, features: Any, labels: Any) -> Any:
        seen[-1].append(features.shape[0])
        return logistic_rows(point, features, labels)

    model = PerRecordModel(3, np.zeros(3), watched, classes=2)
    plan = plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.1, steps=2), size=1000)
    rng = np.random.default_rng(1)
    for count in (0, 1, 127, 128, 1000, 1100):
        seen.append([])
        run(plan, model, rng.normal(size=(count, 3)), rng.integers(0, 2, count), seed=count)
    assert len(seen[0]) >= 2
    assert seen.count(seen[0]) == len(seen)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("size", "rows"), [(10, 2048), (2**16, 128), (2**18, 32), (2**25, 1)])
def test_a_blocks_gradients_fit_in_bounded_memory(size: int, rows: int) -> None:
    model = PerRecordModel(2, np.zeros(size), logistic_rows)
    assert model.block_rows == rows
    assert model.block_rows * size <= max(2**23, size)


def test_it_trains_as_the_same_model_with_matrices_does() -> None:
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(size=(300, 3)) * 3.0, rng.integers(0, 2, 300)
    plan = plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.4, steps=6), size=300)
    dense = PerRecordModel(3, np.zeros(3), logistic_rows, classes=2)
    expected = run(plan, logistic_regression(3, fit_intercept=False), rows, labels, seed=5)
    found = run(plan, dense, rows, labels, seed=5)
    np.testing.assert_allclose(found.parameters["point"], expected.parameters["weights"], rtol=1e-12)


@pytest.mark.thorough
def test_a_run_calls_the_function_with_few_rows_where_there_are_many_parameters() -> None:
    seen: set[int] = set()

    def zeros(point: Any, features: Any, labels: Any) -> Any:
        seen.add(features.shape[0])
        return np.zeros((features.shape[0], point.shape[0]))

    model = PerRecordModel(3, np.zeros(2**18), zeros)
    run(plan_of("dp_sgd", phase_of(Clip(1.0), steps=2), size=300), model, np.ones((300, 3)), np.zeros(300), seed=1)
    # There are 338 slots: the last block has those that are left.
    assert seen == {model.block_rows, 338 % 32} == {32, 18}


def test_losses_and_predictions_are_there_as_far_as_they_were_given() -> None:
    def losses(point: Any, features: Any, labels: Any) -> Any:
        return np.sum((features - point) ** 2, axis=1)

    model = PerRecordModel(2, np.array([1.0, 2.0]), lambda x, a, y: 2.0 * (x - a), losses)
    block = block_of(model, np.array([[1.0, 0.0], [3.0, 2.0]]), np.zeros(2))
    assert model.losses(model.start, block)[:2].tolist() == [4.0, 4.0]
    assert rows_of(model.gradients(model.start, block), 2).tolist() == [[0.0, 4.0], [-4.0, 0.0]]
    with pytest.raises(Unsupported, match="without a loss function"):
        PerRecordModel(2, np.zeros(2), losses).losses(np.zeros(2), block)
    with pytest.raises(Unsupported, match="predicts nothing"):
        model.predict(model.parameters(model.start), np.zeros((1, 2)))
    with pytest.raises(InvalidValue, match="start"):
        PerRecordModel(2, np.zeros((2, 2)), losses)


def test_a_method_of_what_has_no_hash_will_do() -> None:
    @dataclass  # equal by value, hence without a hash
    class Regularised:
        strength: float

        def rows(self, point: Any, features: Any, labels: Any) -> Any:
            return logistic_rows(point, features, labels) + self.strength * point

    model = PerRecordModel(3, np.zeros(3), Regularised(0.5).rows, classes=2)
    block = block_of(model, np.ones((2, 3)), np.array([0, 1]))
    assert model.gradients(np.ones(3), block).rows.shape == (2, 3)
