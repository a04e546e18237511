"""Gradients of blocks: norms that are upper bounds whatever the size of the numbers, and sums of what was weighted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import array_api_strict
import numpy as np
import pytest

from tests.trainer.models.blocks import block_of
from trainer.arrays import silent, squared_norms
from trainer.gradients import PIECE_ROWS, DenseGradients, Layer, OuterProducts, _rounded_sums, _rounded_sums_at_once
from trainer.models import Model, MultilayerPerceptron, build, logistic_regression, softmax_regression

MODELS: list[Model] = [
    logistic_regression(784),
    logistic_regression(30, fit_intercept=False),
    softmax_regression(784, 10),
    softmax_regression(30, 2),
    softmax_regression(30, 7),
    build(30, kind="q_norm_hinge"),
    MultilayerPerceptron(784, 10, hidden=(256,)),
    MultilayerPerceptron(30, 3, hidden=(20, 10), activation="tanh"),
]


def labels_for(model: Model, count: int, rng: np.random.Generator) -> np.ndarray:
    labels: np.ndarray = rng.integers(0, model.num_classes, count)
    return labels


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("count", [16, 129, 1348])
@pytest.mark.one_in(12)
def test_records_do_not_see_each_other(count: int, model: Model, dtype: str) -> None:
    """Bit by bit the same gradient in the same place, whatever the other rows are: subnormal, infinite or none."""
    rng = np.random.default_rng(12)
    rows = rng.normal(size=(count, model.num_features))
    labels = labels_for(model, count, rng)
    point = (3.0 * rng.normal(size=model.num_parameters)).astype(dtype)
    with silent():
        whole = model.gradients(point, block_of(model, rows, labels, dtype))
    assert isinstance(whole, OuterProducts)
    for other in (rng.normal(size=(count, model.num_features)), 1e-310, 1e17, np.nan):
        same = rng.random(count) < 0.5
        mixed = np.where(same[:, None], rows, other)
        with silent():
            some = model.gradients(point, block_of(model, mixed, labels, dtype))
            norms = [gradients.norms()[same] for gradients in (some, whole)]
        assert isinstance(some, OuterProducts)
        np.testing.assert_array_equal(*norms)
        for ours, theirs in zip(some.layers, whole.layers, strict=True):
            np.testing.assert_array_equal(ours.deltas[same], theirs.deltas[same])
            np.testing.assert_array_equal(ours.inputs[same], theirs.inputs[same])


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in row), Fraction(0))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [1, 7, 784, 4096, 4097, 50_000])
@pytest.mark.one_in(4)
def test_squared_norms_are_upper_bounds_within_two_to_the_minus_eleven(width: int, dtype: str) -> None:
    rng = np.random.default_rng(14)
    rows = rng.normal(size=(6, width)).astype(dtype)
    rows[0] = 0.1  # every addition rounds to the same side
    rows[1] = 1.0 / 3.0
    rows[2] *= 1e-12 if dtype == "float32" else 1e-140
    rows[3] *= 1e15 if dtype == "float32" else 1e140
    for found, row in zip(squared_norms(np, rows), rows, strict=True):
        assert abs(Fraction(float(found)) / exact_square(row) - 1) <= Fraction(1, 2**11)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norms_of_what_is_too_small_to_be_squared_are_upper_bounds(dtype: str) -> None:
    """A delta whose square vanishes against inputs that are large: the gradient is not."""
    tiny = np.array([[1e-30], [1e-23], [0.0]] if dtype == "float32" else [[1e-200], [1e-170], [0.0]]).astype(dtype)
    inputs = np.full((3, 4), 1e18 if dtype == "float32" else 1e100).astype(dtype)
    for gradients in (
        OuterProducts(np, (Layer(inputs, tiny, has_bias=False),)),
        OuterProducts(np, (Layer(inputs, tiny, has_bias=True), Layer(tiny, inputs, has_bias=True))),
        DenseGradients(np, tiny * inputs),
    ):
        rows = inputs.astype(np.float64) * tiny
        norms = gradients.norms()
        assert np.all(norms >= np.linalg.norm(rows, axis=1) * (1.0 - 1e-3))
        assert np.all(norms > 0.0)


def outer_products(xp: Any, rng: np.random.Generator, count: int) -> tuple[OuterProducts, np.ndarray]:
    shapes = [(3, 4, True), (4, 2, False), (5, 1, True)]
    layers, rows = [], []
    for m, k, has_bias in shapes:
        inputs, deltas = rng.normal(size=(count, m)), rng.normal(size=(count, k))
        layers.append(Layer(xp.asarray(inputs), xp.asarray(deltas), has_bias))
        rows.append(np.einsum("bi,bk->bik", inputs, deltas).reshape(count, -1))
        if has_bias:
            rows.append(deltas)
    return OuterProducts(xp, tuple(layers)), np.concatenate(rows, axis=1)


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("dense", [False, True])
def test_sums_and_norms_are_those_of_the_gradients_row_by_row(xp: Any, dense: bool) -> None:
    rng = np.random.default_rng(15)
    outer, rows = outer_products(xp, rng, 20)
    gradients = DenseGradients(xp, xp.asarray(rows)) if dense else outer
    np.testing.assert_allclose(np.asarray(gradients.norms()), np.linalg.norm(rows, axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradients.dual_norms()), np.abs(rows).max(axis=1), rtol=1e-12)
    weights = rng.normal(size=20)
    np.testing.assert_allclose(summed(xp, gradients, weights), weights @ rows, rtol=1e-11, atol=1e-9)
    kept = gradients.keep(xp.asarray(weights > 0.0))
    np.testing.assert_allclose(summed(xp, kept, np.ones(20)), (weights > 0.0) @ rows, rtol=1e-11, atol=1e-9)


def summed(xp: Any, gradients: Any, weights: np.ndarray, step: float = 2.0**-40) -> np.ndarray:
    total = xp.zeros(gradients.entries().shape[1], dtype=xp.float64)
    gradients.add_to(total, xp.asarray(weights), 1.0 / step)
    found: np.ndarray = np.asarray(total) * step
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pieces_are_rounded_to_whole_steps_and_added_exactly(dtype: str) -> None:
    """A sum of many pieces is that of their roundings, whatever their number; it starts from what is there."""
    rows_in_a_piece = PIECE_ROWS[dtype]
    count = 3 * rows_in_a_piece + 17
    inputs, deltas = np.full((count, 2), 0.75, dtype=dtype), np.ones((count, 1), dtype=dtype)
    gradients = OuterProducts(np, (Layer(inputs, deltas, has_bias=True),))
    total = np.full(3, 5.0)
    gradients.add_to(total, np.ones(count), 2.0**-1)
    sizes = [(piece + 1) * count // 4 - piece * count // 4 for piece in range(4)]
    expected = 5 + sum(round(Fraction(size) * Fraction(3, 4) / 2) for size in sizes)
    assert total.tolist() == [expected, expected, 5 + sum(round(Fraction(size, 2)) for size in sizes)]
    assert max(sizes) <= rows_in_a_piece


def test_norms_are_finite_only_where_every_number_of_the_row_is() -> None:
    values = [1.0, np.nan, np.inf, -np.inf, 3e38]
    for layer in range(2):
        for side in range(2):
            sides = [[np.ones((5, 2), dtype=np.float32) for _ in range(2)] for _ in range(2)]
            sides[layer][side][:, 1] = values
            sides[layer][1 - side][:] = 0.0  # times infinity is no number
            with silent():
                norms = OuterProducts(np, tuple(Layer(a, d, has_bias=False) for a, d in sides)).norms()
            assert np.isfinite(norms).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("order", [2.0, 3.0, 11.0, 1001.0])
@pytest.mark.parametrize("xp", [np, array_api_strict])
def test_norms_of_an_order_are_upper_bounds_of_the_rows(xp: Any, order: float) -> None:
    rng = np.random.default_rng(16)
    outer, rows = outer_products(xp, rng, 20)
    largest = np.abs(rows).max(axis=1)
    expected = largest * np.sum((np.abs(rows) / largest[:, None]) ** order, axis=1) ** (1.0 / order)
    for gradients in (outer, DenseGradients(xp, xp.asarray(rows))):
        found = np.asarray(gradients.norms_of_order(order))
        np.testing.assert_allclose(found, expected, rtol=2.0**-28)
        assert np.all(found >= expected * (1.0 - 1e-14))


def test_norms_of_an_order_do_not_overflow_and_are_finite_only_where_the_row_is() -> None:
    inputs = np.array([[3e37, 1.0], [np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0], [1e-300, 0.0]])
    gradients = OuterProducts(np, (Layer(inputs, np.ones((5, 1)), has_bias=False),))
    with silent():
        found = gradients.norms_of_order(50.0)
    assert np.isfinite(found).tolist() == [True, False, False, True, True]
    assert found[[0, 3, 4]] == pytest.approx([3e37, 0.0, 1e-300], rel=1e-8)


@pytest.mark.parametrize(("sums", "xp"), [(_rounded_sums, np), (_rounded_sums_at_once, array_api_strict)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_piece_is_longer_than_the_grid_allows_for_and_none_is_lost_to_a_large_one(
    sums: Any, xp: Any, dtype: str
) -> None:
    """Each piece rounds to 0 as long as it has no more rows; sums of whole numbers keep all of their digits."""
    most = PIECE_ROWS[dtype]
    weighted = np.full((8 * most, 1), 0.49 / most, dtype=dtype)
    inputs = xp.asarray(np.ones((8 * most, 1), dtype=dtype))
    for found in sums(xp, xp.asarray(weighted), inputs, True):
        assert np.asarray(found).item() == 0.0
    weighted[:] = 0.0
    weighted[0], weighted[-1] = (2.0**24, 1.0)
    for found in sums(xp, xp.asarray(weighted), inputs, True):
        assert np.asarray(found).item() == 2.0**24 + 1.0
