"""The sampler of generalised Gaussian noise: the worked transform, its law, its state."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from trainer.generalized_gaussian import GeneralizedGaussianNoise, from_variates
from trainer.streams import random_streams


def drawn(count: int, dimension: int, order: float, seed: int = 1) -> np.ndarray:
    noise = GeneralizedGaussianNoise(random_streams(seed).noise)
    return np.stack([noise.vector(dimension, order) for _ in range(count)])


def test_the_transform_is_the_worked_one() -> None:
    uniforms, gammas, signs = np.array([0.2, 0.9, 0.5]), np.array([1.1, 0.7, 1.6]), np.array([1.0, -1.0, 1.0])
    z = 0.7 * from_variates(1.3, uniforms, gammas, signs, 4.0)
    assert z == pytest.approx([0.267126122241, -1.073631418758, 0.733395418765], rel=1e-11)
    assert np.linalg.norm(z, 4) == pytest.approx(1.12871608476, rel=1e-11)


@pytest.mark.parametrize(("dimension", "order"), [(1, 2.0), (3, 2.0), (2, 3.0), (5, 12.7), (40, 4.0)])
def test_radius_and_entries_have_their_laws(dimension: int, order: float) -> None:
    """The squared norm is chi-squared of d degrees; for r = 2 entries are standard normal; signs and axes are alike."""
    z = drawn(4000, dimension, order)
    square = np.linalg.norm(z, order, axis=1) ** 2
    assert stats.kstest(square, stats.chi2(dimension).cdf).pvalue > 1e-3
    if order == 2.0:
        assert stats.kstest(z[:, 0], "norm").pvalue > 1e-3
    assert stats.ks_2samp(z[:2000, 0], -z[2000:, dimension - 1]).pvalue > 1e-3


def test_in_the_plane_the_law_is_that_of_the_density() -> None:
    """Numbers in cells against the density's integral over them."""
    r, edges = 3.0, np.array([-np.inf, -1.0, -0.3, 0.2, 0.9, np.inf])
    z = drawn(6000, 2, r)
    grid = np.linspace(-8.0, 8.0, 1601)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    mass = np.exp(-0.5 * (np.abs(x) ** r + np.abs(y) ** r) ** (2.0 / r))
    mass /= mass.sum()
    cells = [np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 4) for values in (x.ravel(), y.ravel())]
    expected = np.zeros((5, 5))
    np.add.at(expected, tuple(cells), mass.ravel())
    counts = np.histogram2d(z[:, 0], z[:, 1], bins=(edges, edges))[0]
    assert stats.chisquare(counts.ravel(), 6000.0 * expected.ravel() / expected.sum()).pvalue > 1e-3


def test_a_restored_stream_goes_on() -> None:
    noise = GeneralizedGaussianNoise(random_streams(3).noise)
    noise.vector(4, 3.0)
    state = noise.state()
    following = noise.vector(4, 3.0)
    other = GeneralizedGaussianNoise(random_streams(9).noise)
    other.restore(state)
    assert np.array_equal(other.vector(4, 3.0), following)


def test_no_variate_makes_it_infinite() -> None:
    zeros = from_variates(2.0, np.zeros(3), np.ones(3), np.ones(3), 50.0)
    assert np.linalg.norm(zeros, 50) == pytest.approx(2.0)
    tiny = from_variates(1e-300, np.full(3, 2.0**-53), np.full(3, 1e-300), np.ones(3), 2.0)
    assert np.all(np.isfinite(tiny))
