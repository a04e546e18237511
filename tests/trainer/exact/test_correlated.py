"""Correlated noise is what is left of the sums once the whole numbers that the proof covers are solved for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from trainer.exact import correlated
from trainer.exact.correlated import CorrelatedNoise, Recursion
from trainer.exact.loops import solve
from trainer.grid import LARGEST_SCALE, grid_for
from trainer.streams import random_streams

RECURSIONS = [
    Recursion((1,), 0),
    Recursion((3,), 2),
    Recursion((1, 1), 0),
    Recursion((3, 2, 1), 2),
    Recursion((1923, 1700, 1507, 1400, 1210, 1207), 12),
    Recursion((5, 4, 3, 2, 2, 1, 1, 1, 1, 1), 4),
]


class Recorded:
    """Normal numbers that are remembered."""

    def __init__(self, seed: int, given: Sequence[np.ndarray] | None = None) -> None:
        self._noise, self._given = random_streams(seed).gaussian_noise(), given
        self.drawn: list[np.ndarray] = []

    def rounded(self, size: int, scale: float) -> np.ndarray:
        values = self._noise.rounded(size, scale) if self._given is None else self._given[len(self.drawn)].copy()
        self.drawn.append(values.copy())
        return values

    def state(self) -> Any:
        return self._noise.state()

    def restore(self, state: Any) -> None:
        self._noise.restore(state)

    def close(self) -> None:
        self._noise.close()


def whole(values: np.ndarray) -> list[int]:
    assert np.all(values == np.rint(values))
    return [int(value) for value in values]


def nearest(above: int, below: int) -> int:
    """floor(above / below + 1/2)."""
    return (2 * above + below) // (2 * below)


@pytest.mark.parametrize("recursion", RECURSIONS)
def test_what_is_added_to_the_sums_makes_them_a_function_of_what_the_proof_covers(recursion: Recursion) -> None:
    """In Python's integers: Y = C q + R leaves as the rounded solution of C x = Y, and that is q + e bit by bit."""
    steps, size, rng = 40, 7, np.random.default_rng(1)
    grid = grid_for(2.5, size, "float64", 1000, spread=recursion.spread(steps))
    source = Recorded(5)
    noise = CorrelatedNoise(source, recursion, size)
    sums = rng.integers(-(2**40), 2**40, (steps, size))
    released: list[list[int]] = []
    for step in range(steps):
        added = whole(noise.rounded(size, grid.scale))
        reach = range(1, min(step + 1, len(recursion.whole)))
        first = recursion.whole[0]
        leaves = []
        for place in range(size):
            covered = int(source.drawn[step][place]) + first * int(sums[step, place])
            covered += sum(recursion.whole[back] * int(sums[step - back, place]) for back in reach)
            known = sum(recursion.whole[back] * released[step - back][place] for back in reach)
            leaves.append(nearest(covered - known, first))
        assert leaves == [int(total) + e for total, e in zip(sums[step], added, strict=True)]
        released.append(leaves)


@pytest.mark.parametrize("recursion", RECURSIONS)
def test_noise_solves_the_recursion(recursion: Recursion) -> None:
    """C applied to it is the normal numbers, but for half of n_0; and a dense solver finds the same to 1e-12."""
    steps, size = 30, 11
    source = Recorded(3)
    noise = CorrelatedNoise(source, recursion, size)
    added = np.stack([noise.rounded(size, 2.0**20) for _ in range(steps)])
    dense = dense_of(recursion, steps)
    solved_for = dense @ added
    assert np.abs(solved_for - np.stack(source.drawn)).max() <= recursion.whole[0] / 2
    expected = np.linalg.solve(dense, solved_for)
    np.testing.assert_allclose(added, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def dense_of(recursion: Recursion, steps: int) -> np.ndarray:
    dense = np.zeros((steps, steps))
    for back, coefficient in enumerate(recursion.whole):
        dense += np.diag(np.full(max(0, steps - back), float(coefficient)), -back)[:steps, :steps]
    return dense


def test_worked_numbers() -> None:
    """c = (0.8, 0.6) and z = 1, 2, 3, 4, in steps of 2^-28 of them: within a few of these."""
    given = [np.array([float(z << 28)]) for z in (1, 2, 3, 4)]
    ten = Recursion((8, 6), 0)
    noise = CorrelatedNoise(Recorded(1, given), ten, 1)
    found = np.array([noise.rounded(1, 1.0)[0] for _ in given])
    np.testing.assert_allclose(found * 10.0 / 2.0**28, [1.25, 1.5625, 2.578125, 3.06640625], rtol=2e-7)


def test_ties_go_up() -> None:
    """Only then is rounding a whole number more of the number the rounded one more: in either direction of zero."""
    for first in (1.0, 2.0, 3.0, 4.0, 1923.0, 1924.0):
        values = np.concatenate([np.arange(-5000.0, 5000.0), np.array([2.0**51, -(2.0**51), 2.0**51 - 1])])
        found = values.copy()
        solve(found, np.zeros((0, values.size), dtype=np.int32), np.zeros(0), 0, first)
        assert found.tolist() == [nearest(int(value), int(first)) for value in values]


@pytest.mark.parametrize("steps", [1, 100, 3000])
@pytest.mark.parametrize("recursion", RECURSIONS)
def test_all_numbers_are_exact(recursion: Recursion, steps: int) -> None:
    """With normal numbers as large as they are allowed for, of the worst signs; and the scale is drawn fast."""
    spread = recursion.spread(steps)
    grid = grid_for(1.0, 1, "float64", 1000, spread=spread)
    scale = grid.scale * 2.0**recursion.bits
    assert scale <= LARGEST_SCALE
    listed = min(steps, 300)
    inverse = np.linalg.solve(dense_of(recursion, listed), np.eye(listed))[:, 0]
    if recursion.whole == (1, 1):
        inverse = np.array([float(steps)])  # 1, -1, 1, ... without an end
    largest = 32.0 * scale + recursion.whole[0] / 2
    noise = float(np.abs(inverse).sum()) * largest
    assert largest + sum(recursion.whole) * noise <= 2.0**52
    assert noise < 2.0**31


@pytest.mark.parametrize("recursion", [Recursion((1, 1), 0), Recursion((9, 8, 8, 8), 0), Recursion((4, 4, 4, 1), 2)])
def test_the_norm_of_the_inverse_is_bounded(recursion: Recursion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind the coefficients that are added up one by one."""
    exact = recursion._inverse_norm(3000)
    monkeypatch.setattr(correlated, "_LISTED", 50)
    assert exact * (1.0 - 1e-12) <= recursion._inverse_norm(3000)
    assert Recursion((1, 1), 0)._inverse_norm(10**8) >= 1e8


@pytest.mark.parametrize("done", range(13))
def test_restored_noise_goes_on(done: int) -> None:
    recursion = RECURSIONS[4]
    one, other = (CorrelatedNoise(random_streams(seed).gaussian_noise(), recursion, 9) for seed in (1, 2))
    for _ in range(done):
        one.rounded(9, 1000.0)
    state = one.state()
    expected = [one.rounded(9, 1000.0) for _ in range(13)]
    other.rounded(9, 1000.0)
    other.restore(state)
    np.testing.assert_array_equal([other.rounded(9, 1000.0) for _ in range(13)], expected)


def test_a_state_without_the_noise_of_the_last_steps_is_refused() -> None:
    """It would go on with another C; and so would one of other bands."""
    recursion = RECURSIONS[4]
    noise = CorrelatedNoise(random_streams(1).gaussian_noise(), recursion, 9)
    state = noise.state()
    for wrong in (
        {key: value for key, value in state.items() if key != "kept"},
        state | {"kept": state["kept"][:-1]},
        random_streams(1).gaussian_noise().state(),
    ):
        with pytest.raises(InvalidValue, match="lacks the noise of the last steps") as caught:
            noise.restore(wrong)
        assert caught.value.code == "checkpoint_refused"


def test_too_much_noise_to_keep_is_refused() -> None:
    bands = Recursion(tuple(range(64, 0, -1)), 6)
    correlated.check_kept(bands, correlated.MOST_KEPT // 63)
    with pytest.raises(InvalidValue, match="use at most 34 bands") as caught:
        CorrelatedNoise(random_streams(1).gaussian_noise(), bands, 4_000_000)
    assert caught.value.pointer == ("correlation", "bands")


def test_the_law_is_that_of_the_solution() -> None:
    """Each step's variance is the sum of squares of 1 / C's coefficients, and steps are correlated as they say."""
    recursion, steps, size, scale = Recursion((4, 3, 1), 2), 6, 20_000, 1000.0
    noise = CorrelatedNoise(random_streams(8).gaussian_noise(), recursion, size)
    added = np.stack([noise.rounded(size, scale) for _ in range(steps)]) / scale
    inverse = np.linalg.inv(dense_of(recursion, steps) / 4.0)
    covariance = inverse @ inverse.T
    spread = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / size)
    assert np.abs((added @ added.T / size - covariance) / spread).max() < 4.5
    for step in range(steps):
        assert stats.kstest(added[step] / math.sqrt(covariance[step, step]), "norm").pvalue > 1e-3
