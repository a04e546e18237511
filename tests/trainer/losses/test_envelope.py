"""Moreau envelopes: values and derivatives against brute-force minimisation, and what their theory says of them."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from tests.trainer.losses.test_losses import labels_of
from tests.transcriptions.generalized_linear_l1 import proximal_point
from trainer.arrays import to_host
from trainer.losses import Huber, Logistic, Loss, QNormHinge, QNormRegression, Quantile, Softmax, Squared
from trainer.losses.envelope import Envelope

LOSSES: list[Loss] = [
    QNormHinge(1.0),
    Quantile(0.2),
    Huber(0.4),
    Squared(),
    Logistic(),
    QNormHinge(1.5),
    QNormHinge(2.0),
    QNormRegression(1.0),
    QNormRegression(1.4),
]


def test_the_worked_envelope_of_the_hinge() -> None:
    """W15: beta = 4."""
    hinge = Envelope(QNormHinge(1.0), 4.0)
    logits, labels = np.array([[0.8], [-1.0]]), np.ones(2, dtype=np.intp)
    np.testing.assert_allclose(hinge.values(np, logits, labels), [0.08, 1.875], rtol=1e-12)
    np.testing.assert_allclose(hinge.residuals(np, logits, labels)[:, 0], [-0.8, -1.0], rtol=1e-12)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("loss", LOSSES)
def test_values_and_slopes_are_those_of_the_least_point(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(size=(40, 1)) * 2.0, labels_of(loss, 40, rng)
    for beta in (0.3, 25.0):
        envelope = Envelope(loss, beta)
        values, slopes = envelope.values(np, logits, labels), envelope.residuals(np, logits, labels)[:, 0]
        for i, m in enumerate(logits[:, 0]):

            def link(u: float, i: int = i) -> float:
                return float(loss.values(np, np.array([[u]]), labels[i : i + 1])[0])

            u = proximal_point(link, float(m), beta)
            assert values[i] == pytest.approx(link(u) + 0.5 * beta * (u - m) ** 2, abs=1e-9)
            assert slopes[i] == pytest.approx(beta * (m - u), abs=3e-6 * (1.0 + beta))  # a minimiser is that flat


@pytest.mark.parametrize("loss", LOSSES)
def test_the_envelope_is_below_near_no_steeper_and_smooth(loss: Loss) -> None:
    rng = np.random.default_rng(9)
    logits, labels = rng.normal(size=(4000, 1)) * 3.0, labels_of(loss, 4000, rng)
    nearby = logits + rng.normal(size=logits.shape) * rng.choice([1e-3, 1.0], size=logits.shape)
    own = loss.residuals(np, logits, labels)
    for beta in (0.5, 7.0):
        envelope = Envelope(loss, beta)
        slopes = envelope.residuals(np, logits, labels)
        gap = loss.values(np, logits, labels) - envelope.values(np, logits, labels)
        assert np.all(gap >= -1e-12)
        assert np.all(gap <= own[:, 0] ** 2 / (2.0 * beta) + 1e-12)
        assert np.all(slopes * own >= 0.0)
        assert np.all(np.abs(slopes) <= np.abs(own) * (1.0 + 1e-12))
        moved = np.abs(envelope.residuals(np, nearby, labels) - slopes)
        assert np.all(moved <= envelope.curvature * np.abs(nearby - logits) + 1e-12)
        assert envelope.curvature <= beta
        if loss.lipschitz is not None:
            assert envelope.lipschitz == loss.lipschitz
        assert np.all(np.abs(envelope.residuals(np, np.zeros_like(logits), labels)) <= envelope.slope_at_zero)
        assert np.all(envelope.values(np, np.zeros_like(logits), labels) <= envelope.value_at_zero)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_array_library_gives_the_same(dtype: str) -> None:
    rng = np.random.default_rng(2)
    xp = array_api_strict
    for loss in LOSSES:
        logits, labels = rng.normal(size=(20, 1)).astype(dtype), labels_of(loss, 20, rng)
        envelope = Envelope(loss, 3.0)
        for method in (envelope.residuals, envelope.values):
            here, there = method(np, logits, labels), method(xp, xp.asarray(logits), xp.asarray(labels))
            assert here.dtype == np.dtype(dtype)
            np.testing.assert_allclose(to_host(there), here, rtol=1e-6, atol=1e-7)


def test_what_has_no_link_or_no_smoothing_is_refused() -> None:
    with pytest.raises(Unsupported) as refused:
        Envelope(Softmax(3), 1.0)
    assert (refused.value.code, refused.value.pointer) == ("unsupported_model", ("model", "kind"))
    for smoothing in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidValue):
            Envelope(Logistic(), smoothing)
