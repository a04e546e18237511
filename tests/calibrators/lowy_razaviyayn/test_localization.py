"""Algorithm 4 with constants: the worked numbers of the certified plan, and its proof's steps against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.lowy_razaviyayn.localization import (
    Blocks,
    Localization,
    LocalizedProblem,
    UniformMoments,
    block_sizes,
    block_steps,
)
from calibrators.lowy_razaviyayn.localized_setting import balanced_thresholds

Z = math.sqrt(2.0)  # rho = 1


def localization(moments: UniformMoments, *, reach: float, power: float, zeta: float) -> Localization:
    """At n = 1024, d = 5, rho = 1, D = 2."""
    problem = LocalizedProblem(2.0, 5, moments)
    sizes = block_sizes(1024, 10)
    blocks = Blocks(sizes, power, balanced_thresholds(problem, sizes, power, Z))
    return Localization(problem, blocks, reach, zeta, Z)


UNBOUNDED = UniformMoments(2.0, 1.5, 1.2, 1.0)
PROBLEM = LocalizedProblem(2.0, 5, UNBOUNDED)


def test_the_certified_plan_without_a_lipschitz_constant() -> None:
    zeta = 1024**-0.5
    reach = PROBLEM.reach(10, zeta)
    found = localization(UNBOUNDED, reach=reach, power=1.0, zeta=zeta)
    eta = found.best_step_size(2.0)
    assert (zeta, reach) == (0.03125, pytest.approx(6.344227581, rel=1e-9))
    assert found.start_cost(2.0) == pytest.approx(0.015625)
    assert found.step_cost == pytest.approx(2780.096042, rel=1e-9)
    assert eta == pytest.approx(0.00237071918, rel=1e-9)
    assert found.bound(2.0, eta) == pytest.approx(13.24415402, rel=1e-9)
    table = {
        1: (512, 6394, 12.76690345, 7.951221531, 2096.589772, 0.000592679795, 3.295413504, 3.850337794),
        2: (256, 2845, 9.294706221, 7.500732386, 2060.55064, 0.0001481699487, 26.36330803, 0.4812922242),
        5: (32, 228, 3.672442741, 6.005856517, 1940.960571, 2.315155449e-06, 13498.01371, 0.0009400238754),
        10: (1, 3, 0.8059274489, 3.897114317, 1772.261195, 2.260893993e-09, 442302913.4, 2.868725206e-08),
    }
    blocks = found.blocks
    columns = (
        blocks.sizes,
        blocks.inner_iterations,
        blocks.thresholds,
        [stddev**2 for stddev in blocks.noise_stddevs(Z)],
        found.distances,
        blocks.step_sizes(eta),
        blocks.regularizers(eta),
        found.radii(eta),
    )
    for index, row in table.items():
        assert [column[index - 1] for column in columns] == pytest.approx(row, rel=1e-9)
    assert sum(map(math.prod, zip(blocks.sizes, blocks.inner_iterations, strict=True))) == 4205409
    assert PROBLEM.rate(1024, Z) == pytest.approx(0.2850269525, rel=1e-9)


def test_the_certified_plan_with_a_lipschitz_constant() -> None:
    """Before thresholds are capped at it: clipping at L_f clips nothing, and only then the bias is 0."""
    assert UniformMoments(2.0, 1.5, lipschitz=3.0).power(1024) == pytest.approx(1.2)
    found = localization(UNBOUNDED, reach=3.0, power=1.2, zeta=0.0)
    eta = found.best_step_size(2.0)
    assert found.start_cost(2.0) == pytest.approx(0.004487102949, rel=1e-9)
    assert found.step_cost == pytest.approx(4020.911001, rel=1e-9)
    assert eta == pytest.approx(0.001056381499, rel=1e-9)
    assert found.bound(2.0, eta) == pytest.approx(8.495231982, rel=1e-9)
    assert sum(map(math.prod, zip(found.blocks.sizes, found.blocks.inner_iterations, strict=True))) == 16934763
    bounded = UniformMoments(2.0, 1.5, 1.2, 1.0, 3.0)
    capped = localization(bounded, reach=3.0, power=1.2, zeta=0.0)
    assert max(capped.blocks.thresholds) == 3.0
    assert capped.bound(2.0, capped.best_step_size(2.0)) < found.bound(2.0, eta)


def test_the_papers_own_thresholds_and_step_size() -> None:
    printed = [PROBLEM.printed_threshold(size, 1024, Z) for size in (512, 256, 128, 1)]
    last = 1.5 * math.sqrt(Z / math.sqrt(5.0))
    assert printed == pytest.approx([16.63546221, 11.76304814, 8.317731106, last], rel=1e-9)
    assert PROBLEM.printed_step_size(1024, 1.0, Z) is None
    rate = LocalizedProblem(2.0, 50, UniformMoments(2.0, 3.0)).rate(10_000, 2.0)
    assert rate == pytest.approx(0.3379474356, rel=1e-9)


def test_every_block_costs_the_same() -> None:
    found = localization(UNBOUNDED, reach=1.0, power=1.3, zeta=0.0).blocks
    each = zip(found.sizes, found.inner_iterations, found.thresholds, found.noise_stddevs(Z), strict=True)
    for size, steps, bound, stddev in each:
        assert steps * (2.0 * bound / size) ** 2 / (2.0 * stddev**2) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 64, 10**6])
def test_a_blocks_start_is_forgotten(size: int) -> None:
    """e^(-lambda eta T / 2) <= lambda eta, where lambda eta = n^-p."""
    for power in (1.0, 1.25, 2.0):
        assert math.exp(-0.5 * block_steps(size, power) * size**-power) <= size**-power


def test_a_block_ends_where_the_bound_says() -> None:
    """E|w_T - w_hat|^2 <= eta^2 n^p V, on |w - x| with heavy tails, from the far end of the ball."""
    rng = np.random.default_rng(0)
    runs, size, k, d = 200, 16, 2.0, 1
    moments = UniformMoments(k, 1.0, lipschitz=1.0)  # |w - x| has slope 1
    problem = LocalizedProblem(2.0, d, moments)
    blocks = Blocks((size,), 1.0, balanced_thresholds(problem, (size,), 1.0, Z))
    found = Localization(problem, blocks, 1.0, 0.0, Z)
    eta = blocks.step_sizes(0.4)[0]
    [strength], [radius] = blocks.regularizers(0.4), found.radii(0.4)
    [steps], [stddev] = blocks.inner_iterations, blocks.noise_stddevs(Z)
    x = rng.standard_t(3, size=(runs, size))
    grid = np.linspace(-1.0, 1.0, 2001)
    values = np.abs(grid[None, :, None] - x[:, None, :]).mean(axis=2) + 0.5 * strength * (grid - 1.0) ** 2
    best = grid[values.argmin(axis=1)]
    w = np.ones(runs)
    for _ in range(steps):
        slope = np.sign(w[:, None] - x).mean(axis=1) + stddev * rng.normal(size=runs) + strength * (w - 1.0)
        w = np.clip(np.clip(w - eta * slope, 1.0 - radius, 1.0 + radius), -1.0, 1.0)
    distance = float(np.mean((w - best) ** 2))
    bound = eta**2 * size * found.distances[0]
    assert 0.001 * bound < distance <= bound


def test_a_penalty_is_a_loss_without_noise() -> None:
    """It makes F and the records' losses steeper by its longest gradient, and is in no threshold."""
    plain, ridge = (LocalizedProblem(2.0, 5, UNBOUNDED, strength) for strength in (0.0, 0.5))
    assert (ridge.lipschitz_of_mean, ridge.second) == (1.5, 1.7)
    assert ridge.reach(10, 0.1) == plain.reach(10, 0.1) + 0.5
    assert balanced_thresholds(plain, (8,), 1.0, Z) == balanced_thresholds(ridge, (8,), 1.0, Z)
