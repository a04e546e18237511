"""The generalised Gaussian's Renyi line against quadratures of its densities, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import InvalidValue, NoCostInFilter
from accounting.events import Event, GeneralizedGaussian, Poisson, ZcDp, event_from_json
from accounting.events.regularity import kappa_pair
from accounting.filters import gaussian_dp_cost
from accounting.losses.generalized_gaussian import GeneralizedGaussianRules
from accounting.relations import NeighboringRelation
from tests.accounting.references import gaussian_epsilon

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
RULES = GeneralizedGaussianRules()
PAGE = Path(__file__).parents[3] / "docs/concepts/mechanisms.md"


def divergence_in_the_plane(r: float, sigma: float, shift: tuple[float, float], order: float) -> float:
    """Renyi divergence of noise of the norm l_r, by a sum on a fine lattice."""
    axis = np.linspace(-12.0 * sigma, 12.0 * sigma, 401)
    x, y = np.meshgrid(axis, axis)

    def log_density(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return -((np.abs(a) ** r + np.abs(b) ** r) ** (2.0 / r)) / (2.0 * sigma**2)

    q = log_density(x, y)
    p = log_density(x - shift[0], y - shift[1])
    log_norm = math.log(np.exp(q).sum())
    return float(np.log(np.exp(order * p + (1.0 - order) * q).sum()) - log_norm) / (order - 1.0)


@pytest.mark.parametrize(("norm_order", "r"), [(1.0, 2.0), (1.0, 3.0), (1.0, 6.0), (1.25, 4.0), (2.0, 2.0)])
@pytest.mark.one_in(4)
def test_renyi_line(norm_order: float, r: float) -> None:
    """The line bounds the divergences of shifts of dual norm 1; at p = 2 it is attained."""
    q = math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
    kappa = (r - 1.0) * 2.0 ** (2.0 / r - 2.0 / q)
    assert kappa >= kappa_pair(norm_order, 2).kappa
    loss = RULES.loss(GeneralizedGaussian(norm_order, 2, kappa, 1.5), 1.0)
    for angle in (0.0, 0.3, math.pi / 4):
        direction = np.array([math.cos(angle), math.sin(angle)])
        shift = direction / np.linalg.norm(direction, ord=q)
        for order in (1.01, 2.0, 5.0):
            true = divergence_in_the_plane(r, 1.5, (shift[0], shift[1]), order)
            line = float(loss.log_moment(np.array([order - 1.0]))[0]) / (order - 1.0)
            assert true <= line * (1.0 + 1e-6)
            if norm_order == 2.0:
                assert true == pytest.approx(line, rel=1e-6)


@pytest.mark.parametrize(("norm_order", "dimension", "kappa"), [(1.0, 1000, 2 * math.log(1000)), (1.5, 100, 1.99)])
def test_a_constant_without_proof_is_refused_naming_the_right_one(
    norm_order: float, dimension: int, kappa: float
) -> None:
    right = kappa_pair(norm_order, dimension).kappa
    with pytest.raises(InvalidValue, match=f"{right:.12g}") as caught:
        GeneralizedGaussian(norm_order, dimension, kappa, 1.0)
    assert caught.value.pointer == ("kappa",)
    # Ten digits of the right one are taken for it, and it is charged.
    rounded = GeneralizedGaussian(norm_order, dimension, float(f"{right:.10g}"), 1.0)
    assert rounded.charged_kappa >= right


def test_attack_on_the_refused_constant() -> None:
    """What kappa = 2 ln d would claim is passed by real losses: p = 1, d = 1000, noise l_(ln d), Monte Carlo."""
    d, r = 1000, math.log(1000)
    rng = np.random.default_rng(5)
    draws = 400
    sigma = math.sqrt(2 * math.log(d) / (2 * 0.0308))
    radius = sigma * np.sqrt(2.0 * rng.gamma(d / 2, 1.0, draws))
    uniform = rng.uniform(size=(draws, d)) * rng.gamma(1.0 + 1.0 / r, 1.0, (draws, d)) ** (1.0 / r)
    signed = uniform * rng.choice([-1.0, 1.0], (draws, d))
    z = radius[:, None] * signed / np.linalg.norm(signed, ord=r, axis=1)[:, None]
    # Shifts up and down have the same law; together their first-order terms cancel.
    both = [np.linalg.norm(z + shift, ord=r, axis=1) ** 2 for shift in (1.0, -1.0)]
    losses = (0.5 * sum(both) - np.linalg.norm(z, ord=r, axis=1) ** 2) / (2 * sigma**2)
    mean = losses.mean() - 6.0 * losses.std() / math.sqrt(draws)
    claimed = RULES.loss(GeneralizedGaussian(1.0, d, kappa_pair(1.0, d).kappa, sigma), 1.0).rho
    # The divergence of order 1 is the mean loss; the line with 2 ln d says 0.0308.
    assert 0.0308 < mean < claimed


@pytest.mark.parametrize(("norm_order", "dimension", "kappa"), [(2.0, 1, 100.0), (2.0, 50, 1.0 + 1e-9), (1.0, 3, 4.0)])
def test_a_bound_of_moments_is_no_loss(norm_order: float, dimension: int, kappa: float) -> None:
    """In one dimension every norm is |z|: what kappa charges beyond the noise's own is no loss of the mechanism."""
    event = Event(GeneralizedGaussian(norm_order, dimension, kappa, 1.0))
    delta = delta_for_epsilon([event], ADD_REMOVE, 1.0).value
    # The Gaussian of mu 1 is what (2, 1, 100) is.
    truth = 0.126936737507
    assert delta.lower <= truth <= delta.upper
    assert epsilon_for_delta([event], ADD_REMOVE, 1e-5).value.lower == 0.0
    assert delta.lower == 0.0
    charged = epsilon_for_delta([Event(ZcDp(0.5 * kappa))], ADD_REMOVE, 1e-5).value
    assert epsilon_for_delta([event], ADD_REMOVE, 1e-5).value.upper >= charged.upper * (1.0 - 1e-9)


def test_zcdp_numbers_and_gaussian_at_two() -> None:
    event = Event(GeneralizedGaussian(2.0, 50, 1.0, 10.0), count=100)
    value = epsilon_for_delta([event], REPLACE, 1e-5).value
    assert value.lower == pytest.approx(gaussian_epsilon(2.0, 1e-5), rel=1e-9)
    half = Event(GeneralizedGaussian(1.0, 1000, 34.7236671602, 34.7236671602**0.5))
    assert epsilon_for_delta([half], ADD_REMOVE, 1e-5).value.upper == pytest.approx(4.7283869849, rel=1e-8)


@given(st.floats(1.0, 2.0), st.integers(1, 10**10), st.floats(0.05, 1e3), st.floats(1.0, 3.0))
def test_never_below_the_proved_line(norm_order: float, dimension: int, noise: float, factor: float) -> None:
    least = kappa_pair(norm_order, dimension).kappa
    mechanism = GeneralizedGaussian(norm_order, dimension, least * factor, noise)
    assert RULES.loss(mechanism, 1.0).rho >= least * factor / (2.0 * noise**2) * (1.0 - 1e-15)
    assert RULES.loss(mechanism, 2.0).rho == pytest.approx(4.0 * RULES.loss(mechanism, 1.0).rho)
    assert event_from_json(Event(mechanism).to_json()) == Event(mechanism)


def test_same_bits_and_refusals() -> None:
    same = [GeneralizedGaussian(1, 10, 10, 2), GeneralizedGaussian(np.float64(1.0), np.int64(10), 10.0, np.float32(2))]  # type: ignore[arg-type]
    assert repr(same[0]) == repr(same[1])
    with pytest.raises(InvalidValue):
        GeneralizedGaussian(2.5, 10, 9.0, 1.0)
    with pytest.raises(NoCostInFilter, match="approximate_dp, approximate_gaussian_dp, zcdp or renyi_dp"):
        gaussian_dp_cost((Event(same[0]),), REPLACE)
    with pytest.raises(ValueError, match="no amplification"):
        Event(same[0], Poisson(0.1))


def test_worked_number_of_the_page() -> None:
    event = Event(GeneralizedGaussian(1.0, 1000, 34.7236671602, 100.0), count=20)
    assert f"{epsilon_for_delta([event], REPLACE, 1e-6).value.upper:.6f}" in PAGE.read_text()
