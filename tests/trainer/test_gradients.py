"""Gradients of blocks: norms that are upper bounds whatever the size of the numbers, and sums of what was weighted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import array_api_strict
import numpy as np
import pytest

from tests.trainer.models.blocks import block_of
from trainer.arrays import silent, squared_norms
from trainer.gradients import DenseGradients, Layer, OuterProducts, by_pieces
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


PIECES = [16, 128, 288, 1088]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("piece", PIECES)
def test_records_do_not_see_each_other(piece: int, model: Model, dtype: str) -> None:
    """Bit by bit the same gradient, whatever the other rows are and wherever the row stands.

    Large parameters make a difference in the last bit of a logit a large one in the gradient.
    """
    rng = np.random.default_rng(12)
    rows = rng.normal(size=(700, model.num_features))
    labels = labels_for(model, 700, rng)
    point = (3.0 * rng.normal(size=model.num_parameters)).astype(dtype)
    with silent():
        whole = model.gradients(point, block_of(model, rows, labels, dtype, piece))
    assert isinstance(whole, OuterProducts)
    norms = whole.norms()
    for count in (1, 2, 5, 64, 127, 128, 129, 300, 699):
        chosen = np.sort(rng.choice(700, count, replace=False))
        with silent():
            some = model.gradients(point, block_of(model, rows[chosen], labels[chosen], dtype, piece))
        assert isinstance(some, OuterProducts)
        np.testing.assert_array_equal(some.norms()[:count], norms[chosen])
        for ours, theirs in zip(some.layers, whole.layers, strict=True):
            np.testing.assert_array_equal(ours.deltas[:count], theirs.deltas[chosen])
            np.testing.assert_array_equal(ours.inputs[:count], theirs.inputs[chosen])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 5), (784, 1), (784, 10), (784, 256), (10, 256), (2000, 3)])
def test_products_by_pieces_round_each_row_alike_wherever_it_stands(
    inputs: int, outputs: int, piece: int, dtype: str
) -> None:
    """Which a plain product does not: of 129 rows with 784 inputs it rounds otherwise than of 700."""
    rng = np.random.default_rng(13)
    matrix = rng.normal(size=(inputs, outputs)).astype(dtype)
    rows = rng.normal(size=(2 * piece, inputs)).astype(dtype)
    whole = by_pieces(np, rows, matrix, piece)
    for _ in range(5):
        order = rng.permutation(len(rows))
        np.testing.assert_array_equal(by_pieces(np, rows[order], matrix, piece), whole[order])
        mixed = np.where(rng.random((len(rows), 1)) < 0.5, rows, np.roll(rows, 1, axis=0))
        same = np.all(mixed == rows, axis=1)
        np.testing.assert_array_equal(by_pieces(np, mixed, matrix, piece)[same], whole[same])
    tolerance = 1e-3 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(whole, rows.astype(np.float64) @ matrix.astype(np.float64), atol=tolerance * inputs)


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in row), Fraction(0))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [1, 7, 784, 4096, 4097, 50_000])
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
@pytest.mark.parametrize("wide", [False, True])
def test_sums_and_norms_are_those_of_the_gradients_row_by_row(xp: Any, dense: bool, wide: bool) -> None:
    rng = np.random.default_rng(15)
    outer, rows = outer_products(xp, rng, 20)
    gradients = DenseGradients(xp, xp.asarray(rows)) if dense else outer
    np.testing.assert_allclose(np.asarray(gradients.norms()), np.linalg.norm(rows, axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradients.dual_norms()), np.abs(rows).max(axis=1), rtol=1e-12)
    weights = rng.normal(size=20)
    for parts, chosen in (((), slice(0, 20)), ([slice(2, 5), slice(9, 17)], [*range(2, 5), *range(9, 17)])):
        total = gradients.weighted_sum(xp.asarray(weights), parts, wide=wide)
        np.testing.assert_allclose(np.asarray(total), weights[chosen] @ rows[chosen], rtol=1e-11, atol=1e-12)
    kept = gradients.keep(xp.asarray(weights > 0.0))
    total = kept.weighted_sum(xp.ones(20, dtype=xp.float64))
    np.testing.assert_allclose(np.asarray(total), (weights > 0.0) @ rows, rtol=1e-11, atol=1e-12)


def test_wide_sums_are_in_float64() -> None:
    rows = np.full((300, 2), 1.0 / 3.0, dtype=np.float32)
    gradients = DenseGradients(np, rows)
    narrow, wide = (gradients.weighted_sum(np.ones(300), wide=wide) for wide in (False, True))
    assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
    assert abs(wide[0] - 300.0 * float(rows[0, 0])) < 1e-12 < abs(float(narrow[0]) - 300.0 * float(rows[0, 0]))


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
