"""This module makes images of the size and number of MNIST without a download. Each of the bundled digits is used many
times, and distorted at random each time.

An image is one of scikit-learn's digits of 8 x 8 pixels that was turned, stretched, sheared and moved at random, and
sampled on 28 x 28 pixels. Training images and held-out images come from different digits. All rows are public.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.papers.yang_digits import data as digits
from benchmarks.trainer.work import FEATURES, ROWS

HELD_OUT = 10_000
#: The number of pixels along an edge of a digit and of an image, and the width of the margin around a digit in pixels.
_DIGIT, _IMAGE, _MARGIN = 8, 28, 2
#: The largest turn of an image in radians, its largest stretch and shear as shares of its size, and its largest move in
#: pixels of a digit.
_TURN, _STRETCH, _SHEAR, _MOVE = np.pi / 18.0, 0.1, 0.1, 0.5
_AT_ONCE = 2000

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def data() -> tuple[Images, Labels, Images, Labels]:
    """Return training images and labels, and held-out images and labels: (60000, 784) and (10000, 784), in [0, 1]."""
    rows, labels, held_rows, held_labels = digits()
    return *_bent(rows, labels, ROWS, 1), *_bent(held_rows, held_labels, HELD_OUT, 2)


def _bent(rows: npt.NDArray[np.float64], labels: Labels, count: int, seed: int) -> tuple[Images, Labels]:
    draw = np.random.default_rng(seed)
    which = draw.integers(len(labels), size=count)
    # The bundled digits are scaled to [-1, 1], and images have values in [0, 1].
    brightness = 0.5 * (1.0 + rows.reshape(-1, _DIGIT, _DIGIT).astype(np.float32))
    padded = np.pad(brightness, ((0, 0), *2 * ((_MARGIN, _MARGIN),)))
    found = np.empty((count, FEATURES), dtype=np.float32)
    for first in range(0, count, _AT_ONCE):
        some = padded[which[first : first + _AT_ONCE]]
        found[first : first + len(some)] = _read_off(some, *_places(draw, len(some))).reshape(len(some), FEATURES)
    return found, labels[which]


def _places(draw: np.random.Generator, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return, for each pixel of each image, its row and column in the padded digit, both of shape (count, 28, 28)."""
    edge = (np.arange(_IMAGE) - 0.5 * (_IMAGE - 1)) * (_DIGIT / _IMAGE)
    down, across = np.meshgrid(edge, edge, indexing="ij")
    turn, stretch, shear = (draw.uniform(-most, most, count)[:, None, None] for most in (_TURN, _STRETCH, _SHEAR))
    move = draw.uniform(-_MOVE, _MOVE, (2, count))[:, :, None, None]
    cosine, sine = np.cos(turn) * (1.0 + stretch), np.sin(turn) * (1.0 + stretch)
    middle, last = 0.5 * (_DIGIT - 1) + _MARGIN, _DIGIT + 2 * _MARGIN - 1.001
    columns = cosine * across - sine * down + shear * down + move[0] + middle
    return np.clip(sine * across + cosine * down + move[1] + middle, 0.0, last), np.clip(columns, 0.0, last)


def _read_off(
    padded: Images, rows: npt.NDArray[np.float64], columns: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the values of the padded digits at the given places, by bilinear interpolation between pixels."""
    above, left = rows.astype(np.int64), columns.astype(np.int64)
    low, right = rows - above, columns - left
    each = np.arange(len(padded))[:, None, None]
    found: npt.NDArray[np.float64] = (
        padded[each, above, left] * (1.0 - low) * (1.0 - right)
        + padded[each, above + 1, left] * low * (1.0 - right)
        + padded[each, above, left + 1] * (1.0 - low) * right
        + padded[each, above + 1, left + 1] * low * right
    )
    return found
