"""DP-Adam and DP-NAdam: worked steps, Adam's own properties, what a penalty and a box mean, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue
from calibrators.geometry import Box, L1Ball, L1Penalty, L2Ball, L2Penalty, Penalty, Simplex
from calibrators.plan import Clip, Normalize
from tests.trainer.given import trainer_of
from tests.trainer.plans import phase_of, plan_of
from trainer.adam import Adam
from trainer.loop import Step
from trainer.models import logistic_regression
from trainer.streams import random_streams

#: The algorithms' worked numbers: eta 0.1, B 4, sigma 1.5; sums of gradients clipped at 2, or normalised with r = 0.5.
POINT, NOISE = np.array([1.0, 2.0]), np.array([0.5, -1.0])


def step_of(noisy_sum: np.ndarray, *, step_size: float = 0.1, **geometry: Any) -> Step:
    return Step(noisy_sum, 4, step_size, **geometry)


@pytest.mark.parametrize(
    ("total", "stddev"), [(np.array([0.6, 2.4]), 3.0), (np.array([0.374025974026, 0.955844155844]), 1.5)]
)
def test_the_first_two_steps_by_hand(total: np.ndarray, stddev: float) -> None:
    """With g the mean, m/(1-b1) = g and v/(1-b2) = g^2; then the same batch with the opposite noise."""
    adam = Adam(None, POINT)
    adam.advance(step_of(total + stddev * NOISE))
    one = (total + stddev * NOISE) / 4.0
    first = POINT - 0.1 * one / (np.abs(one) + 1e-8)
    np.testing.assert_allclose(adam.point, first, rtol=1e-9)
    adam.advance(step_of(total - stddev * NOISE))
    two = one - 2.0 * stddev * NOISE / 4.0
    m, v = (0.9 * one + two) / 1.9, (0.999 * one**2 + two**2) / 1.999
    np.testing.assert_allclose(adam.point, first - 0.1 * m / (np.sqrt(v) + 1e-8), rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 50])
def test_under_a_constant_gradient_every_step_is_as_long_as_the_first(steps: int) -> None:
    """Which is what the corrections 1 - b^t are for: each step moves by eta g / (|g| + xi)."""
    total, adam = np.array([4.0, -4e-3, 4e-8]), Adam(None, np.zeros(3))
    for _ in range(steps):
        adam.advance(step_of(total))
    g = total / 4.0
    np.testing.assert_allclose(adam.point, -steps * 0.1 * g / (np.abs(g) + 1e-8), rtol=1e-10)


@pytest.mark.parametrize(
    ("penalty", "box"), [(L1Penalty(0.4), None), (L2Penalty(0.7), None), (L1Penalty(0.4), Box(-0.5, 0.3))]
)
def test_it_settles_where_the_loss_with_its_penalty_is_least(penalty: Penalty, box: Box | None) -> None:
    """Of sum h_i (x_i - t_i)^2 / 2: with one step size for all coordinates it would settle elsewhere."""
    h, t = np.array([1.0, 50.0, 0.5, 2.0, 0.9]), np.array([2.0, 0.4, 0.3, -1.5, 0.43])
    adam = Adam(box, np.zeros(5))
    for index in range(4000):
        step_size, noisy_sum = 0.1 / (1.0 + index / 50.0), 4.0 * h * (adam.query - t)
        adam.advance(step_of(noisy_sum, step_size=step_size, penalty=penalty, domain=box))
    if isinstance(penalty, L1Penalty):
        expected = np.sign(t) * np.maximum(np.abs(t) - 0.4 / h, 0.0)
    else:
        expected = h * t / (h + 0.7)
    if box is not None:
        expected = np.clip(expected, box.lower, box.upper)
    np.testing.assert_allclose(adam.point, expected, atol=2e-3)


@pytest.mark.parametrize("domain", [L2Ball(1.0), L1Ball(1.0), Simplex(1.0)])
@pytest.mark.parametrize("name", ["dp_adam", "dp_nadam"])
def test_a_domain_that_is_not_a_box_is_refused_before_a_row_is_read(name: str, domain: object) -> None:
    model = logistic_regression(2)
    bound = Clip(1.0) if name == "dp_adam" else Normalize(0.1)
    made, streams = plan_of(name, phase_of(bound)), random_streams(1)
    plan = type(made)(name, made.dataset_size, made.neighboring_relation, made.phases, domain=domain)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="box") as caught:
        trainer_of(plan, model, np.zeros((3, 2)), np.zeros(3), streams)
    assert caught.value.pointer == ("domain", "kind")


def test_neither_takes_the_others_bound() -> None:
    model, streams = logistic_regression(2), random_streams(1)
    for name, bound in (("dp_adam", Normalize(0.1)), ("dp_nadam", Clip(1.0))):
        with pytest.raises(InvalidValue, match="bounds gradients by"):
            trainer_of(plan_of(name, phase_of(bound)), model, np.zeros((3, 2)), np.zeros(3), streams)
