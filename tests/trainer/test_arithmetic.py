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
        if name == "asarray" and name not in self._functions:
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


def flushing_columns(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    return flushing(array, axis, dtype) if axis == 0 else np.sum(array, axis=axis, dtype=dtype)


def short_accumulator(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """A sum in a wider type, whose terms were made shorter first."""
    terms = np.asarray(array)
    return np.sum(terms if dtype is None else terms.astype(np.float16), axis=axis, dtype=dtype)


def unsteady_sums(array: Any, axis: int | None = None, dtype: Any = None) -> Any:
    terms = np.asarray(array)
    if axis == 0:
        terms = terms[np.random.default_rng().permutation(terms.shape[0])]
    return np.sum(terms, axis=axis, dtype=dtype)


def spreading(one: Any, other: Any) -> Any:
    """What is no number reaches the rows beside it."""
    made = one @ other
    return made + 0.0 * np.sum(one[np.isnan(one)])


def cut_short(array: Any, dtype: Any) -> Any:
    """float64 becomes float32 by leaving digits out."""
    numbers = np.asarray(array)
    if numbers.dtype == np.float64 and dtype == np.float32:
        numbers = (numbers.view(np.uint64) & np.uint64(0xFFFFFFFFE0000000)).view(np.float64)
    return numbers.astype(dtype)


class _OffPowers(np.ndarray[Any, Any]):
    def __pow__(self, order: Any) -> Any:
        return np.asarray(self) ** order * (1.0 + 2.0**-32)


class _KeptZeros(np.ndarray[Any, Any]):
    def __iadd__(self, other: Any) -> Any:
        """Nothing is added where that seems to change nothing."""
        return self if np.all(np.asarray(other) == 0.0) else super().__iadd__(other)


def viewed_as(kind: type[np.ndarray[Any, Any]]) -> Worse:
    return Worse(asarray=lambda array, **given: np.asarray(array, **given).view(kind))


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Worse(sum=flushing_columns), "Sums lose digits"),
        (Worse(sum=short_accumulator), "Sums lose digits"),
        (Worse(sum=unsteady_sums), "differ from time to time"),
        (Worse(spreading), "depends on other rows"),
        (Worse(astype=cut_short), "IEEE 754 says"),
        (viewed_as(_OffPowers), "Powers are too far"),
        (viewed_as(_KeptZeros), "Whole numbers"),
        (Worse(abs=lambda array: np.nan_to_num(np.abs(array), posinf=np.inf)), "Whole numbers"),
    ],
    ids=["columns", "accumulator", "unsteady sums", "spreading", "cut short", "powers", "zeros", "no numbers"],
)
def test_each_of_these_alone_is_noticed(library: Any, words: str) -> None:
    """One fault, and no other: nothing else would have told."""
    found = faults_of(library)
    assert found
    assert all(words in fault for fault in found), found


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
