"""The speed of a machine is measured on rows that nobody has."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Phase, Plan
from trainer import pace
from trainer.models import logistic_regression


def phase(steps: int, probability: float | None = None, divisor: int = 8) -> Phase:
    mechanism = Gaussian(1.0)
    event = Event(mechanism, count=steps) if probability is None else Event(mechanism, Poisson(probability), steps)
    return Phase(event, Clip(1.0), divisor=divisor, step_size=0.5)


def plan(*phases: Phase) -> Plan:
    return Plan("dp_sgd", 8, NeighboringRelation.ADD_OR_REMOVE_ONE, phases)


def test_no_rows_are_measured() -> None:
    assert set(inspect.signature(pace.measure).parameters) == {
        "plan",
        "model",
        "capacity",
        "device",
        "budget_s",
        "clock",
    }
    model = logistic_regression(3)
    features, labels = pace.dummy_rows(model, 16)
    again = pace.dummy_rows(model, 16)
    assert features.shape == (16, 3)
    assert set(labels) == {0.0, 1.0}
    assert np.array_equal(features, again[0])
    assert np.array_equal(labels, again[1])


def test_dummy_rows_hold_no_zeros_in_the_mass_and_fit_the_model() -> None:
    """Rows of zeros would share one page of memory, and be read faster than others."""
    features, _ = pace.dummy_rows(logistic_regression(3), 1000)
    assert np.count_nonzero(features) >= features.size - 1
    assert np.abs(features).max() <= 1.0


def test_a_step_takes_what_the_clock_says_and_the_warm_up_does_not_count() -> None:
    ticks = itertools.count()
    measured = pace.measure(plan(phase(10)), logistic_regression(3), 9, budget_s=50.0, clock=lambda: float(next(ticks)))
    # The clock is asked before each step but the first, and at the end: 10 steps take 10 ticks.
    assert measured == pace.Pace(preparing_s=1.0, step_s=1.0)


def test_a_first_step_that_takes_the_budget_is_all_that_is_measured(monkeypatch) -> None:
    made = []
    steps = pace._steps

    def counted(*args):
        made.append(args[1])
        return steps(*args)

    monkeypatch.setattr(pace, "_steps", counted)
    ticks = itertools.count()
    pace.measure(plan(phase(10)), logistic_regression(3), 9, budget_s=0.5, clock=lambda: float(next(ticks)))
    assert made == [1]


def test_later_steps_with_more_records_count_for_more() -> None:
    light, heavy = phase(2, 0.25, 2), phase(6)
    assert pace._heavier(plan(light, heavy), 2) == pytest.approx((2 * 1.0 + 6 * 4.0) / 8)
    assert pace._heavier(plan(heavy), 3) == 1.0
    # Lighter steps are not counted for less: what made the first ones heavy may be something else.
    assert pace._heavier(plan(heavy, light), 2) == 1.0


def test_loading_the_noise_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first step of a process would wait for it, and use up the whole budget."""
    now = itertools.count()
    read: list[int] = []

    def clock() -> float:
        read.append(1)
        return float(next(now))

    monkeypatch.setattr(pace, "load_noise", lambda: read.append(0))
    pace.measure(plan(phase(40)), logistic_regression(3), 32, budget_s=8.0, clock=clock)
    assert read[0] == 0
    assert read.count(0) == 1
