"""Lemma 6: worked numbers, laws that attain it, and the step of its proof that is false."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle
from calibrators.lowy_razaviyayn.moments import Moments, trivial_excess_risk


def test_the_worked_numbers():
    oracle = MeanOracle(3.0, 100, 2.0, 10, Moments(3.0, 2.0, 1.5))
    assert oracle.noise_variance == pytest.approx(0.0036, rel=1e-14)
    assert oracle.bias == pytest.approx(0.4444444444, rel=1e-9)
    assert oracle.sharp_bias == pytest.approx(0.1316872428, rel=1e-9)
    assert oracle.variance == pytest.approx(0.0585, rel=1e-12)


@pytest.mark.parametrize("k", [2.0, 2.5, 3.0, 8.0])
def test_a_two_point_law_attains_the_sharp_bias(k):
    clip, chance = 2.0, 0.01
    size = clip * k / (k - 1.0)
    moments = Moments(k, size * chance ** (1.0 / k))
    attained = chance * (size - clip)
    assert MeanOracle(clip, 1, 1.0, 1, moments).sharp_bias == pytest.approx(attained, rel=1e-12)


@pytest.mark.parametrize("k", [2.0, 3.0, 5.5])
@pytest.mark.parametrize("tail", [0.1, 1.0, 4.0])
def test_a_pareto_law_is_biased_by_less(k, tail):
    power = k + tail  # P(z > t) = t^-power for t >= 1: k moments, and not many more
    moments = Moments(k, (power / (power - k)) ** (1.0 / k))
    for clip in (1.0, 2.0, 10.0):
        bias = clip ** (1.0 - power) / (power - 1.0)
        oracle = MeanOracle(clip, 1, 1.0, 1, moments)
        assert bias <= oracle.sharp_bias <= oracle.bias


def test_the_sharp_constant_is_smaller_and_neither_exceeds_the_moment():
    for k in (2.0, 2.1, 4.0, 50.0, 1e6):
        oracle = MeanOracle(2.0, 1, 1.0, 1, Moments(k, 1.9))
        assert oracle.sharp_bias <= oracle.bias
    assert MeanOracle(1e-6, 1, 1.0, 1, Moments(1e6, 1.0)).bias == 1.0, "r_k^k would overflow"


def test_the_printed_middle_of_lemma_6_is_false():
    """E|nu_hat - nu| includes the sampling error, so it is not below the bound on the bias."""
    rng = np.random.default_rng(0)
    samples = rng.choice([-1.0, 1.0], size=(20_000, 25))
    error = float(np.abs(samples.mean(axis=1)).mean())
    assert error > 10.0 * MeanOracle(100.0, 25, 1.0, 1, Moments(2.0, 1.0)).bias


def test_the_variance_holds_for_clipped_records():
    rng = np.random.default_rng(1)
    draws = rng.standard_t(3.5, size=(200_000, 3))
    second = math.sqrt(float((draws**2).sum(axis=1).mean()))
    lengths = np.linalg.norm(draws, axis=1)
    for clip in (0.5, 2.0, 20.0):
        clipped = draws * np.minimum(1.0, clip / lengths)[:, None]
        oracle = MeanOracle(clip, 1, 0.0, 3, Moments(2.0, second))
        assert float(clipped.var(axis=0).sum()) <= oracle.sharp_variance <= oracle.variance + 1e-12


def test_a_second_moment_above_the_kth_is_not_used():
    assert Moments(3.0, 2.0, 5.0).second == 2.0
    assert Moments(3.0, 2.0).second == 2.0
    assert Moments(3.0, 2.0, 1.5).second == 1.5


def test_the_trivial_risk_of_a_long_and_of_a_curved_domain():
    assert trivial_excess_risk(2.0, 0.1, 1.0) == pytest.approx(0.2)
    assert trivial_excess_risk(2.0, 3.9, 1.0) == 2.0
