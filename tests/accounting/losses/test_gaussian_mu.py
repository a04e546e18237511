"""The smallest mu of mechanisms whose loss is bounded."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from accounting.events import Event, Laplace, PureDp
from accounting.filters import gaussian_dp_cost
from accounting.losses.gaussian_mu import mu_of_categorical_response, mu_of_laplace, mu_of_pure_dp
from accounting.units import NANO
from tests.accounting.filters.costs.cells import SPECIAL
from tests.accounting.filters.costs.truths import mu_through
from tests.accounting.references import normal_cdf


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 0.5, 1.0, 1.1, 1.4, 4.0, 30.0, 800.0])
def test_gaussian_dp_pure_and_laplace_in_closed_form(epsilon: float) -> None:
    exact_epsilon = mp.mpf(epsilon)
    of_pure, of_laplace = mu_through(1 / (1 + mp.exp(exact_epsilon))), mu_through(mp.exp(-exact_epsilon / 2) / 2)
    assert abs(mu_of_pure_dp(epsilon) / of_pure - 1) < 4e-13
    assert abs(mu_of_laplace(epsilon) / of_laplace - 1) < 4e-13
    assert of_laplace < of_pure
    count = 1000
    for event, mu in (
        (Event(PureDp(epsilon), count=count), of_pure),
        (Event(Laplace(1 / epsilon), count=count), of_laplace),
    ):
        amount = gaussian_dp_cost((event,), SPECIAL).amounts[0]
        assert 0 <= amount - count * mu**2 * NANO <= 1 + count * mu**2 * NANO * mp.mpf("3e-12")


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0, 8.0])
def test_the_gaussian_is_below_the_trade_off_functions(epsilon: float) -> None:
    """A mechanism is mu-GDP when its trade-off function is nowhere below the Gaussian's; a smaller mu is not enough."""
    e = mp.mpf(epsilon)

    def gaussian(a: mp.mpf, mu: mp.mpf) -> mp.mpf:
        z = mp.sqrt(2) * mp.erfinv(1 - 2 * a)
        return normal_cdf(z - mu)

    def response(a: mp.mpf) -> mp.mpf:
        return max(mp.mpf(0), 1 - mp.exp(e) * a, mp.exp(-e) * (1 - a))

    def laplace(a: mp.mpf) -> mp.mpf:
        if a < mp.exp(-e) / 2:
            return 1 - mp.exp(e) * a
        return mp.exp(-e) / (4 * a) if a <= mp.mpf(1) / 2 else mp.exp(-e) * (1 - a)

    for curve, mu in ((response, mu_of_pure_dp(epsilon)), (laplace, mu_of_laplace(epsilon))):
        points = [mp.mpf(a) for a in np.concatenate([np.geomspace(1e-12, 0.5, 60), 1 - np.geomspace(1e-9, 0.5, 40)])]
        assert all(gaussian(a, mp.mpf(mu) * (1 + mp.mpf("1e-12"))) <= curve(a) for a in points)
        meeting = normal_cdf(-mp.mpf(mu) / 2)
        assert gaussian(meeting, mp.mpf(mu) * (1 - mp.mpf("1e-9"))) > curve(meeting)


@pytest.mark.parametrize("against_null", [True, False])
@pytest.mark.parametrize(
    ("k", "p"), [(2, 0.3), (10, 1e-6), (1000, 0.999), (10**9, 1 - 1e-6), (10**9, 1 - 1e-12), (10**9, 1 - 2.0**-53)]
)
def test_mu_of_answers_out_of_many_is_rounded_up(k: int, p: float, against_null: bool) -> None:
    with mp.workdps(60):
        kept, other = 1 - mp.mpf(p) + mp.mpf(p) / k, mp.mpf(p) / k
        alarm = mp.mpf(1) / k if against_null else other
        exact = mp.sqrt(2) * (mp.erfinv(1 - 2 * alarm) - mp.erfinv(1 - 2 * kept))
        assert exact <= mu_of_categorical_response(k, p, against_null) <= exact * (1 + 1e-11) + 2e-12
