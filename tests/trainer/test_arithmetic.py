"""Arithmetic that the proofs cannot use is noticed: each of its faults on NumPy's arrays, of a library made worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

from trainer import arithmetic
from trainer.arithmetic import faults_of


@pytest.fixture(autouse=True)
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_SHAPES", ((7, 3, 1), (64, 33, 5)))
    monkeypatch.setattr(arithmetic, "_COUNT", 256)


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
def test_sound_arithmetic_has_no_faults(xp: Any) -> None:
    assert faults_of(xp) == ()


class Worse:
    """NumPy but for some functions and for products of matrices."""

    def __init__(self, product: Callable[..., Any] = np.matmul, **functions: Callable[..., Any]) -> None:
        self._product, self._functions = product, functions

    def __getattr__(self, name: str) -> Any:
        if name == "asarray":
            return lambda array, **given: np.asarray(array, **given).view(_Multiplied).by(self._product)
        if name == "vecdot":
            raise AttributeError
        return self._functions.get(name, getattr(np, name))


class _Multiplied(np.ndarray[Any, Any]):
    product: Callable[..., Any]

    def by(self, product: Callable[..., Any]) -> _Multiplied:
        self.product = product
        return self

    def __array_finalize__(self, source: Any) -> None:
        self.product = getattr(source, "product", np.matmul)

    def __matmul__(self, other: Any) -> Any:
        made: Any = self.product(np.asarray(self), np.asarray(other))
        return np.asarray(made)


def narrow(array: Any) -> Any:
    """Rounded to the 11 binary digits of TF32, where a float32 comes."""
    if array.dtype != np.float32:
        return array
    return ((array.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32(one: Any, other: Any) -> Any:
    return narrow(np.ascontiguousarray(one)) @ narrow(np.ascontiguousarray(other))


def half_sums(one: Any, other: Any) -> Any:
    """Products with all digits, added in steps of float32 with 16 digits."""
    if one.dtype != np.float32:
        return one @ other
    total = np.zeros((one.shape[0], other.shape[1]), dtype=np.float32)
    for index in range(one.shape[1]):
        total = (total + one[:, index : index + 1] * other[index]).astype(np.float32)
        total = (total.view(np.uint32) & np.uint32(0xFFFFFF00)).view(np.float32)
    return total


def looking_around(one: Any, other: Any) -> Any:
    """Rows are scaled by the largest entry of all of them first: another last digit where a row is large."""
    largest = np.nanmax(np.abs(one[np.isfinite(one)])) * 1.1
    return (one / largest) @ other * largest if largest > 1e3 * np.nanmedian(np.abs(one) + 1e-3) else one @ other


def unsteady(one: Any, other: Any) -> Any:
    """The order of additions is another one each time."""
    order = np.random.default_rng().permutation(one.shape[1])
    return one[:, order] @ other[order]


def flushing(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Sums in half of the digits."""
    return np.sum(np.asarray(array).astype(np.float32), axis=axis).astype(array.dtype if dtype is None else dtype)


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Worse(tf32), "Products of matrices lose digits"),
        (Worse(half_sums), "Sums lose digits"),
        (Worse(sum=flushing), "Sums lose digits"),
        (Worse(looking_around), "depends on other rows"),
        (Worse(unsteady), "differ from time to time"),
        (Worse(sqrt=lambda array: np.sqrt(array) * np.asarray(1.0 + 2.0**-22, array.dtype)), "IEEE 754 says"),
        (Worse(round=lambda array: np.floor(array + 0.5)), "Whole numbers"),
        (Worse(isfinite=lambda array: np.ones(array.shape, dtype=bool)), "Whole numbers"),
    ],
    ids=["tf32", "half sums", "short sums", "other rows", "unsteady", "square roots", "rounding", "infinities"],
)
def test_arithmetic_that_the_proofs_cannot_use_is_noticed(library: Any, words: str) -> None:
    assert any(words in fault for fault in faults_of(library)), faults_of(library)


def test_faults_say_in_which_type(monkeypatch: pytest.MonkeyPatch) -> None:
    found = faults_of(Worse(tf32))
    assert found == ("Products of matrices lose digits (TF32, or half precision), in float32.",)
