"""The noisy score: what one row adds to it, and that one key is one score."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.runs import lifecycle, scoring
from app.runs.execution import load_job
from app.runs.job import Job
from app.runs.scoring import contribution, noisy_score, rounded_normal
from tests.app.run_sweeps.conftest import Sweeps
from trainer.losses import Squared
from trainer.models.linear import LinearModel


@pytest.fixture
def job(sweeps: Sweeps) -> Job:
    sweep = sweeps.swept(hyperparameters={"step_size": [1.0]})
    run = sweeps.stored({"id": sweep["cells"][0]["run_id"]})
    return load_job(sweeps.context, run, lifecycle.read_plan(run))


def parameters(job: Job) -> dict[str, np.ndarray]:
    width = job.description.scale(job.training.features[:1]).shape[1]
    drawn = np.random.default_rng(5)
    return {"weights": drawn.normal(size=width), "bias": drawn.normal(size=1)}


def without_row(job: Job, row: int) -> Job:
    training = job.training
    kept = np.arange(len(training.labels)) != row
    return replace(job, training=replace(training, features=training.features[kept], labels=training.labels[kept]))


def test_each_row_adds_at_most_one(sweeps: Sweeps, job: Job) -> None:
    point, size = parameters(job), job.training.declared_size
    whole = noisy_score(job, point, 1e-12, 7) * size
    agreeing = np.mean(job.model.predict(point, job.scaled_rows()[0]) == job.scaled_rows()[1])
    assert whole == pytest.approx(agreeing * len(job.training.labels), abs=1e-6)
    lost = [whole - noisy_score(without_row(job, row), point, 1e-12, 7) * size for row in range(20)]
    assert {round(each) for each in lost} == {0, 1}
    assert all(abs(each - round(each)) < 1e-6 for each in lost)


def test_one_key_is_one_score(job: Job) -> None:
    point = parameters(job)
    score = noisy_score(job, point, 50.0, 1)
    assert noisy_score(job, point, 50.0, 1) == score
    noises = [rounded_normal(secrets.randbits(128), 2.0**20) * 2.0**-20 for _ in range(61)]
    assert len(set(noises)) == 61
    # Of 61 the deviation is within 45 % of the truth, but for one in a million.
    assert 0.55 < np.std(noises) < 1.45
    size, exact = job.training.declared_size, noisy_score(job, point, 1e-12, 1)
    assert (score - exact) * size == pytest.approx(rounded_normal(1, 50.0 * 2.0**20) * 2.0**-20)


def test_the_work_is_that_of_the_slots(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    point, size = parameters(job), job.training.declared_size
    calls = []
    counted = scoring.contribution

    def contributed(*given: Any) -> float:
        calls.append(given)
        return counted(*given)

    monkeypatch.setattr(scoring, "contribution", contributed)
    for fewer in (job, without_row(job, 3), without_row(without_row(job, 3), 5)):
        for capacity in (None, size + 7):
            calls.clear()
            # Without slots there would be fewer calls, and dummy rows that counted would show in the sum.
            exact = sum(counted(job.model, point, row, label) for row, label in zip(*fewer.scaled_rows(), strict=True))
            assert noisy_score(fewer, point, 0.0, 1, capacity) == exact / size
            assert len(calls) == (capacity or size)


def test_an_error_that_is_no_number_adds_nothing() -> None:
    model, point = LinearModel(Squared(), 1), {"weights": np.array([1.0]), "bias": np.array([0.0])}
    row = np.array([0.25])
    assert contribution(model, point, row, 0.0) == 0.75
    assert [contribution(model, point, row, label) for label in (np.nan, np.inf, -np.inf, 5.0)] == [0.0] * 4


def test_sums_are_exact_so_that_no_row_moves_the_rounding_of_others() -> None:
    model = LinearModel(Squared(), 2)
    point = {"weights": np.array([0.3, -0.7]), "bias": np.array([0.01])}
    drawn = np.random.default_rng(3)
    rows, labels = drawn.uniform(-1, 1, size=(400, 2)), drawn.uniform(-1, 1, size=400)
    parts = [contribution(model, point, row, label) for row, label in zip(rows, labels, strict=True)]
    exact = np.maximum(0.0, 1.0 - np.abs(model.predict(point, rows) - labels))
    np.testing.assert_allclose(parts, exact, rtol=0, atol=2.0**-20 + 1e-12)
    assert len(set(parts)) > 100
    for row, part in enumerate(parts[:50]):
        assert sum(parts) - sum(parts[:row] + parts[row + 1 :]) == part
