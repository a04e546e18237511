"""A core is left to the noise while a run wants it so, and to nobody after the last one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from calibrators.plan import Clip
from tests.trainer.plans import phase_of, plan_of
from trainer.models import Model, MultilayerPerceptron, logistic_regression
from trainer.products import one_core_left
from trainer.records import prepare
from trainer.run import cores_for
from trainer.streams import random_streams

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def _as_many_threads_as_cores() -> Iterator[None]:
    with threadpool_limits(CORES, user_api="blas"):
        yield


def threads() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


def test_the_first_to_come_leaves_a_core_and_the_last_to_go_takes_it_back() -> None:
    assert threads() == {CORES}
    with one_core_left():
        with one_core_left():
            assert threads() == {max(1, CORES - 1)}
        assert threads() == {max(1, CORES - 1)}
    assert threads() == {CORES}


def test_threads_are_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.products._cores", lambda: 16)
    with threadpool_limits(1, user_api="blas"), one_core_left():
        assert threads() == {1}


def test_a_run_that_fails_takes_it_back() -> None:
    with pytest.raises(ZeroDivisionError), one_core_left():
        raise ZeroDivisionError
    assert threads() == {CORES}


@pytest.mark.parametrize(
    ("model", "rows", "left"),
    [
        (MultilayerPerceptron(20, 10, hidden=(2000,)), 32.0, True),
        (MultilayerPerceptron(20, 10, hidden=(2000,)), 256.0, False),
        (logistic_regression(20), 32.0, False),
    ],
)
def test_long_noise_beside_short_products_gets_a_core(model: Model, rows: float, left: bool) -> None:
    plan = plan_of("dp_sgd", phase_of(Clip(1.0), probability=rows / 10_000), size=10_000)
    records = prepare(model, np.zeros((1, 20)), np.zeros(1), "float64", 1, random_streams(1).slots)
    with cores_for(plan, model, records):
        assert threads() == {max(1, CORES - 1) if left else CORES}
    assert threads() == {CORES}
