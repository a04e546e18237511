"""Nothing that an analyst sees changes when one row does: errors, warnings, logs, progress, shapes, counts of steps.

The model aside: its numbers are what the guarantee is about.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Plan
from tests.conformance.trainers.examples import (
    FEATURES,
    data,
    every_dtype,
    every_own_plan,
    every_plan,
    model,
    records_of,
)
from tests.conformance.trainers.streams import RecordingStreams
from trainer.run import run


@contextmanager
def watched() -> Iterator[list[logging.LogRecord]]:
    """Warnings and floating-point flags raise; log records are collected."""
    records: list[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    collector = Collector(0)
    logging.getLogger().addHandler(collector)
    try:
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            yield records
    finally:
        logging.getLogger().removeHandler(collector)


def visible(
    capfd: pytest.CaptureFixture[str], plan: Plan, features: Any, labels: Any, dtype: str
) -> tuple[object, ...]:
    """Everything a run shows, but for the numbers in the model."""
    progress: list[tuple[int, int]] = []
    asked: list[bool] = []
    with watched() as records:
        result = run(
            replace(plan, dtype=dtype),
            model(),
            features,
            labels,
            seed=3,
            capacity=2 * plan.dataset_size,
            on_progress=lambda done, total: progress.append((done, total)),
            is_cancelled=lambda: bool(asked.append(False)),
        )
    printed = capfd.readouterr()
    shapes = [(name, value.shape, value.dtype) for name, value in result.parameters.items()]
    finite = all(np.all(np.isfinite(value)) for value in result.parameters.values())
    return progress, len(asked), result.steps, shapes, finite, records, printed.out, printed.err


@every_dtype
@every_own_plan
@pytest.mark.one_in(4)
def test_rows_show_only_in_the_model(capfd: pytest.CaptureFixture[str], name: str, plan: Plan, dtype: str) -> None:
    features, labels = records_of(plan)
    expected = visible(capfd, plan, features, labels, dtype)
    assert expected[4:] == (True, [], "", "")
    for value in (np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 1e39, 1e-320, 0.0):
        one = features.copy()
        one[5] = value
        assert visible(capfd, plan, one, labels, dtype) == expected
        every = np.full_like(features, value)
        assert visible(capfd, plan, every, labels, dtype) == expected
    for label in (np.nan, np.inf, -1e300, 0.0, 17.0):
        changed = labels.copy()
        changed[5] = label
        assert visible(capfd, plan, features, changed, dtype) == expected
        assert visible(capfd, plan, features, np.full_like(labels, label), dtype) == expected


@every_dtype
@every_plan
@pytest.mark.one_in(4)
def test_the_number_of_rows_does_not_show(capfd: pytest.CaptureFixture[str], name: str, plan: Plan, dtype: str) -> None:
    declared = plan.dataset_size
    expected = visible(capfd, plan, *records_of(plan), dtype)
    for rows in (0, 1, declared - 1, declared + 1, 2 * declared):
        assert visible(capfd, plan, *data(rows), dtype) == expected


@pytest.mark.one_in(3)
@every_plan
def test_without_rows_the_noise_alone_is_released(name: str, plan: Plan) -> None:
    """Whatever the noise is, it is there; and a data set of null records is as good as none."""
    empty = np.empty((0, FEATURES)), np.empty(0)
    null = np.full((plan.dataset_size, FEATURES), np.nan), np.zeros(plan.dataset_size)
    released = [run(plan, model(), *some, streams=RecordingStreams(5)).parameters["weights"] for some in (empty, null)]
    np.testing.assert_allclose(released[0], released[1], rtol=1e-12)
    assert np.any(released[0] != 0.0) or plan.release.kind == "random"
