"""The client's correlated noise: C applied to it is what was charged, and it goes on bit for bit or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from epsilond_client import Client
from epsilond_client.noise import CorrelatedNoise, correlated_noise, fresh_normals
from epsilond_client.samplers import for_event
from scipy import stats

KEY = bytes(range(32))
COEFFICIENTS = (0.625, 0.5, 0.375, 0.25)


def noise_of(size: int = 5, *, steps: int = 20, **options: Any) -> CorrelatedNoise:
    return CorrelatedNoise(COEFFICIENTS, 2.0, size, steps=steps, key=KEY, **options)


def test_the_worked_recursion() -> None:
    steps = iter([1.0, 2.0, 3.0, 4.0])
    noise = CorrelatedNoise((0.8, 0.6), 1.0, 1, steps=4, draw=lambda _seed: np.array([next(steps)]))
    found = [float(noise.draw()[0]) for _ in range(4)]
    assert found == pytest.approx([1.25, 1.5625, 2.578125, 3.06640625], abs=1e-15)


def test_the_matrix_applied_to_the_noise_is_the_normal_numbers() -> None:
    noise, steps = noise_of(size=7), 20
    plain = np.stack([noise._normals(0) for noise._done in range(steps)])
    noise._done = 0
    drawn = np.stack([noise.draw() for _ in range(steps)])
    matrix = sum(value * np.eye(steps, k=-lag) for lag, value in enumerate(COEFFICIENTS))
    np.testing.assert_allclose(matrix @ drawn, 2.0 * plain, atol=1e-12)
    np.testing.assert_allclose(drawn, 2.0 * np.linalg.solve(matrix, plain), atol=1e-12)


def test_the_normal_numbers_are_normal_and_fresh_in_every_step() -> None:
    noise = noise_of(size=200_001)
    one, other = (noise._normals(0) for noise._done in range(2))
    assert one.shape == (200_001,)
    for values in (one, other, (one + other) / np.sqrt(2.0)):
        assert stats.kstest(values, "norm").pvalue > 1e-3
    assert stats.kstest((one[:100_000] + one[100_001:]) / np.sqrt(2.0), "norm").pvalue > 1e-3
    assert stats.kstest(one[:100_000] ** 2 + one[100_001:] ** 2, stats.chi2(2).cdf).pvalue > 1e-3
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 5 / np.sqrt(200_001)


def test_fresh_normal_numbers_are_normal_and_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = fresh_normals(100_001), fresh_normals(100_001)
    assert one.shape == (100_001,)
    for values in (one, (one + other) / np.sqrt(2.0)):
        # Nothing fixes these numbers: an honest generator fails here once in a million runs.
        assert stats.kstest(values, "norm").pvalue > 1e-6
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    np.testing.assert_array_equal(fresh_normals(2), [np.sqrt(2.0 * 53.0 * np.log(2.0)), 0.0])


@pytest.mark.parametrize("taken", range(2 * len(COEFFICIENTS)))
def test_it_goes_on_bit_for_bit(taken: int) -> None:
    whole = noise_of()
    expected = [whole.draw() for _ in range(20)]
    first = noise_of()
    for step in range(taken):
        np.testing.assert_array_equal(first.draw(), expected[step])
    state = first.state_dict()
    first.draw()[:] = 0.0  # what is handed out is the caller's own
    second = CorrelatedNoise(COEFFICIENTS, 2.0, 5, steps=20)
    second.load_state_dict(state)
    assert second.steps_left == 20 - taken
    for step in range(taken, 20):
        np.testing.assert_array_equal(second.draw(), expected[step])
    with pytest.raises(ValueError, match="all 20 steps have their noise"):
        second.draw()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coefficients": [0.625, 0.5]}, "coefficients is"),
        ({"stddev": 1.0}, "stddev is"),
        ({"size": 6}, "size is"),
        ({"steps": 21}, "steps is"),
        ({"earlier": []}, "must have the noise of 3 earlier steps, not of 0"),
        ({"step": 2}, "must have the noise of 2 earlier steps"),
        ({"step": 21}, "after 21 steps"),
        ({"earlier": [np.zeros(4)] * 3}, "must have the shape"),
        ({"key": "00"}, "must have 32 bytes, not 1"),
    ],
)
def test_a_state_that_is_of_other_noise_or_not_whole_is_refused(changes: dict[str, Any], words: str) -> None:
    noise = noise_of()
    for _ in range(5):
        noise.draw()
    with pytest.raises(ValueError, match=words):
        noise_of().load_state_dict(noise.state_dict() | changes)


def test_numbers_may_come_from_another_library() -> None:
    """Its arrays need products, differences and quotients alone; a seed is the same wherever it is drawn again."""

    class Numbers:
        def __init__(self, values: list[float]) -> None:
            self.values, self.shape = values, (len(values),)

        def __sub__(self, other: Numbers) -> Numbers:
            return Numbers([a - b for a, b in zip(self.values, other.values, strict=True)])

        def __mul__(self, factor: float) -> Numbers:
            return Numbers([value * factor for value in self.values])

        __rmul__ = __mul__

        def __truediv__(self, factor: float) -> Numbers:
            return Numbers([value / factor for value in self.values])

    def draw(make: Callable[[list[float]], Any]) -> Callable[[int], Any]:
        return lambda seed: make(np.random.default_rng(seed).standard_normal(5).tolist())

    own, usual = noise_of(draw=draw(Numbers)), noise_of(draw=draw(np.array))
    for _ in range(20):
        np.testing.assert_array_equal(own.draw().values, usual.draw())
    assert len({usual.seed(step) for step in range(1000)}) == 1000
    assert all(0 <= usual.seed(step) < 2**63 for step in range(100))
    with pytest.raises(ValueError, match=r"have the shape \(5,\), got \(4,\)"):
        noise_of(draw=lambda _seed: np.zeros(4)).draw()


def test_memory_is_stated_and_keys_are_not_shown() -> None:
    noise = noise_of(size=1000)
    for _ in range(10):
        noise.draw()
    kept = noise.state_dict()["earlier"]
    assert noise.memory == sum(each.nbytes for each in kept) == 3 * 8000
    assert KEY.hex() not in repr(noise)
    assert CorrelatedNoise((1.0,), 1.0, 9, steps=1).memory == 0
    one, other = (CorrelatedNoise((1.0,), 1.0, 3, steps=1).draw() for _ in range(2))
    assert np.all(one != other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coefficients": ()}, "the first coefficient"),
        ({"coefficients": (0.0,)}, "the first coefficient"),
        ({"coefficients": (float("inf"), 1.0)}, "finite"),
        ({"coefficients": (0.5, 0.75)}, "must not increase"),
        ({"coefficients": (0.5, -0.25)}, "must not be negative"),
        ({"stddev": 0.0}, "must be positive"),
        ({"stddev": float("nan")}, "must be positive"),
        ({"size": 0}, "must be positive"),
        ({"steps": 0}, "must be positive"),
        ({"key": b"short"}, "32 bytes"),
    ],
)
def test_what_is_no_such_noise_is_refused(changes: dict[str, Any], words: str) -> None:
    given = {"coefficients": (1.0,), "stddev": 1.0, "size": 2, "steps": 3} | changes
    with pytest.raises(ValueError, match=words):
        CorrelatedNoise(given.pop("coefficients"), given.pop("stddev"), given.pop("size"), **given)


def test_a_loop_with_a_calibrated_plan_is_charged_for_its_steps(client: Client) -> None:
    asked: dict[str, Any] = {
        "algorithm": "dp_bandmf",
        "dataset_size": 1000,
        "batch_size": 50,
        "iterations": 40,
        "gradient_bound": {"kind": "clip", "max_grad_norm": 0.5},
        "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
        "hyperparameters": {"momentum": 0.9},
        "correlation": {"bands": 4},
    }
    plan = client.calibrate(**asked)["plan"]
    noise = correlated_noise(plan, size=3)
    [phase] = plan["phases"]
    assert noise.divisor == 50
    assert noise.momentum == 0.9
    stddev = 0.5 * phase["event"]["mechanism"]["noise_multiplier"]
    first = noise._normals(0) * stddev / phase["event"]["mechanism"]["coefficients"][0]
    sampler = for_event(phase["event"], dataset_size=1000)
    assert sampler.divisor == 50.0
    budget = client.budgets.create(
        "correlated", neighboring_relation="add_or_remove_one", filter={"kind": "gaussian_dp", "mu": 8}
    )
    with client.reserve(budget, [phase["event"]], purpose="a loop of one's own", start=False) as guard:
        drawn = [noise.draw() for _ in guard.steps(sampler)]
    np.testing.assert_allclose(drawn[0], first, rtol=1e-12)
    assert (len(drawn), noise.steps_left) == (40, 0)
    [event] = client.reservations.get(guard.id).charged_events or []
    assert (event.count, event.mechanism["kind"]) == (40, "correlated_gaussian")
    for others in ([{"event": {}}], [phase, phase], []):
        with pytest.raises(ValueError, match="not a plan with correlated noise"):
            correlated_noise({"phases": others}, size=3)
