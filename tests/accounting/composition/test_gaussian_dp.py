from __future__ import annotations

import math
import random

import mpmath as mp
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.composition.gaussian_dp import AnalyticGaussian, epsilon_of_gaussian
from accounting.events import Event, Gaussian
from accounting.losses.mills import mills_difference
from accounting.relations import NeighboringRelation
from accounting.solve.noise import solve_noise_multiplier
from tests.accounting.composition.test_evaluators import one
from tests.accounting.references import gaussian_delta

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
#: Where the noise of the profile itself moves epsilon by this many of its own relative errors, and no more.
_ROOM = 2.5
CORNERS_OF_MU = (1e-8, 1e-4, 0.06, 0.34, 0.999, 1.001, 17.9, 18.1, 40.0, 300.0, 1e4)
CORNERS_OF_DELTA = (5e-324, 1e-310, 1e-300, 1e-100, 1e-12, 1e-5, 0.3, 0.999, 1 - 2**-40, 1 - 2**-53)


def drawn(number: int, seed: int) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    deltas = (lambda: 10 ** draw.uniform(-300, 0), lambda: 10 ** draw.uniform(-15, 0), draw.random)
    return [(10 ** draw.uniform(-8, 4), draw.choice(deltas)()) for _ in range(number)]


def is_enclosed(mu: float, delta: float) -> bool:
    lower, upper = (epsilon_of_gaussian(mu, delta, upward=upward) for upward in (False, True))
    below = lower == 0.0 or gaussian_delta(mu, lower) >= delta
    return bool(below and gaussian_delta(mu, upper) <= delta)


def width_in_errors(mu: float, delta: float) -> float:
    """The width of epsilon, in what the documented relative error 1e-14 (1 + a^2) of the profile moves it by."""
    lower, upper = (epsilon_of_gaussian(mu, delta, upward=upward) for upward in (False, True))
    a = upper / mu - mu / 2
    slope = mp.exp(upper) * mp.erfc((upper / mu + mu / 2) / mp.sqrt(2)) / 2 / gaussian_delta(mu, upper)
    return float((upper - lower) / (1e-14 * (1 + a * a) / slope + 8 * math.ulp(upper) + 2e-15 * mu))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mu", CORNERS_OF_MU)
def test_gaussian_epsilon_is_enclosed_at_corners(mu: float) -> None:
    assert all(is_enclosed(mu, delta) for delta in CORNERS_OF_DELTA)


def test_gaussian_epsilon_is_enclosed() -> None:
    assert [case for case in drawn(150, seed=1) if not is_enclosed(*case)] == []


@pytest.mark.soak
def test_gaussian_epsilon_is_enclosed_at_thousands_of_places() -> None:
    assert [case for case in drawn(20_000, seed=2) if not is_enclosed(*case)] == []


def test_the_interval_is_as_narrow_as_its_errors() -> None:
    cases = [(mu, delta) for mu, delta in drawn(150, seed=3) if gaussian_delta(mu, 0.0) > 1.001 * delta]
    assert [case for case in cases if not width_in_errors(*case) <= _ROOM] == []


@pytest.mark.parametrize(("mu", "delta"), [(25.5, 1 - 2**-53), (82.3, 1 - 2**-53), (18.5, 1 - 2**-50)])
def test_a_delta_near_1_is_bisected(mu: float, delta: float) -> None:
    """The profile's logarithm is flat there, so its error moves epsilon far; steps along a line would go beyond."""
    upper = epsilon_of_gaussian(mu, delta, upward=True)
    assert gaussian_delta(mu, upper) >= delta * (1 - 1e-12)
    assert epsilon_of_gaussian(mu, delta, upward=False) == pytest.approx(max(0.0, mu * (mu / 2 - 9)), rel=1e-14)


@pytest.mark.parametrize("mu", [1e-320, 1e-300, 1e-250, 1e-200])
def test_a_tiny_mu_is_enlarged(mu: float) -> None:
    """Its profile is a subnormal number, which has no relative accuracy."""
    for delta in (5e-324, 0.3 * mu, 0.39 * mu):
        if delta > 0.0:
            assert epsilon_of_gaussian(mu, delta, upward=True) <= max(1e-248, 40 * mu)
            assert is_enclosed(mu, delta)
    bounds = AnalyticGaussian().delta(one(mu), 0.0)
    assert bounds is not None
    assert bounds.lower <= gaussian_delta(mu, 0.0) <= bounds.upper


def test_delta_is_enclosed() -> None:
    draw = random.Random(4)
    cases = [(10 ** draw.uniform(-8, 4), draw.choice((1e-12, 1e-3, 1.0, 38.0))) for _ in range(100)]
    cases += [(mu, 0.0) for mu in CORNERS_OF_MU] + [(1.0, 1e5), (300.0, 1e5), (1e4, 1e5), (1.0, 38.9), (0.01, 0.3857)]
    for mu, epsilon in cases:
        bounds, truth = AnalyticGaussian().delta(one(mu), epsilon), gaussian_delta(mu, epsilon)
        assert bounds is not None
        assert bounds.lower <= truth <= bounds.upper
        assert truth < 1e-300 or bounds.width <= 5e-14 * truth * (1 + (epsilon / mu - mu / 2) ** 2) or truth > 1 - 1e-15


def test_delta_is_enclosed_where_epsilon_over_mu_is_large() -> None:
    """A rounded epsilon / mu moves delta by more than the profile's own error."""
    draw = random.Random(9)
    for _ in range(60):
        mu = draw.uniform(2e3, 1e4)
        epsilon = mu * (mu / 2 + draw.uniform(1, 6))
        bounds, truth = AnalyticGaussian().delta(one(mu), epsilon), gaussian_delta(mu, epsilon)
        assert bounds is not None
        assert bounds.lower <= truth <= bounds.upper


def test_the_rounding_of_a_sum_of_squares_is_allowed_for() -> None:
    draw = random.Random(10)
    for _ in range(25):
        noises = [draw.uniform(1e-3, 1e-2) for _ in range(300)]
        mu = mp.sqrt(sum(1 / mp.mpf(noise) ** 2 for noise in noises))
        value = epsilon_for_delta([Event(Gaussian(noise)) for noise in noises], ADD, 1e-5).value
        assert gaussian_delta(mu, value.upper) <= 1e-5 <= gaussian_delta(mu, value.lower)


def difference_error(centre: float, d: float) -> float:
    """The relative error of `mills_difference` over 1 + a^2."""
    with mp.workdps(60 + int(max(0.0, -math.log10(d)))):
        near, far = mp.mpf(centre) - mp.mpf(d) / 2, mp.mpf(centre) + mp.mpf(d) / 2
        exact = _mills(near) - _mills(far)
        return float(abs(mills_difference(centre, d)[0] / exact - 1) / (1 + near**2))


def _mills(x: mp.mpf) -> mp.mpf:
    if x > 1e3:
        return (1 - x**-2 + 3 * x**-4 - 15 * x**-6 + 105 * x**-8) / x
    return mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))


def points(number: int, seed: int) -> list[tuple[float, float]]:
    """Centres and distances: small and large ones, and those on either side of where the method changes."""
    draw = random.Random(seed)
    found = []
    while len(found) < number:
        centre = draw.choice((draw.uniform(0, 2), draw.uniform(0, 40)))
        d = draw.choice((10 ** draw.uniform(-12, 2), draw.uniform(0.9, 1.1), draw.uniform(0.1, 2.2) / (1 + centre)))
        if -9 <= centre - d / 2 <= 40:
            found.append((centre, d))
    return found


def test_plain_difference_is_accurate() -> None:
    assert max(difference_error(*point) for point in points(400, seed=5)) <= 5.5e-15


@pytest.mark.soak
def test_plain_difference_is_accurate_at_thousands_of_places() -> None:
    assert max(difference_error(*point) for point in points(50_000, seed=6)) <= 5.5e-15


def test_the_farther_value_is_a_slope() -> None:
    """Halley's iteration is as quick as it is where the slope is right."""
    for centre, d in points(50, seed=7):
        assert mills_difference(centre, d)[1] == pytest.approx(float(_mills(mp.mpf(centre) + mp.mpf(d) / 2)), rel=1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.1, 1.0, 30.0, 1e5])
def test_noise_meets_its_target_to_the_last_digits(epsilon: float) -> None:
    draw = random.Random(8)
    for _ in range(20):
        delta = 10 ** draw.uniform(-30 if epsilon >= 0.1 else -5, -1)
        found = solve_noise_multiplier(lambda s: [Event(Gaussian(s), count=7)], ADD, epsilon=epsilon, delta=delta)
        mu = mp.sqrt(7) / mp.mpf(found.noise_multiplier)
        assert gaussian_delta(mu, epsilon) <= delta
        assert found.achieved.value.upper <= epsilon
        answer = epsilon_for_delta([Event(Gaussian(found.noise_multiplier), count=7)], ADD, delta)
        assert answer == found.achieved
        less = mu * (1 + mp.mpf("2e-5"))
        assert gaussian_delta(less, epsilon) > delta
