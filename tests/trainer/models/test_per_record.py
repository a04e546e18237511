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


def test_the_function_is_called_with_a_fixed_number_of_rows_whatever_the_batch() -> None:
    seen: set[int] = set()

    def watched(point: Any, features: Any, labels: Any) -> Any:
        seen.add(features.shape[0])
        return logistic_rows(point, features, labels)

    model = PerRecordModel(3, np.zeros(3), watched, classes=2)
    rng = np.random.default_rng(1)
    for count in (1, 2, 127, 128, 129, 1000):
        block = block_of(model, rng.normal(size=(count, 3)), rng.integers(0, 2, count))
        assert model.gradients(np.zeros(3), block).rows.shape[0] >= count
    assert seen == {128}


@pytest.mark.parametrize(("size", "piece"), [(10, 128), (2**16, 128), (2**18, 32), (2**25, 1)])
def test_a_blocks_gradients_fit_in_bounded_memory(size: int, piece: int) -> None:
    model = PerRecordModel(2, np.zeros(size), logistic_rows)
    assert model.piece_rows == piece
    assert model.block_rows % piece == 0
    assert model.block_rows * size <= max(2**23, size)


def test_it_trains_as_the_same_model_with_matrices_does() -> None:
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(size=(300, 3)) * 3.0, rng.integers(0, 2, 300)
    plan = plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.4, steps=6), size=300)
    dense = PerRecordModel(3, np.zeros(3), logistic_rows, classes=2)
    expected = run(plan, logistic_regression(3, fit_intercept=False), rows, labels, seed=5)
    found = run(plan, dense, rows, labels, seed=5)
    np.testing.assert_allclose(found.parameters["point"], expected.parameters["weights"], rtol=1e-12)


def test_a_run_calls_the_function_with_few_rows_where_there_are_many_parameters() -> None:
    seen: set[int] = set()

    def zeros(point: Any, features: Any, labels: Any) -> Any:
        seen.add(features.shape[0])
        return np.zeros((features.shape[0], point.shape[0]))

    model = PerRecordModel(3, np.zeros(2**18), zeros)
    run(plan_of("dp_sgd", phase_of(Clip(1.0), steps=2), size=300), model, np.ones((300, 3)), np.zeros(300), seed=1)
    assert seen == {model.piece_rows} == {32}


def test_losses_and_predictions_are_there_as_far_as_they_were_given() -> None:
    def losses(point: Any, features: Any, labels: Any) -> Any:
        return np.sum((features - point) ** 2, axis=1)

    model = PerRecordModel(2, np.array([1.0, 2.0]), lambda x, a, y: 2.0 * (x - a), losses)
    block = block_of(model, np.array([[1.0, 0.0], [3.0, 2.0]]), np.zeros(2))
    assert model.losses(model.start, block)[:2].tolist() == [4.0, 4.0]
    assert rows_of(model.gradients(model.start, block), 2).tolist() == [[0.0, 4.0], [-4.0, 0.0]]
    with pytest.raises(Unsupported, match="without its losses"):
        PerRecordModel(2, np.zeros(2), losses).losses(np.zeros(2), block)
    with pytest.raises(Unsupported, match="predicts nothing"):
        model.predict(model.parameters(model.start), np.zeros((1, 2)))
    with pytest.raises(InvalidValue, match="start"):
        PerRecordModel(2, np.zeros((2, 2)), losses)


def test_a_function_whose_places_differ_is_called_with_fewer_rows() -> None:
    """As a matrix product may round its last rows otherwise."""
    asked: set[int] = set()

    def rounds_late_rows_otherwise(point: Any, features: Any, labels: Any) -> Any:
        asked.add(features.shape[0])
        made = features * point
        made[16:] = np.nextafter(made[16:], np.inf)
        return made

    model = PerRecordModel(3, np.ones(3), rounds_late_rows_otherwise)
    rows = np.repeat(np.array([[1.0, 2.0, 3.0]]), 128, axis=0)
    made = rows_of(model.gradients(model.start, block_of(model, rows, np.zeros(128))), 128)
    np.testing.assert_array_equal(made, np.repeat(made[:1], 128, axis=0))
    assert asked == {128, 64, 32, 16}


def test_a_method_of_what_has_no_hash_will_do() -> None:
    @dataclass  # equal by value, hence without a hash
    class Regularised:
        strength: float

        def rows(self, point: Any, features: Any, labels: Any) -> Any:
            return logistic_rows(point, features, labels) + self.strength * point

    model = PerRecordModel(3, np.zeros(3), Regularised(0.5).rows, classes=2)
    block = block_of(model, np.ones((2, 3)), np.array([0, 1]))
    assert model.gradients(np.ones(3), block).rows.shape == (128, 3)
