"""This module has the gradients of a block of records: their norms, and their weighted sums in whole steps of a
grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from trainer.arrays import TINY, Array, Namespace, as_float64, cleared, dtype_name, flushed, on_host, squared_norms
from trainer.records import Block

#: By dtype, the number of rows that one matrix product sums before rounding to the grid; `trainer.grid` says why it is
#: small.
PIECE_ROWS = {"float64": 2048, "float32": 320}
#: The same number where one call sums all pieces of a block. It is no larger, and it is a power of two, like the number
#: of rows of a block.
_EVEN_PIECE_ROWS = {"float64": 2048, "float32": 256}
#: The most numbers that such a call computes.
_LARGEST_CALL = 2**26


class Gradients(Protocol):
    """The gradients g_i of B records by all d parameters."""

    def norms(self) -> Array:
        """Return positive upper bounds of |g_i|_2, within 2^-10 of it unless it is tiny: shape (B,), float64.

        A bound is not finite if a number in the row is not.
        """
        ...

    def dual_norms(self) -> Array:
        """Return upper bounds of |g_i|_inf, the largest entry in absolute value: shape (B,), float64."""
        ...

    def norms_of_order(self, order: float) -> Array:
        """Return upper bounds of |g_i|_q for q = ``order`` in [1, infinity), within 2^-28 of it: shape (B,), float64.

        A bound is not finite if a number in the row is not, and 0 if all numbers are 0.
        """
        ...

    def entries(self) -> Array:
        """Return the gradients themselves: shape (B, d), float64. For algorithms that bound each coordinate alone."""
        ...

    def keep(self, rows: Array) -> Gradients:
        """Return the same with zeros for the records where ``rows``, booleans of shape (B,), is false."""
        ...

    def parts(self) -> tuple[Array, ...]:
        """Return arrays with a row for each record. With the records' features, the gradients can be computed again
        from them."""
        ...

    def of_parts(self, block: Block, parts: tuple[Array, ...]) -> Gradients:
        """Return the gradients of a block's records from their rows of `parts`: bit by bit the same as before."""
        ...

    def add_to(self, total: Array, weights: Array, steps_per_unit: float) -> None:
        """Add to ``total`` the sum of weights_i g_i, rounded to whole steps of a grid piece by piece.

        Args:
            total: shape (d,), float64: whole numbers.
            weights: shape (B,), float64: factors that make each contribution no longer than 1.
            steps_per_unit: 1 / gamma, a power of two.
        """
        ...


@dataclass(frozen=True)
class Layer:
    """A dense layer's part in the gradients. For record i it is outer(inputs_i, deltas_i), and deltas_i for the bias.

    Attributes:
        inputs: The inputs of the layer, shape (B, m).
        deltas: shape (B, K), the derivative of each record's loss by the layer's outputs.
        has_bias: Whether the layer has a bias.
        input_squares: shape (B,), float64: upper bounds of |inputs_i|^2 if the inputs are records' features, which are
            finite; otherwise None.
    """

    inputs: Array
    deltas: Array
    has_bias: bool
    input_squares: Array | None = None

    @property
    def are_features(self) -> bool:
        return self.input_squares is not None


@dataclass(frozen=True)
class OuterProducts:
    """Gradients of dense layers. The full gradient of a record is never formed.

    With a bias the input is x~ = (x, 1), so that the gradient is x~ delta^T of norm |x~| |delta|. The parameters are
    the layers' matrices in order, row by row, each followed by its bias.
    """

    xp: Namespace
    layers: tuple[Layer, ...]

    def norms(self) -> Array:
        lengths = [self._length(layer) for layer in self.layers]
        if len(lengths) == 1:
            return lengths[0]
        largest = lengths[0]
        for length in lengths[1:]:
            largest = self.xp.maximum(largest, length)
        return largest * self.xp.sqrt(
            sum(((length / largest) ** 2 for length in lengths[1:]), (lengths[0] / largest) ** 2)
        )

    def _length(self, layer: Layer) -> Array:
        squares = squared_norms(self.xp, layer.inputs) if layer.input_squares is None else layer.input_squares
        if layer.has_bias:
            squares = squares + 1.0
        return self.xp.sqrt(squares) * self.xp.sqrt(squared_norms(self.xp, layer.deltas))

    def dual_norms(self) -> Array:
        xp = self.xp
        largest = None
        for layer in self.layers:
            inputs = as_float64(xp, xp.max(xp.abs(layer.inputs), axis=1))
            if layer.has_bias:
                inputs = xp.maximum(inputs, xp.ones_like(inputs))
            entries = inputs * as_float64(xp, xp.max(xp.abs(layer.deltas), axis=1))
            largest = entries if largest is None else xp.maximum(largest, entries)
        return largest

    def norms_of_order(self, order: float) -> Array:
        """Return norms as products: in every l_q, the norm of an outer product is the product of the norms."""
        xp = self.xp
        lengths = [
            _norms_of_order(xp, layer.inputs, order, constant=layer.has_bias) * _norms_of_order(xp, layer.deltas, order)
            for layer in self.layers
        ]
        return lengths[0] if len(lengths) == 1 else _norms_of_order(xp, xp.stack(lengths, axis=1), order)

    def entries(self) -> Array:
        xp, pieces = self.xp, []
        for layer in self.layers:
            inputs, deltas = as_float64(xp, layer.inputs), as_float64(xp, layer.deltas)
            products = inputs[:, :, None] * deltas[:, None, :]
            pieces.append(xp.reshape(products, (inputs.shape[0], -1)))
            if layer.has_bias:
                pieces.append(deltas)
        return pieces[0] if len(pieces) == 1 else xp.concat(pieces, axis=1)

    def keep(self, rows: Array) -> OuterProducts:
        xp = self.xp

        dropped = xp.logical_not(rows)[:, None]

        def kept(array: Array) -> Array:
            return cleared(xp, array, dropped)

        return OuterProducts(
            xp,
            tuple(
                # Features of records are finite: only numbers that were computed from the point may have to be
                # replaced.
                replace(
                    layer, inputs=layer.inputs if layer.are_features else kept(layer.inputs), deltas=kept(layer.deltas)
                )
                for layer in self.layers
            ),
        )

    def parts(self) -> tuple[Array, ...]:
        kept = [(layer.deltas,) if layer.are_features else (layer.deltas, layer.inputs) for layer in self.layers]
        return tuple(part for parts in kept for part in parts)

    def of_parts(self, block: Block, parts: tuple[Array, ...]) -> OuterProducts:
        rest = iter(parts)
        layers = tuple(
            replace(layer, deltas=next(rest), inputs=block.features, input_squares=block.squares)
            if layer.are_features
            else replace(layer, deltas=next(rest), inputs=next(rest))
            for layer in self.layers
        )
        return OuterProducts(self.xp, layers)

    def add_to(self, total: Array, weights: Array, steps_per_unit: float) -> None:
        xp, start = self.xp, 0
        for layer in self.layers:
            inputs, weighted = layer.inputs, _weighted(xp, layer.deltas, weights * steps_per_unit)
            rows, columns = inputs.shape[1], weighted.shape[1]
            sums = _rounded_sums if on_host(xp) else _rounded_sums_at_once
            matrix, bias = sums(xp, weighted, inputs, layer.has_bias)
            end = start + rows * columns
            total[start:end] += xp.reshape(matrix.T, (-1,))
            start = end
            if layer.has_bias:
                total[start : start + columns] += bias
                start += columns


@dataclass(frozen=True)
class DenseGradients:
    """Gradients row by row: shape (B, d)."""

    xp: Namespace
    rows: Array

    def norms(self) -> Array:
        return self.xp.sqrt(squared_norms(self.xp, self.rows))

    def dual_norms(self) -> Array:
        return as_float64(self.xp, self.xp.max(self.xp.abs(self.rows), axis=1))

    def norms_of_order(self, order: float) -> Array:
        return _norms_of_order(self.xp, self.rows, order)

    def entries(self) -> Array:
        return as_float64(self.xp, self.rows)

    def keep(self, rows: Array) -> DenseGradients:
        return DenseGradients(self.xp, cleared(self.xp, self.rows, self.xp.logical_not(rows)[:, None]))

    def parts(self) -> tuple[Array, ...]:
        return (self.rows,)

    def of_parts(self, block: Block, parts: tuple[Array, ...]) -> DenseGradients:
        return DenseGradients(self.xp, *parts)

    def add_to(self, total: Array, weights: Array, steps_per_unit: float) -> None:
        xp, tiny = self.xp, TINY[dtype_name(self.rows)]
        factors = xp.astype(flushed(xp, weights * steps_per_unit, tiny), self.rows.dtype)
        for piece in _pieces(self.rows):
            rows = flushed(xp, self.rows[piece, :], tiny)
            _add_rounded(xp, total, factors[piece] @ rows)


def _norms_of_order(xp: Namespace, rows: Array, order: float, *, constant: bool = False) -> Array:
    """Return the upper bounds of the rows' l_q norms, of (row, 1) if ``constant``.

    Powers are taken of ratios to the largest entry. They do not overflow, and they vanish only where they do not count;
    their sum is at least 1, and 2^-30 of the norm covers its rounding up to 2^22 entries.
    """
    sizes = xp.abs(as_float64(xp, rows))
    largest = xp.max(sizes, axis=1)
    if constant:
        largest = xp.maximum(largest, xp.ones_like(largest))
    unit = xp.where(largest > 0.0, largest, xp.ones_like(largest))
    powers = xp.sum((sizes / unit[:, None]) ** order, axis=1)
    if constant:
        powers = powers + (1.0 / unit) ** order
    return largest * powers ** (1.0 / order) * (1.0 + 2.0**-30)


def _pieces(rows: Array) -> Iterator[slice]:
    """Yield ranges of about equally many rows. There are as few ranges as the size of a piece allows."""
    count, most = rows.shape[0], PIECE_ROWS[dtype_name(rows)]
    pieces = max(1, -(-count // most))
    for piece in range(pieces):
        yield slice(piece * count // pieces, (piece + 1) * count // pieces)


def _rounded_sums(xp: Namespace, weighted: Array, inputs: Array, has_bias: bool) -> tuple[Array, Array | None]:
    """Return the sums of outer(weighted_i, inputs_i) and of weighted_i, each piece's rounded to whole steps."""
    matrix = bias = None
    for piece in _pieces(weighted):
        chosen = weighted[piece, :]
        # This order is faster: the result is as wide as the inputs.
        matrix = _add_rounded(xp, matrix, chosen.T @ inputs[piece, :])
        if has_bias:
            bias = _add_rounded(xp, bias, xp.sum(chosen, axis=0))
    return matrix, bias


def _rounded_sums_at_once(xp: Namespace, weighted: Array, inputs: Array, has_bias: bool) -> tuple[Array, Array | None]:
    """Return the sums of `_rounded_sums` on a device, where starting a call takes as long as all pieces of a block.

    All pieces have the same number of rows, except that the last rows are a piece of their own.
    """
    count, rows, columns = weighted.shape[0], inputs.shape[1], weighted.shape[1]
    most = _EVEN_PIECE_ROWS[dtype_name(weighted)]
    at_once = max(1, _LARGEST_CALL // (rows * columns)) * most
    even = count // most * most
    edges = [*range(0, even, at_once), *sorted({even, count})]
    matrix = bias = None
    for first, last in pairwise(edges):
        pieces, long = max(1, (last - first) // most), min(most, last - first)
        chosen = xp.reshape(weighted[first:last, :], (pieces, long, columns))
        products = xp.permute_dims(chosen, (0, 2, 1)) @ xp.reshape(inputs[first:last, :], (pieces, long, rows))
        matrix = _add_pieces(xp, matrix, products)
        if has_bias:
            bias = _add_pieces(xp, bias, xp.sum(chosen, axis=1))
    return matrix, bias


def _add_pieces(xp: Namespace, total: Array | None, pieces: Array) -> Array:
    """Add the sums of several pieces, each rounded, to a total in float64."""
    added = xp.sum(xp.round(pieces), axis=0, dtype=xp.float64)
    return added if total is None else total + added


def _weighted(xp: Namespace, deltas: Array, weights: Array) -> Array:
    """Return the rows of ``deltas`` times their weights, with zeros in place of numbers that would make products
    subnormal."""
    tiny = TINY[dtype_name(deltas)]
    factors = xp.astype(flushed(xp, weights, tiny), deltas.dtype)
    return flushed(xp, deltas * factors[:, None], tiny)


def _add_rounded(xp: Namespace, total: Array | None, piece: Array) -> Array:
    """Add a piece's sum, rounded to whole steps, to a total in float64. The addition itself is exact."""
    rounded = xp.round(piece)
    if total is None:
        return as_float64(xp, rounded)
    total += rounded
    return total
