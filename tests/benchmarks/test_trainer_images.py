"""The bent digits: in their range, the same each time, and of their own digits."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.yang_digits import data as digits
from benchmarks.trainer import images


def test_images_are_of_the_digits_that_they_are_labelled_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ROWS", 3000)
    monkeypatch.setattr(images, "HELD_OUT", 400)
    x, y, held_x, held_y = images.data()
    assert (x.shape, held_x.shape, x.dtype) == ((3000, 784), (400, 784), np.float32)
    assert 0.0 <= x.min() < 0.01 < 0.9 < x.max() <= 1.0
    # Each held-out image is nearest to images of its own digit, mostly: it is a digit still.
    distances = np.sum(held_x**2, axis=1)[:, None] - 2.0 * held_x @ x.T + np.sum(x**2, axis=1)
    assert np.mean(y[np.argmin(distances, axis=1)] == held_y) > 0.9
    for one, other in zip((x, y, held_x, held_y), images.data(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_image_that_is_not_bent_is_its_digit_between_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TURN", "_STRETCH", "_SHEAR", "_MOVE"):
        monkeypatch.setattr(images, name, 0.0)
    rows, labels, _, _ = digits()
    [found], [label] = images._bent(rows[:1], labels[:1], 1, 3)
    assert label == labels[0]
    image, digit = found.reshape(28, 28), 0.5 * (1.0 + rows[0].reshape(8, 8))
    # 28 pixels along 8: the middle four of them are around the middle of the digit.
    np.testing.assert_allclose(np.mean(image[13:15, 13:15]), np.mean(digit[3:5, 3:5]), atol=1e-6)
    assert image.sum() * (8 / 28) ** 2 == pytest.approx(digit.sum(), rel=0.05)
